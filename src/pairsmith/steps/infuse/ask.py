"""The step ``ask``: generate questions on passages (Q1, Q2).

texts -> passages of whole sentences -> sampled answers with questions -> distinct questions -> rows
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain

import pyarrow as pa

from pairsmith.core.citations import QUIP
from pairsmith.core.errors import ModelError
from pairsmith.core.model_names import model_revision
from pairsmith.data.documents import Document, read_documents
from pairsmith.data.questions import ASKED
from pairsmith.data.schemas import REJECT, to_table
from pairsmith.data.text import finder_revision
from pairsmith.methods.quip.generators import load_question_generator
from pairsmith.methods.quip.options import CLOZE
from pairsmith.methods.quip.passages import QuestionGenerator, cut
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    hash_source,
    model_display_name,
    refuse_source,
    settled,
    sources_of,
)
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import Made, ProgressScaler, RecordShard, commit_records, completed
from pairsmith.runs.seeds import stream_key
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.infuse.kinds import asker_kind, unused
from pairsmith.steps.infuse.settings import AskSettings

"""Settings that affect where and how fast the step runs, not its result."""


def ask(settings: AskSettings, run: Run) -> DatasetFolder:
    """Generate questions on texts; see ``AskSettings``.

    Outputs that are not a new question with an answer become rejects, and so do passages that are too long.
    """
    settings = settled(settings, run)
    kind, models = asker_kind(settings), _models(settings)
    where = ExecutorChoice(settings.executor, settings.workers, settings.ray_address)
    for source in settings.inputs:
        refuse_source(run, inputs=source)
    if settings.model != CLOZE:
        refuse_source(run, model=settings.model)
    count = sum(1 for _ in texts(settings))
    twice = sum(1 for _ in _every(settings)) - count
    if twice:
        run.progress.say(f"{twice:,} repeated texts left out; questions are generated once for each text")
    # In 16-bit formats the batch size changes rounding, and with it the generated text.
    batch = {"batch_size"} if settings.dtype == "float32" or kind == "cloze" else set()
    left_out = {*batch, *unused(settings, kind)}
    writer = FolderWriter.start(
        run,
        step="ask",
        schema=ASKED,
        settings={name: value for name, value in settings.deciding().items() if name not in left_out},
        inputs={
            f"inputs {number}": hash_source(text) for number, text in enumerate(settings.inputs, start=1)
        },
        models=models,
        planned=-(-count // settings.shard_size),
    )
    commit = partial(
        commit_records,
        writer,
        GeneratorLoader(settings, models),
        partial(texts, settings),
        count,
        settings.shard_size,
        where,
        run,
        title="ask",
        unit="texts",
    )
    return completed(writer, run, commit, _card(settings))


def texts(settings: AskSettings) -> Iterator[Document]:
    """The distinct texts, one at a time."""
    every = _every(settings)

    def distinct() -> Iterator[Document]:
        seen: set[int] = set()
        for document in every:
            key = stream_key(document.document)
            if key not in seen:
                seen.add(key)
                yield document

    return distinct()


def _every(settings: AskSettings) -> Iterator[Document]:
    return chain.from_iterable([read_documents(each, column=settings.column) for each in settings.inputs])


@dataclass(frozen=True, slots=True)
class GeneratorLoader:
    """Sets up a worker: loads the question generator once, then processes one shard after the other."""

    settings: AskSettings
    models: Mapping[str, str]

    def __call__(self, worker: int) -> Work[RecordShard[Document], Made]:
        """The function that a worker applies to each shard; it returns the shard's rows and rejects."""
        settings = self.settings
        if _models(settings) != self.models:
            raise ModelError(
                f"model {settings.model}: worker {worker} finds different weights under this name"
            )
        generator = load_generator(settings)

        def work(shard: RecordShard[Document], advance: Advance) -> Made:
            of_texts, lost = cut(generator, shard.records)
            passages = [each for some in of_texts for each in some]
            share = ProgressScaler(len(shard.records), len(passages) * settings.tries, advance)
            rejects = [*lost, *generator.generate(passages, share)]
            share.finish()
            rows = [row for some in of_texts for passage in some for row in passage.found.values()]
            return pa.Table.from_pylist(rows, schema=ASKED), to_table(rejects, REJECT)

        return work


def _models(settings: AskSettings) -> dict[str, str]:
    """The revisions that identify the question generator."""
    if settings.model == CLOZE:
        return {"model": CLOZE, **finder_revision(settings.answers)}
    return {"model": model_revision(settings.model)}


def load_generator(settings: AskSettings) -> QuestionGenerator:
    """Load the question generator, after a check that the settings suit its kind."""
    asker_kind(settings)
    return load_question_generator(
        settings.model, settings.options, device=settings.device, dtype=settings.dtype
    )


def _card(settings: AskSettings) -> Card:
    return Card(
        title="Questions about passages",
        description="Passages of whole sentences, and "
        + (
            "noisy questions made from their sentences by taking out a name or number."
            if settings.model == CLOZE
            else f"questions about them generated by {model_display_name(settings.model)}."
        ),
        columns={
            "context": "the passage",
            "written": "the answer, as it was written before the question",
            "answers": "where the answer occurs in the passage; empty if it does not",
        },
        made="The questions and answers were made by a program; no person has checked them.",
        citations=(QUIP,),
        licence="The rights in the passages apply.",
        sources=sources_of(models=[] if settings.model == CLOZE else [settings.model], data=settings.inputs),
    )
