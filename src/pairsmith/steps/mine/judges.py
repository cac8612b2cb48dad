"""What scores pairs in the step ``filter``: a cross-encoder (M6), a sentence encoder, or a language model."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.errors import InputError
from pairsmith.metrics.similarity import cosine_similarity_rows
from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs
from pairsmith.models.encode import Side, encode_texts, not_finite
from pairsmith.runs import DatasetFolder
from pairsmith.runs.folder import TrainingRows
from pairsmith.runs.work import Advance
from pairsmith.steps.mine.settings import FilterSettings
from pairsmith.steps.shared import load_options

Judge = Callable[[pa.Table, Advance], NDArray[np.float32]]
"""Gives n pairs their scores, ``(n,)`` float32, the higher the better, and reports progress."""


def cue_for(task: str) -> str:
    """The cue between two texts that a language model judges, as it often stands before such a text.

    ``task`` is that of the pairs' folder. Behind "TL;DR:" SmolLM2 finds a news text's own summary far oftener
    the likeliest than behind "Summary:" or an empty line.
    """
    return "\nTL;DR: " if task == "summarization" else "\n\n"


def text_columns(names: Sequence[str], source: DatasetFolder, settings: FilterSettings) -> tuple[str, ...]:
    """Of the columns of pairs those that the judge reads; the first two are the texts of each pair."""
    for columns in (("input", "output"), ("sentence1", "sentence2")):
        if not set(columns) <= set(names):
            continue
        passages = ("context", "answers")
        asked = settings.judge == "likelihood" and set(passages) <= set(names)
        return (*columns, *passages) if asked else columns
    raise InputError(
        f"{source.path}: needs pairs with the columns input and output, or sentence1 and sentence2; "
        f"found {', '.join(names)}"
    )


def refuse_unreadable(pairs: TrainingRows, columns: Sequence[str], settings: FilterSettings) -> None:
    """Refuse rows without what the judge reads, before anything is computed; encoders read no blank text."""
    for column in columns:
        values = (value for table in pairs.batches([column]) for value in table[column].to_pylist())
        if column == "answers":
            missing, what = sum(not (each and each["text"]) for each in values), "have no answer"
        elif settings.judge == "encoder":
            missing = sum(not (text or "").strip() for text in values)
            what = f"have a blank {column}, which has no vector"
        else:
            missing, what = sum(text is None for text in values), f"have no {column}"
        if missing:
            raise InputError(f"{settings.pairs}: {missing} of {len(pairs)} rows {what}; drop them first")


def load_judge(settings: FilterSettings, model: str | None = None, *, untrained: bool = False) -> Judge:
    """Load what scores pairs; for a plan, ``model`` in its place, with a new head if ``untrained``."""
    model = model or settings.model
    assert model is not None  # a judge that loads nothing is not loaded
    if settings.judge == "encoder":
        return _by_cosine(model, settings)
    if settings.judge == "likelihood":
        return _by_likelihood(model, settings)
    cross = load_cross_encoder(model, fresh_head=untrained, **load_options(settings))

    def scores(pairs: pa.Table, advance: Advance) -> NDArray[np.float32]:
        first, second = _texts(pairs)
        return score_pairs(cross, first, second, batch_tokens=settings.batch_tokens, advance=advance)

    return scores


def _by_cosine(model: str, settings: FilterSettings) -> Judge:
    """Cosines of the two texts' vectors.

    An encoder that distinguishes queries and documents encodes the columns input and output as ``mine`` does,
    and two sentences alike.
    """
    from pairsmith.models.sentence_encoder import load_sentence_encoder  # imported here, as it takes seconds

    encoder = load_sentence_encoder(model, **load_options(settings))

    def cosines(pairs: pa.Table, advance: Advance) -> NDArray[np.float32]:
        mined = "input" in pairs.column_names
        sides: tuple[Side | None, Side | None] = ("query", "document") if mined else (None, None)
        first, second = (
            encode_texts(encoder, texts, side=side, batch_tokens=settings.batch_tokens)
            for texts, side in zip(_texts(pairs), sides, strict=True)
        )
        if not (np.isfinite(first).all() and np.isfinite(second).all()):
            raise not_finite(f"model {model}: gives vectors")
        advance(pairs.num_rows)
        return cosine_similarity_rows(first, second).astype(np.float32)

    return cosines


def _by_likelihood(model: str, settings: FilterSettings) -> Judge:
    """How much likelier the second text is after the first, or how well question, answer and passage fit."""
    from pairsmith.models.language.likelihood import (
        likelihood_ratios,
        load_likelihood_judge,
        question_likelihoods,
    )

    judge = load_likelihood_judge(model, **load_options(settings))

    def scores(pairs: pa.Table, advance: Advance) -> NDArray[np.float32]:
        first, second = _texts(pairs)
        if {"answers", "context"} <= set(pairs.column_names):
            answers = [each["text"][0] for each in pairs["answers"].to_pylist()]
            return question_likelihoods(
                judge,
                first,
                answers,
                pairs["context"].to_pylist(),
                batch_tokens=settings.batch_tokens,
                advance=advance,
            )
        cue = settings.cue or cue_for("")
        return likelihood_ratios(
            judge, first, second, cue=cue, batch_tokens=settings.batch_tokens, advance=advance
        )

    return scores


def _texts(pairs: pa.Table) -> tuple[list[str], list[str]]:
    names = ("input", "output") if "input" in pairs.column_names else ("sentence1", "sentence2")
    first, second = (pairs[name].to_pylist() for name in names)
    return first, second
