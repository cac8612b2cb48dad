"""The step ``relabel``: a teacher answers questions (Q3).

questions on passages -> the teacher's distributions over starts and ends, the 8 likeliest of each ->
questions whose answer is likely enough and agrees with the generated answer, if the settings say so -> rows
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain

import pyarrow as pa

from pairsmith.core.citations import QUIP
from pairsmith.core.errors import InputError
from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.data.filters import AGREEMENT, NO_ANSWER, UNCERTAIN
from pairsmith.data.kept_columns import kept_names, kept_schema, refuse_missing_columns
from pairsmith.data.questions import RELABELLED, GeneratedQuestion, read_generated_questions, say_left_out
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.data.splits import to_train_on
from pairsmith.data.squad import open_questions
from pairsmith.methods.quip.method import add_labels, label_questions
from pairsmith.metrics.squad import exact_match, f1
from pairsmith.models.heads import require_reader
from pairsmith.models.reader import load_reader
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
from pairsmith.steps.planning import evenly_spaced, read_first, sharded_estimate, timed
from pairsmith.steps.questions.settings import AskSettings, RelabelSettings
from pairsmith.steps.shared import hashes, load_options, refuse_sources

_TRIED = 64
"""Number of questions that the teacher answers in a plan, of the first ``_READ`` of each source."""
_READ = 2_000


def relabel(settings: RelabelSettings, run: Run) -> DatasetFolder:
    """Have a teacher answer questions; see ``RelabelSettings`` for the settings.

    If a folder has several splits, ``train`` is read unless another one is named. Rows keep their order.
    Questions that are left out (see ``fault_of``) become rejects.
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, data=settings.data, model=settings.model)
    data = [to_train_on(source, "answered", run.progress.say) for source in settings.data]
    settings = settings.model_copy(update={"data": data})
    refuse_missing_columns(("--keep-column", settings.data, settings.keep_column), opened=open_questions)
    count = sum(1 for _ in questions(settings))
    if not count:
        raise InputError(f"{', '.join(settings.data)}: there are no questions to answer")
    say_left_out(settings.data, run.progress.say)
    shard_size = shard_size_of(settings, run, count)
    settings = settings.model_copy(update={"shard_size": shard_size})
    sizes = equal_shards(count, shard_size)
    revision = model_revision(settings.model)
    require_reader(settings.model)
    writer = FolderWriter.start(
        run,
        Identity.of("relabel", settings.deciding(), hashes("data", settings.data), {"model": revision}),
        kept_schema(RELABELLED, kept(settings)),
        planned=len(sizes),
    )
    if writer.finished:
        return nothing_to_do(writer)
    commit_each(
        writer,
        Shards(partial(record_shards, partial(questions, settings), shard_size), sizes, "questions"),
        partial(_load_teacher, settings, revision),
        ExecutorChoice.of(settings),
        title="answer",
        model=settings.model,
    )
    return finished(writer, _card(settings))


def questions(settings: RelabelSettings) -> Iterator[GeneratedQuestion]:
    """Yield all questions of the data."""
    return chain.from_iterable([read_generated_questions(source, kept(settings)) for source in settings.data])


def kept(settings: AskSettings | RelabelSettings) -> dict[str, str]:
    """The columns to keep: column -> its name in the rows, which no column of ``relabel`` has."""
    return kept_names(settings.keep_column, RELABELLED.names)


def _load_teacher(
    settings: RelabelSettings, revision: str, worker: int
) -> Work[RecordShard[GeneratedQuestion], RowsAndRejects]:
    """Load the teacher; returns the function that makes the rows and rejects of a shard of questions."""
    check_revision(settings.model, revision, worker)
    teacher = load_reader(settings.model, **load_options(settings))

    def answer(shard: RecordShard[GeneratedQuestion], advance: Advance) -> RowsAndRejects:
        labelled = add_labels(
            shard.records,
            teacher,
            top=settings.top,
            max_answer_tokens=settings.max_answer_tokens,
            batch_tokens=settings.batch_tokens,
            advance=advance,
        )
        faults = [fault_of(question, settings) for question in labelled]
        rejects = [
            Reject.of(question.id, *fault, question.columns())
            for question, fault in zip(labelled, faults, strict=True)
            if fault
        ]
        good = [question for question, fault in zip(labelled, faults, strict=True) if not fault]
        return relabelled_rows(good, settings), to_table(rejects, REJECT)

    return answer


def fault_of(question: GeneratedQuestion, settings: RelabelSettings) -> tuple[str, str] | None:
    """The filter and the reason of the reject, if a labelled question is left out; None if it is kept."""
    if question.answer is None:
        return NO_ANSWER, "the passage has no tokens"
    if (question.confidence or 0.0) < settings.least_confidence:
        return UNCERTAIN, f"the teacher's answer has a probability below {settings.least_confidence:g}"
    generated = [question.generated_answer]
    if (
        not exact_match(question.answer_text, generated)
        and f1(question.answer_text, generated) < settings.agreement
    ):
        return (
            AGREEMENT,
            f"the teacher's answer has a word F1 below {settings.agreement:g} with the written one",
        )
    return None


def relabelled_rows(labelled: Sequence[GeneratedQuestion], settings: RelabelSettings) -> pa.Table:
    """The rows of labelled questions, as ``RELABELLED`` with the columns to keep."""
    rows = [question.columns() for question in labelled]
    return pa.Table.from_pylist(rows, schema=kept_schema(RELABELLED, kept(settings)))


def plan_relabel(settings: RelabelSettings, before: Before) -> Estimate:
    """Estimate ``relabel``: answer a sample of the questions."""
    refuse_missing_columns(("--keep-column", settings.data, settings.keep_column), opened=open_questions)

    def read(source: str) -> Iterator[GeneratedQuestion]:
        return read_generated_questions(to_train_on(source, "answered"), kept(settings))

    def load() -> Callable[[Sequence[GeneratedQuestion]], list[GeneratedQuestion]]:
        fresh_head = settings.model in before
        teacher = load_reader(
            settings.model, fresh_head=fresh_head, perceptrons=True, **load_options(settings)
        )
        return partial(label_questions, teacher=teacher, top=settings.top, batch_tokens=settings.batch_tokens)

    first, count = read_first(settings.data, read, before, _READ)
    if not first:
        raise InputError(f"{', '.join(settings.data)}: there are no questions to answer")
    loading, per_question, labelled = timed(load, evenly_spaced(first, _TRIED))
    sample = relabelled_rows([question for question in labelled if question.answer], settings)
    shards = -(-count // (settings.shard_size or settings.shard_bounds.pick(count)))
    return sharded_estimate(sample, count, shards, loading=loading, shared=per_question * count)


def _card(settings: RelabelSettings) -> Card:
    return Card(
        title="Questions answered by a teacher",
        description=(
            "Questions about passages, with answers by a model for question answering, "
            f"`{model_display_name(settings.model)}` (the teacher), and its probabilities of where an answer "
            "starts and ends."
        ),
        columns={
            "written": "the answer as it was written with the question",
            "answers": "the answer that the teacher finds likeliest, and the character at which it starts",
            "confidence": "the teacher's probability of its answer, from 0 to 1",
            "written_answers": "where the written answer occurs in the passage, if it does",
            "starts": "the likeliest characters at which the answer starts, from 0, and their probabilities",
            "ends": "the likeliest positions just after the answer's last character, and their probabilities",
        },
        kept={name: f"the column {column} of the data" for column, name in kept(settings).items()},
        provenance="The answers were found by a program; no person has checked them.",
        tags=synthetic_tag(*settings.data),
        citations=(QUIP,),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=settings.data),
    )
