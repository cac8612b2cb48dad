"""Judges, which score pairs of texts: a cross-encoder (M6), an encoder or a language model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from pairsmith.core.arrays import Float32s
from pairsmith.core.bundled import TINY
from pairsmith.core.errors import InputError, counted
from pairsmith.core.progress import Progress
from pairsmith.data.examples import ExampleKind, read_examples
from pairsmith.data.schemas import rows_at
from pairsmith.data.text import count_words
from pairsmith.methods.mining.sampled_negatives import in_window
from pairsmith.methods.mining.seed_classifier import SeedClassifier
from pairsmith.metrics.similarity import cosine_similarity_rows
from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs
from pairsmith.models.encode import Side, encode_texts, not_finite
from pairsmith.runs import DatasetFolder
from pairsmith.runs.estimate import Before
from pairsmith.runs.folder import TrainingRows
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance
from pairsmith.steps.corpora.options import JudgeOptions
from pairsmith.steps.planning import timed
from pairsmith.steps.shared import load_options

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

LEARNED_FROM = 2_000
"""Largest number of mined pairs that the classifier of the judge likeness is trained on."""
LEAST_SCORE = 0.7
"""Seeds with a lower score are not used as positives of the judge likeness."""

Judge = Callable[[pa.Table, Advance], Float32s]
"""A function that returns the scores of n pairs, ``(n,)`` float32, the higher the better."""

ROUNDED_ROOM: dict[str, JSON] = {"room": "in eighths"}
"""How a likelihood judge truncates texts, recorded with saved scores, which depend on it.

The room that a truncated text leaves for the other text is rounded up to eighths of ``max_length``.
"""


JudgeExamples = tuple[pa.Table, pa.Table]
"""The training data of the judge likeness: seeds (positives) and mined pairs (negatives)."""


def likelihood_record(cue: str | None) -> dict[str, JSON]:
    """The options that decide a likelihood judge's scores, to be recorded with saved scores.

    ``cue`` is None if the judge reads questions with passages.
    """
    return {"cue": cue, **(ROUNDED_ROOM if cue else {"room": "in eighths, behind the passage"})}


def cue_for(task: str) -> str:
    """The text that a likelihood judge inserts between the two texts of a pair.

    ``task`` is the task of the pairs' folder. For summaries it is "TL;DR:": after this, SmolLM2 ranks a news
    text's own summary first far more often than after "Summary:" or an empty line.
    """
    return "\nTL;DR: " if task == "summarization" else "\n\n"


def warn_of_equal_scores(scores: Float32s, unit: str, say: Callable[[str], None]) -> None:
    """Warn if a judge gives all pairs the same score.

    ``scores`` are ``(n,)``, ``unit`` is the plural of what was scored, and ``say`` prints the warning.
    """
    if len(scores) > 1 and scores.min() == scores.max():
        say(
            f"the judge gives all {len(scores):,} {unit} the same score, so which of them are kept means "
            "nothing; it may be untrained, or trained on too little"
        )


def text_columns(names: Sequence[str], source: DatasetFolder, judge: str) -> tuple[str, ...]:
    """The columns of pairs that the judge reads; the first two contain the texts of each pair.

    ``names`` are all columns of the pairs, and ``source`` is their folder.
    """
    for columns in (("input", "output"), ("sentence1", "sentence2")):
        if not set(columns) <= set(names):
            continue
        passages = ("context", "answers")
        reads_passages = judge == "likelihood" and set(passages) <= set(names)
        return (*columns, *passages) if reads_passages else columns
    raise InputError(
        f"{source.path}: needs pairs with the columns input and output, or sentence1 and sentence2; "
        f"found {', '.join(names)}"
    )


def refuse_unreadable(pairs: TrainingRows, columns: Sequence[str], judge: str) -> None:
    """Refuse pairs of which the judge cannot read a row, before anything is computed.

    A row needs a value in each of ``columns``; for encoders, the texts must not be blank.
    """
    for column in columns:
        values = (value for table in pairs.batches([column]) for value in table[column].to_pylist())
        if column == "answers":
            missing = sum(not (answer and answer["text"]) or answer["text"][0] is None for answer in values)
            what = "have no answer"
        elif judge in ("encoder", "likeness"):
            missing = sum(not (text or "").strip() for text in values)
            what = f"have a blank {column}, which has no vector"
        else:
            missing, what = sum(text is None for text in values), f"have no {column}"
        if missing:
            raise InputError(f"{pairs.source}: {missing} of {len(pairs)} rows {what}; drop them first")


def load_judge(
    options: JudgeOptions, *, untrained: bool = False, examples: JudgeExamples | None = None
) -> Judge:
    """Load the judge.

    Args:
        options: the kind of judge, its model, and how it computes.
        untrained: whether a cross-encoder without a trained head gets a new one, for a plan.
        examples: the training data of the judge likeness. Without them, as in a plan, this judge returns
            cosines, which take as long.
    """
    match options.judge:  # mypy reports a name without a case
        case "encoder" | "likeness":
            return _by_vectors(options, examples)
        case "likelihood":
            return _by_likelihood(options)
        case "cross-encoder":
            return _by_cross_encoder(options, untrained)


def _by_cross_encoder(options: JudgeOptions, untrained: bool) -> Judge:
    """The judge by a cross-encoder's unnormalised scores (M6); ``untrained`` is as for ``load_judge``."""
    cross = load_cross_encoder(options.model, fresh_head=untrained, **load_options(options))

    def scores(pairs: pa.Table, advance: Advance) -> Float32s:
        first, second = _texts(pairs)
        return score_pairs(cross, first, second, batch_tokens=options.batch_tokens, advance=advance)

    return scores


def timed_judge(options: JudgeOptions, before: Before, pairs: pa.Table) -> tuple[float, float]:
    """The time to load the judge, and the time per pair, in seconds.

    A model that an earlier step (``before``) will train gets a new head. A language model that will be
    trained is replaced by the bundled one, as its base may be an encoder.
    """
    untrained = options.model in before
    if untrained and options.judge == "likelihood":
        options = replace(options, model=TINY)

    def load() -> Callable[[Sequence[int]], object]:
        judge = load_judge(options, untrained=untrained)
        return lambda numbers: judge(pairs.take(numbers), lambda _: None)

    loading, per_pair, _ = timed(load, list(range(pairs.num_rows)))
    return loading, per_pair


def _by_vectors(options: JudgeOptions, examples: JudgeExamples | None) -> Judge:
    """The judge by vectors: the cosine of the two texts or, with ``examples``, the likeness to the seeds."""
    from pairsmith.models.sentence_encoder import load_sentence_encoder  # a slow import, only needed here

    encoder = load_sentence_encoder(options.model, **load_options(options))
    classifier = None
    if examples:
        classifier = SeedClassifier.learn(*(_vectors(encoder, pairs, options) for pairs in examples))

    def scores(pairs: pa.Table, advance: Advance) -> Float32s:
        first, second = _vectors(encoder, pairs, options)
        advance(pairs.num_rows)
        if classifier:
            return classifier.log_odds(first, second)
        return cosine_similarity_rows(first, second).astype(np.float32)

    return scores


def _vectors(
    encoder: "SentenceTransformer", pairs: pa.Table, options: JudgeOptions
) -> tuple[Float32s, Float32s]:
    """The vectors of the first and of the second texts of n pairs, ``(n, d)`` float32 each.

    If the encoder distinguishes queries and documents, inputs are encoded as queries and outputs as
    documents, as in ``mine``; the two sentences of other pairs are encoded alike.
    """
    mined = "input" in pairs.column_names
    sides: tuple[Side | None, Side | None] = ("query", "document") if mined else (None, None)

    def of(texts: Sequence[str], side: Side | None) -> Float32s:
        distinct = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        vectors = encode_texts(encoder, list(distinct), side=side, batch_tokens=options.batch_tokens)
        if not np.isfinite(vectors).all():
            raise not_finite(f"model {options.model}: gives vectors")
        return vectors[[distinct[text] for text in texts]]

    first, second = map(of, _texts(pairs), sides)
    return first, second


def judge_examples(pairs: pa.Table, task: str, source: str, progress: Progress) -> JudgeExamples:
    """The training data of the judge likeness: the seeds in ``source``, and evenly spaced pairs.

    ``task`` is the task of the pairs' folder. The passages of seeds are cut to windows as long as the longest
    one of the mined pairs; else the classifier would learn to tell whole passages from windows.
    """
    kind: ExampleKind = "summaries" if task == "summarization" else "pairs"
    if {"context", "answers"} <= set(pairs.column_names):
        kind = "reading"
    labelled = read_examples(source, kind)
    seeds = [seed for seed in labelled if seed.score >= LEAST_SCORE]
    if len(seeds) < 2 or pairs.num_rows < 2:
        raise InputError(
            f"--judge likeness needs at least two seeds and two pairs; {source} has {len(seeds)} with a "
            f"score of {LEAST_SCORE:g} or more, and there are {pairs.num_rows} pairs"
        )
    if len(seeds) < len(labelled):
        progress.say(
            f"{len(labelled) - len(seeds):,} of {len(labelled):,} seeds are scored below {LEAST_SCORE:g}, so "
            "they are left out"
        )
    places = np.unique(np.linspace(0, pairs.num_rows - 1, LEARNED_FROM).astype(np.int64))
    mined = rows_at(pairs, places)
    if kind == "reading":
        longest = max(map(count_words, mined["context"].to_pylist()))
        seeds = [in_window(seed, longest) for seed in seeds]
    texts = ([seed.input for seed in seeds], [seed.output for seed in seeds])
    progress.say(
        f"a classifier is trained to tell {counted(len(seeds), 'seeds')} from {mined.num_rows:,} of the pairs"
    )
    return pa.table(dict(zip(text_names(pairs), texts, strict=True))), mined


def _by_likelihood(options: JudgeOptions) -> Judge:
    """The judge by likelihoods of a language model.

    For pairs with the columns context and answers, the score is that of ``question_likelihoods``: how well
    question, answer and passage fit. For other pairs it is the likelihood ratio of the second text with and
    without the first.
    """
    from pairsmith.models.language.likelihood import (
        likelihood_ratios,
        load_likelihood_judge,
        question_likelihoods,
    )

    judge = load_likelihood_judge(options.model, **load_options(options))

    def scores(pairs: pa.Table, advance: Advance) -> Float32s:
        first, second = _texts(pairs)
        if {"answers", "context"} <= set(pairs.column_names):
            answers = [answer["text"][0] for answer in pairs["answers"].to_pylist()]
            return question_likelihoods(
                judge,
                first,
                answers,
                pairs["context"].to_pylist(),
                batch_tokens=options.batch_tokens,
                advance=advance,
            )
        cue = options.cue or cue_for("")
        return likelihood_ratios(
            judge, first, second, cue=cue, batch_tokens=options.batch_tokens, advance=advance
        )

    return scores


def text_names(pairs: pa.Table) -> tuple[str, str]:
    """The names of the two columns that contain the texts of each pair."""
    return ("input", "output") if "input" in pairs.column_names else ("sentence1", "sentence2")


def _texts(pairs: pa.Table) -> tuple[list[str], list[str]]:
    first, second = (pairs[name].to_pylist() for name in text_names(pairs))
    return first, second
