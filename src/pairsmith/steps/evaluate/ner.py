"""Few-shot NER: a linear layer on token vectors, initialised from questions or at random (Q10)."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.paths import Place, is_folder, place, reaching, size_of
from pairsmith.core.progress import Progress
from pairsmith.data.tagged import TaggedSentence, has_tags_beside, read_tagged, tags_beside
from pairsmith.methods.quip.names import draw_tagged_sentences, tag_after_training, types_of
from pairsmith.metrics.entities import entity_counts
from pairsmith.models.span_encoder import require_question_heads
from pairsmith.runs import hash_source
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.steps.evaluate.evaluation import Evaluation, evaluation_estimate
from pairsmith.steps.evaluate.figures import (
    Resampled,
    count_trained_on,
    mean_line,
    over_splits,
    resampled_f1,
    trained_on_line,
    uncertainty_line,
)
from pairsmith.steps.evaluate.paired import Line, Paired
from pairsmith.steps.evaluate.results import Evaluated
from pairsmith.steps.evaluate.transfer_settings import EvaluateNerSettings
from pairsmith.steps.planning import evenly_spaced
from pairsmith.steps.shared import errors_about, named
from pairsmith.steps.training.tagger import questions_of, tagger_encoder

_SAMPLE = 256
"""About the number of sentences on which a plan trains, and which it tags."""


def _hashes(settings: EvaluateNerSettings, _: object) -> dict[str, str]:
    sources = sentence_sources(settings)
    inputs = {name: hash_source(str(source)) for name, source in sources.items()}
    inputs |= {
        f"{name}, tags": hash_source(str(tags_beside(place(source))))
        for name, source in sources.items()
        if has_tags_beside(place(source))
    }
    if settings.questions:
        inputs["questions"] = hash_source(settings.questions)
    return inputs


def sentence_sources(settings: EvaluateNerSettings) -> dict[str, str | Place]:
    """The sources of the training sentences, one for all splits or one for each, and of the test sentences.

    They are named ``train``, or ``split N``, and ``test``.
    """
    if settings.train:
        return {"train": settings.train, "test": settings.data}
    folder = place(settings.data)
    names = [f"few_shot_{settings.shots}_{number}.words" for number in settings.splits]
    files = [folder / name for name in [*names, "test.words"]]
    with reaching(folder, InputError):
        fault = f"{settings.data} is no folder with splits"
        if is_folder(folder):
            missing = [file for file in files if size_of(file) is None]
            fault = f"{missing[0]} does not exist" if missing else ""
    if fault:
        raise InputError(
            f"{fault}; give tagged sentences to train on as --train, or a folder with "
            f"few_shot_{settings.shots}_N.words and .ner for each of --splits, and test.words and .ner"
        )
    names = [*(f"split {number}" for number in settings.splits), "test"]
    return dict(zip(names, files, strict=True))


class _Data(NamedTuple):
    splits: list[list[TaggedSentence]]  # the training sentences of each split
    test: list[TaggedSentence]


def training_and_test_sentences(settings: EvaluateNerSettings) -> _Data:
    """Read or draw the training sentences of each split, and read the test sentences."""
    entity_counts([["O"]], [["O"]])  # reports a missing package before anything is read
    *train, test = sentence_sources(settings).values()
    splits = [read_tagged(source) for source in train]
    if settings.whole:
        splits *= len(settings.splits)
    elif settings.train:
        with errors_about(f"--train {settings.train}", InputError):
            splits = [draw_tagged_sentences(splits[0], settings.shots, seed) for seed in settings.splits]
    test_sentences = read_tagged(test)
    if not types_of(test_sentences):
        raise InputError(f"{test}: no sentence has an entity, so F1 is 0 whatever is predicted; give others")
    return _Data(splits, test_sentences)


def _compute(settings: EvaluateNerSettings, data: _Data, progress: Progress) -> Evaluated:
    splits, test = data
    if "questions" in settings.start:  # checked before the tagger is trained from a random start
        try:
            require_question_heads(settings.model)
        except ModelError as error:
            raise ModelError(f"{error}, or --start random for any encoder") from error
    train = [sentence for split in splits for sentence in split]
    sentences = [*train, *test]
    questions = questions_of(sentences, settings.questions) if "questions" in settings.start else {}
    if unseen := sorted(set(types_of(test)) - set(types_of(train))):
        progress.say(
            f"no training sentence has the type {' or '.join(unseen)}, which test sentences have: such "
            f"entities count as not found (types of the training sentences: {', '.join(types_of(train))})"
        )
    predictions: dict[str, dict[int, list[list[str]]]] = {start: {} for start in settings.start}
    passes = sum(settings.epochs * len(split) + len(test) for split in splits)
    with progress.task("learn and tag", len(settings.start) * passes, "sentences") as bar:
        for start, (number, split) in product(settings.start, zip(settings.splits, splits, strict=True)):
            encoder = tagger_encoder(settings.model, start, settings)
            with named(settings.model):
                predictions[start][number] = tag_after_training(
                    encoder,
                    split,
                    test,
                    questions if start == "questions" else None,
                    settings,
                    seed=number,
                    advance=bar.advance,
                )
    gold = [list(sentence.tags) for sentence in test]
    figures: dict[str, Any] = {
        start: over_splits(
            {number: entity_counts(gold, tags) for number, tags in by_split.items()},
            bootstrap=settings.bootstrap,
            seed=settings.seed,
        )
        for start, by_split in predictions.items()
    }
    figures |= {"count": len(test), "trained_on": count_trained_on(map(texts_of, train), map(texts_of, test))}
    return figures, [
        {
            "words": list(sentence.words),
            "tags": list(sentence.tags),
            "predicted": {
                start: {str(number): tags[index] for number, tags in by_split.items()}
                for start, by_split in predictions.items()
            },
        }
        for index, sentence in enumerate(test)
    ]


def texts_of(sentence: TaggedSentence) -> tuple[str]:
    """The words of a sentence as one text, for ``count_trained_on``."""
    return (" ".join(sentence.words),)


def ner_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a text table."""
    lines = [f"{results['count']:,} sentences", f"{'start':<12}{'entity F1 ×100':<36}of each split"]
    starts = [name for name in ("random", "questions") if name in results]
    lines += [mean_line(name, results[name], "f1", results[name]["splits"].values()) for name in starts]
    lines += uncertainty_line(results[starts[0]], "f1", "splits", "sentences")
    lines += trained_on_line(results, "sentences")
    return "\n".join(lines)


def _plan(settings: EvaluateNerSettings, _before: Before) -> Estimate:
    """Train on one split for a few epochs, with a random initialisation, and tag a sample of sentences."""
    splits, test = training_and_test_sentences(settings)
    sample, training = evenly_spaced(test, _SAMPLE), evenly_spaced(splits[0], _SAMPLE)

    def seconds_of(epochs: int, sentences: Sequence[TaggedSentence]) -> float:
        begun = time.monotonic()
        encoder = tagger_encoder(settings.model, "random", settings)
        options = settings.model_copy(update={"epochs": epochs})
        tag_after_training(encoder, training, sentences, None, options, seed=settings.splits[0])
        return time.monotonic() - begun

    first = seconds_of(1, sample[:8])  # also loads libraries
    short = seconds_of(1, sample[:8])
    epoch = max(0.0, seconds_of(3, sample[:8]) - short) / 2 * len(splits[0]) / len(training)
    tagging = max(0.0, seconds_of(1, sample) - short) * len(test) / len(sample)
    per_training = short + epoch * settings.epochs + tagging
    seconds = first - short + per_training * len(splits) * len(settings.start)
    per_word = 20 + 6 * len(splits) * len(settings.start)
    return evaluation_estimate(seconds, sum(per_word * len(sentence.words) for sentence in test))


def _rows(_: EvaluateNerSettings, data: _Data) -> Iterator[dict[str, Any]]:
    for sentence in data.test:
        yield {"words": list(sentence.words), "tags": list(sentence.tags)}


def _resampled(settings: EvaluateNerSettings, lines: Iterable[Line]) -> dict[str, Resampled]:
    gold, first = [line["tags"] for line in lines], next(iter(lines))
    return {
        f"{start}_f1": resampled_f1(
            [
                entity_counts(gold, [line["predicted"][start][str(split)] for line in lines])
                for split in settings.splits
            ],
            bootstrap=settings.bootstrap,
            seed=settings.seed,
        )
        for start in ("random", "questions")
        if start in first["predicted"]
    }


evaluate_ner = Evaluation(
    "evaluate ner",
    training_and_test_sentences,
    _compute,
    ner_table,
    _plan,
    Paired(
        "sentences",
        _rows,
        _resampled,
        same=("whole", "shots", "splits"),
        names=lambda settings: [f"{start}_f1" for start in settings.start],
    ),
    _hashes,
)
"""Trains a tagger on the few sentences of each split, and evaluates it on the test sentences.

``predictions.jsonl`` has a line for each test sentence: its words, its tags, and the tags that were
``predicted``, for each start and split. ``results.json`` has the entity F1 ×100 for ``random`` and
``questions``, with its uncertainty over splits and over sentences (see ``over_splits``), the number of test
sentences (``count``), and the number of test sentences that are also training sentences of a split
(``trained_on``). With ``against``, it also has the differences of the mean F1 over the splits from the
earlier one, for each start that both results have (``random_f1``, ``questions_f1``).
"""
