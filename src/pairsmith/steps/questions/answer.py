"""The step ``answer``: questions on passages -> a reader or a student (Q7) -> the answer to each question."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.data.filters import EMPTY, NO_ANSWER
from pairsmith.data.kept_columns import kept_names, kept_schema
from pairsmith.data.questions import ANSWERED, RELABELLED
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.data.squad import QuestionRow, read_question_rows
from pairsmith.models.question_answering import (
    QuestionAnswerer,
    load_question_answerer,
    require_question_answerer,
)
from pairsmith.models.reader import Prediction
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    model_display_name,
    resolve_dtype,
    sources_of,
    synthetic_tag,
)
from pairsmith.runs.begun import shard_size_of
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import (
    RecordShard,
    RowsAndRejects,
    Shards,
    commit_each,
    equal_shards,
    finished,
    nothing_to_do,
    record_shards,
)
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.planning import head_and_count, sharded_estimate, timed
from pairsmith.steps.questions.settings import AnswerSettings
from pairsmith.steps.shared import hashes, load_options, named, refuse_sources

_TRIED = 64
"""Number of questions that the model answers in a plan."""
_RESERVED = (*ANSWERED.names, *(column.name for column in RELABELLED if pa.types.is_nested(column.type)))
"""Names that no kept column has. Kept columns are text, but steps read lists from those of ``RELABELLED``."""


def answer(settings: AnswerSettings, run: Run) -> DatasetFolder:
    """Answer questions on passages; see ``AnswerSettings``.

    The column ``answer`` is the likeliest span of the passage, ``answer_start`` its position, and
    ``confidence`` its probability. Rows keep the order, the ids and the other columns of the source; a
    question without an id gets one as by ``read_questions``. Questions that are blank, or whose passage is
    blank or has no tokens, become rejects.
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, data=settings.data, model=settings.model)
    read = partial(read_question_rows, settings.data)
    count, other_columns = 0, dict[str, None]()
    for row in read():
        count += 1
        other_columns |= dict.fromkeys(row.others)
    names = kept_names(other_columns, _RESERVED)
    shard_size = shard_size_of(settings, run, count)
    settings = settings.model_copy(update={"shard_size": shard_size})
    sizes = equal_shards(count, shard_size)
    revision = model_revision(settings.model)
    require_question_answerer(settings.model)
    writer = FolderWriter.start(
        run,
        Identity.of("answer", settings.deciding(), hashes("data", settings.data), {"model": revision}),
        kept_schema(ANSWERED, names),
        planned=len(sizes),
    )
    if writer.finished:
        return nothing_to_do(writer)
    commit_each(
        writer,
        Shards(partial(record_shards, read, shard_size), sizes, "questions"),
        partial(_load_worker, settings, revision, names),
        ExecutorChoice.of(settings),
        title="answer",
        model=settings.model,
    )
    return finished(writer, _card(settings, names))


def _load_worker(
    settings: AnswerSettings, revision: str, names: Mapping[str, str], worker: int
) -> Work[RecordShard[QuestionRow], RowsAndRejects]:
    """Load the model, and return the function that makes the rows and rejects of a shard of questions."""
    check_revision(settings.model, revision, worker)
    answer_questions = load_question_answerer(
        settings.model, batch_size=settings.batch_size, **load_options(settings)
    )

    def work(shard: RecordShard[QuestionRow], advance: Advance) -> RowsAndRejects:
        questions = [row for row in shard.records if not row.blank]
        advance(len(shard.records) - len(questions))
        answered = _answered(answer_questions, settings, questions, advance)
        rejects = [
            Reject.of(row.id, EMPTY, f"the {row.blank} is blank", _columns(row, names))
            for row in shard.records
            if row.blank
        ]
        rejects += [
            Reject.of(row.id, NO_ANSWER, "the passage has no tokens", _columns(row, names))
            for row, prediction in answered
            if not prediction.text
        ]
        return _table(answered, names), to_table(rejects, REJECT)

    return work


def _answered(
    answer_questions: QuestionAnswerer,
    settings: AnswerSettings,
    questions: Sequence[QuestionRow],
    advance: Advance = lambda _: None,
) -> list[tuple[QuestionRow, Prediction]]:
    """Answer questions; each is returned with its answer, whose text is empty if there is none."""
    with named(settings.model):
        predictions = answer_questions(
            [row.question for row in questions],
            [row.context for row in questions],
            max_answer_tokens=settings.max_answer_tokens,
            advance=advance,
        )
    return list(zip(questions, predictions, strict=True))


def _table(answered: Sequence[tuple[QuestionRow, Prediction]], names: Mapping[str, str]) -> pa.Table:
    """The rows of the questions that have an answer."""
    rows = [
        {
            **_columns(row, names),
            "answer": prediction.text,
            "answer_start": prediction.start,
            # Four significant digits, as more would depend on the batch; four decimals could be all zero.
            "confidence": float(f"{prediction.score:.4g}"),
        }
        for row, prediction in answered
        if prediction.text
    ]
    return pa.Table.from_pylist(rows, schema=kept_schema(ANSWERED, names))


def _columns(row: QuestionRow, names: Mapping[str, str]) -> dict[str, Any]:
    """The columns that a question has before it is answered."""
    others = {names[name]: value for name, value in row.others.items()}
    return {"id": row.id, "context": row.context, "question": row.question, **others}


def plan_answer(settings: AnswerSettings, before: Before) -> Estimate:
    """Answer the first questions, and extrapolate; all questions are assumed to have an answer."""
    rows = (row for row in read_question_rows(settings.data) if not row.blank)
    # Consecutive questions, as a student encodes a passage once for all questions on it.
    questions, count = head_and_count(rows, settings.data, before, _TRIED)

    def load() -> Callable[[Sequence[QuestionRow]], list[tuple[QuestionRow, Prediction]]]:
        answer_questions = load_question_answerer(
            settings.model,
            batch_size=settings.batch_size,
            fresh_head=settings.model in before,
            **load_options(settings),
        )
        return partial(_answered, answer_questions, settings)

    loading, per_question, answered = timed(load, questions)
    sample = _table(answered, kept_names((name for row in questions for name in row.others), _RESERVED))
    shards = -(-count // (settings.shard_size or settings.shard_bounds.pick(count)))
    return sharded_estimate(sample, count, shards, loading=loading, shared=per_question * count)


def _card(settings: AnswerSettings, names: Mapping[str, str]) -> Card:
    return Card(
        title="Questions with their answers",
        description=(
            "Questions on passages, each with its likeliest answer by "
            f"`{model_display_name(settings.model)}`: a span of the passage, also if the passage does not "
            "answer the question."
        ),
        columns={
            "answer": "the answer, as it stands in the passage",
            "answer_start": "the character of the passage at which the answer starts, from 0",
            "confidence": "the model's probability of the answer, from 0 to 1: that of its start times that "
            "of its end, among all tokens of the passage",
        },
        kept={kept: f"the column {name} of the source" for name, kept in names.items()},
        provenance="The answers were found by a program; no person has checked them.",
        tags=synthetic_tag(settings.data),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=[settings.data]),
        task="question-answering",
    )
