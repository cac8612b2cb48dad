"""NER with few labels: a linear layer on token vectors, initialised from questions or at random (Q10)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pairsmith.core.errors import InputError, MissingExtra, SettingsError, choices
from pairsmith.core.model_names import model_revision
from pairsmith.core.paths import Place, is_folder, place, reaching, size_of
from pairsmith.core.progress import Progress
from pairsmith.core.yamlfile import read_yaml
from pairsmith.data.tagged import TaggedSentence, has_tags_beside, read_tagged, tags_beside
from pairsmith.runs import Run, hash_source, resolve_dtype
from pairsmith.steps.evaluate.results import Evaluated, at_splits, evaluate_once, mean_line, over_splits
from pairsmith.steps.evaluate.transfer_settings import EvaluateNerSettings

QUESTIONS: Mapping[str, str] = {
    "O": "What is a generic object ?",
    "person": "Who is a person ?",
    "location": "What is a location ?",
    "organization": "What is an organization ?",
    "miscellaneous": "What is a miscellaneous entity ?",
    "corporation": "What is a corporation ?",
    "product": "What is a product ?",
    "creative_work": "What is a creative work ?",
    "group": "What is a group ?",
}
"""The question for words that are not names (O), and for each entity type."""

_OTHER_NAMES = {"per": "person", "loc": "location", "org": "organization", "misc": "miscellaneous"}


def evaluate_ner(settings: EvaluateNerSettings, run: Run) -> dict[str, Any]:
    """Train a tagger on the few sentences of each split, and evaluate it on the test sentences.

    ``predictions.jsonl`` has a line for each test sentence: words, tags, and the tags predicted after the
    first split with the last of ``start``; ``results.json``, which is returned, for ``random`` and
    ``questions`` the entity F1 ×100 (see ``over_splits``), and the ``count`` of test sentences.
    """
    settings = at_splits(resolve_dtype(settings, run), run.progress.say)
    entity_f1([["O"]], [["O"]])  # so that a missing package is reported before anything is read
    sources = sources_of(settings)
    inputs = {name: hash_source(str(source)) for name, source in sources.items()}
    inputs |= {
        f"{name}, tags": hash_source(str(tags_beside(place(source))))
        for name, source in sources.items()
        if has_tags_beside(place(source))
    }
    if settings.questions:
        inputs["questions"] = hash_source(settings.questions)

    def compute() -> Evaluated:
        return _compute(settings, *few_and_test(settings), run.progress)

    return evaluate_once(
        run,
        "evaluate ner",
        settings,
        inputs=inputs,
        models={"model": model_revision(settings.model)},
        compute=compute,
        table=ner_table,
    )


def sources_of(settings: EvaluateNerSettings) -> dict[str, str | Place]:
    """The sources of training sentences, one for all splits or one for each, and of test sentences."""
    if settings.train:
        return {"train": settings.train, "test": settings.data}
    folder = place(settings.data)
    names = [f"few_shot_{settings.shots}_{number}.words" for number in settings.splits]
    files = [folder / name for name in [*names, "test.words"]]
    with reaching(folder, InputError):
        lacking = [file for file in files if not is_folder(folder) or size_of(file) is None]
    if lacking:
        raise InputError(
            f"{lacking[0]} does not exist; give tagged sentences to learn from as --train, or a folder with "
            f"few_shot_{settings.shots}_N.words and .ner for each of --splits, and test.words and .ner"
        )
    names = [*(f"split {number}" for number in settings.splits), "test"]
    return dict(zip(names, files, strict=True))


def few_and_test(
    settings: EvaluateNerSettings,
) -> tuple[list[list[TaggedSentence]], list[TaggedSentence]]:
    """The training sentences of each split, and the test sentences."""
    *few, test = sources_of(settings).values()
    splits = [read_tagged(source) for source in few]
    if settings.whole:
        splits *= len(settings.splits)
    elif settings.train:
        splits = [drawn(splits[0], settings.shots, seed) for seed in settings.splits]
    return splits, read_tagged(test)


def drawn(sentences: Sequence[TaggedSentence], shots: int, seed: int) -> list[TaggedSentence]:
    """For each entity type the first ``shots`` shuffled sentences with it that no earlier type has taken."""
    order = np.random.default_rng(seed).permutation(len(sentences)).tolist()
    types = [{tag[2:] for tag in sentence.tags if tag != "O"} for sentence in sentences]
    places: list[int] = []
    for name in sorted(set().union(*types)):
        some = [place for place in order if name in types[place] and place not in places][:shots]
        if len(some) < shots:
            raise InputError(
                f"--train has {len(some)} sentences with the type {name} that no other type has taken, but "
                f"{shots} are needed; give more, or fewer --shots"
            )
        places += some
    if not places:
        raise InputError("--train has no sentence with an entity; give other sentences")
    return [sentences[place] for place in places]


def _compute(
    settings: EvaluateNerSettings,
    splits: Sequence[Sequence[TaggedSentence]],
    test: Sequence[TaggedSentence],
    progress: Progress,
) -> Evaluated:
    from pairsmith.steps.evaluate.tagging import tag_after_training

    by_type = questions_of(settings, [*(sentence for split in splits for sentence in split), *test])
    gold = [list(sentence.tags) for sentence in test]
    figures: dict[str, Any] = {}
    shown: list[list[str]] = []
    passes = sum(settings.epochs * len(split) + len(test) for split in splits)
    with progress.task("learn and tag", len(settings.start) * passes, "sentences") as bar:
        for start in settings.start:
            by_split = {}
            for number, split in zip(settings.splits, splits, strict=True):
                questions = by_type if start == "questions" else None
                tags = tag_after_training(settings, split, test, questions, seed=number, advance=bar.advance)
                by_split[number] = entity_f1(gold, tags)
                shown = tags if number == settings.splits[0] else shown
            figures[start] = over_splits(by_split)
    return figures | {"count": len(test)}, [
        {"words": list(sentence.words), "tags": list(sentence.tags), "predicted": tags}
        for sentence, tags in zip(test, shown, strict=True)
    ]


def questions_of(settings: EvaluateNerSettings, sentences: Sequence[TaggedSentence]) -> dict[str, str]:
    """The question for each entity type that occurs, and for O."""
    known: dict[str, Any] = {_type(name): question for name, question in QUESTIONS.items()}
    if settings.questions:
        given = read_yaml(Path(settings.questions), SettingsError)
        if given.duplicates:
            raise SettingsError(given.report([]))
        if not all(isinstance(question, str) for question in given.data.values()):
            raise SettingsError(f"{settings.questions}: expected a question for each type, as text")
        known |= {_type(str(name)): question for name, question in given.data.items()}
    types = sorted({tag[2:] for sentence in sentences for tag in sentence.tags if tag != "O"})
    questions = {"O": known["o"]}
    for name in types:
        question = known.get(_type(name)) or known.get(_OTHER_NAMES.get(_type(name), ""))
        if question is None and "questions" in settings.start:
            where = settings.questions or "--questions FILE"
            raise SettingsError(
                f"no question for the type {name!r}; write one in {where}; {choices(name, known)}"
            )
        questions[name] = question or ""
    return questions


def _type(name: str) -> str:
    """An entity type's name, normalised for look-up."""
    return name.casefold().replace("-", "_")


def entity_f1(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> float:
    """Entity F1 ×100 by ``seqeval``: an entity is correct if its words and its type are."""
    try:
        from seqeval.metrics import f1_score
    except ImportError:
        raise MissingExtra("seqeval", "eval") from None
    lists = ([list(sentence_tags) for sentence_tags in tags] for tags in (gold, predicted))
    return 100.0 * float(f1_score(*lists, zero_division=0))


def ner_table(results: Mapping[str, Any]) -> str:
    """The figures of ``results.json`` as a plain table."""
    lines = [f"{results['count']:,} sentences", f"{'start':<12}{'entity F1 ×100':<18}of each split"]
    for name in ("random", "questions"):
        if name in results:
            figures = results[name]
            lines.append(mean_line(name, figures["f1"], figures["error"], figures["splits"].values()))
    return "\n".join(lines)
