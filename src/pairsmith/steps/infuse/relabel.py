"""The step ``relabel``: a teacher answers questions (Q3).

questions on passages -> the teacher's distributions over starts and ends, the top 8 of each -> rows
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

from pairsmith.core.citations import QUIP
from pairsmith.core.errors import InputError
from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.data.questions import RELABELLED, GeneratedQuestion, read_asked
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.data.splits import to_train_on
from pairsmith.models.reader import load_reader
from pairsmith.models.teacher import Places, SpanDistributions, predict_spans
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, model_display_name, settled, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import Made, RecordShard, commit_records, completed
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.infuse.settings import RelabelSettings
from pairsmith.steps.shared import hashes, load_options, refuse_sources


def relabel(settings: RelabelSettings, run: Run) -> DatasetFolder:
    """Have a teacher answer questions; see ``RelabelSettings``. Rows keep their order.

    Of a folder with several splits ``train`` is read, or the one that is named. Questions whose passage has
    no tokens, so that the teacher finds no answer, become rejects.
    """
    settings = settled(settings, run)
    where = ExecutorChoice(settings.executor, settings.workers, settings.ray_address)
    refuse_sources(run, data=settings.data, model=settings.model)
    data = [to_train_on(source, "answered", run.progress.say) for source in settings.data]
    settings = settings.model_copy(update={"data": data})
    count = sum(1 for _ in questions(settings))
    if not count:
        raise InputError(f"{', '.join(settings.data)}: there are no questions to answer")
    revision = model_revision(settings.model)
    writer = FolderWriter.start(
        run,
        step="relabel",
        schema=RELABELLED,
        settings=settings.deciding(),
        inputs=hashes("data", settings.data),
        models={"model": revision},
        planned=-(-count // settings.shard_size),
    )
    commit = partial(
        commit_records,
        writer,
        partial(_load_teacher, settings, revision),
        partial(questions, settings),
        count,
        settings.shard_size,
        where,
        run,
        title="answer",
        unit="questions",
    )
    return completed(writer, run, commit, _card(settings))


def questions(settings: RelabelSettings) -> Iterator[GeneratedQuestion]:
    """All questions, one at a time."""
    return chain.from_iterable([read_asked(source) for source in settings.data])


def _load_teacher(
    settings: RelabelSettings, revision: str, worker: int
) -> Work[RecordShard[GeneratedQuestion], Made]:
    """Load the teacher; what is returned answers the questions of a shard."""
    check_revision(settings.model, revision, worker)
    teacher = load_reader(settings.model, **load_options(settings))

    def answer(shard: RecordShard[GeneratedQuestion], advance: Advance) -> Made:
        told = predict_spans(
            teacher,
            [asked.question for asked in shard.records],
            [asked.context for asked in shard.records],
            top=settings.top,
            max_answer_tokens=settings.max_answer_tokens,
            batch_tokens=settings.batch_tokens,
            advance=advance,
        )
        return relabelled(shard.records, told)

    return answer


def relabelled(asked: tuple[GeneratedQuestion, ...], told: list[SpanDistributions]) -> Made:
    """Make rows of ``RELABELLED``; questions without an answer become rejects."""
    rows, rejects = [], []
    for question, said in zip(asked, told, strict=True):
        answers: dict[str, list[Any]] = {"text": [], "answer_start": []}
        if question.before is not None:  # the answer from before any teacher, where it occurs in the passage
            first, behind = question.before
            answers = {"text": [question.context[first:behind]], "answer_start": [first]}
        row: dict[str, Any] = {
            "id": question.id,
            "context": question.context,
            "question": question.question,
            "written": question.written,
            "answers": {"text": [said.best.text], "answer_start": [said.best.start]},
            "written_answers": answers,
            "starts": _distribution(said.starts),
            "ends": _distribution(said.ends),
        }
        if said.best.text:
            rows.append(row)
        else:
            rejects.append(Reject.of(question.id, "no answer", "the passage has no tokens", row))
    return pa.Table.from_pylist(rows, schema=RELABELLED), to_table(rejects, REJECT)


def _distribution(places: Places) -> dict[str, list[Any]]:
    return {"position": [place for place, _ in places], "probability": [share for _, share in places]}


def _card(settings: RelabelSettings) -> Card:
    return Card(
        title="Questions answered by a teacher",
        description=(
            f"Questions on passages; {model_display_name(settings.model)} says where their answers start and "
            "end."
        ),
        columns={
            "written": "the answer as it was written with the question",
            "answers": "the teacher's best answer",
            "written_answers": "where the written answer occurs in the passage, if it does",
            "starts": "character positions at which an answer begins, and the teacher's probability of each",
            "ends": "character positions just after an answer, and the teacher's probability of each",
        },
        made="The answers were found by a program; no person has checked them.",
        citations=(QUIP,),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=settings.data),
    )
