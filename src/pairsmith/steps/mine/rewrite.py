"""The step ``rewrite``: a model generates one side of mined pairs anew, for comparison with mining (Gen).

pairs -> answers in passages, or documents -> generated questions, or summaries -> rows
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pairsmith.core.citations import MINING
from pairsmith.core.errors import InputError
from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.data.examples import answer_in_passage
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.models.summarizer import load_summarizer, shortest_of, summarize
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
from pairsmith.runs.folder import open_training_rows
from pairsmith.runs.mapped import Made, RowShard, commit_rows, completed, shard_count
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.mine.settings import RewriteSettings

_NEEDED = {"reading": ("input", "context", "answers"), "summaries": ("input", "output")}
_SCORES = ("margin", "score")
"""Columns that score the original pair, and do not apply to the rewritten one."""

"""Settings that affect where and how fast the step runs, not its result."""


def rewrite(settings: RewriteSettings, run: Run) -> DatasetFolder:
    """Generate the questions or summaries of pairs anew; see ``RewriteSettings``. Rows keep their order.

    Of several splits ``train`` is read, or the one that is named.
    """
    settings = settled(settings, run)
    refuse_source(run, pairs=settings.pairs, model=settings.model)
    found = open_training_rows(settings.pairs, "rewritten", run.progress.say)
    source, pairs = found.folder, found.table.slice(0, settings.best)
    check_columns(pairs, settings)
    pairs = pairs.drop_columns([name for name in _SCORES if name in pairs.column_names])
    revision = model_revision(settings.model)
    writer = FolderWriter.start(
        run,
        step="rewrite",
        schema=pairs.schema,
        settings=settings.deciding(),
        inputs={"pairs": hash_source(found.source)},
        models={"model": revision},
        planned=shard_count(pairs, settings.shard_size),
    )
    again = pa.array(_again(read_texts(pairs, settings.kind)), pa.bool_())
    commit = partial(
        commit_rows,
        writer,
        WriterLoader(settings, revision),
        pairs.append_column("again", again),
        settings.shard_size,
        ExecutorChoice(settings.executor, settings.workers, settings.ray_address),
        run,
        title="write",
        unit="texts",
    )
    return completed(writer, run, commit, _card(settings, source))


@dataclass(frozen=True, slots=True)
class WriterLoader:
    """Sets up a worker: loads the model once, then rewrites one shard after the other."""

    settings: RewriteSettings
    revision: str

    def __call__(self, worker: int) -> Work[RowShard, Made]:
        """The function that a worker applies to each shard; it returns rewritten pairs and rejects."""
        settings = self.settings
        check_revision(settings.model, self.revision, worker)
        model = load_summarizer(
            settings.model, device=settings.device, dtype=settings.dtype, max_length=settings.max_length
        )

        def write(shard: RowShard, advance: Advance) -> Made:
            again = shard.rows["again"].combine_chunks()
            pairs = shard.rows.drop_columns("again")
            texts = summarize(
                model,
                read_texts(pairs.filter(pc.invert(again)), settings.kind),
                beams=settings.beams,
                summary_tokens=settings.tokens,
                shortest=shortest_of(settings.kind),
                batch_size=settings.batch_size,
                advance=advance,
            )
            advance(pairs.num_rows - len(texts))
            written = iter(texts)
            return rewritten(
                pairs, [None if each else next(written) for each in again.to_pylist()], settings.kind
            )

        return write


def read_texts(pairs: pa.Table, kind: str) -> list[str]:
    """The model's input for each pair: the answer with its passage, or the document."""
    if kind == "summaries":
        documents: list[str] = pairs["input"].to_pylist()
        return documents
    both = zip(pairs["answers"].to_pylist(), pairs["context"].to_pylist(), strict=True)
    return [answer_in_passage(answers["text"][0], passage) for answers, passage in both]


def check_columns(pairs: pa.Table, settings: RewriteSettings) -> None:
    """Check that the pairs have the columns of their kind."""
    needed = _NEEDED[settings.kind]
    if missing := [name for name in needed if name not in pairs.column_names]:
        raise InputError(
            f"{settings.pairs}: pairs of kind {settings.kind} have the columns {', '.join(needed)}; "
            f"{', '.join(missing)} missing"
        )


def _again(texts: Sequence[str]) -> list[bool]:
    """Whether each text repeats an earlier one, for which the model would write the same."""
    seen: set[str] = set()
    found = []
    for text in texts:
        found.append(text in seen)
        seen.add(text)
    return found


def rewritten(pairs: pa.Table, texts: Sequence[str | None], kind: str) -> Made:
    """Replace the questions, or summaries, of pairs; pairs that got none become rejects.

    Args:
        pairs: n pairs.
        texts: the generated text of each; None where an earlier pair has the same model input.
        kind: kind of the pairs.
    """
    side = "input" if kind == "reading" else "output"
    rows, rejects = [], []
    for row, text in zip(pairs.to_pylist(), texts, strict=True):
        if text is None:
            rejects.append(Reject.of(row["id"], "duplicate", "an earlier pair has the same model input", row))
            continue
        new = {**row, side: text}
        new["id"] = f"{text_id(new['input'])}-{text_id(new['output'])}"
        if text:
            rows.append(new)
        else:
            rejects.append(Reject.of(new["id"], "empty", "the model wrote nothing", new))
    return pa.Table.from_pylist(rows, schema=pairs.schema), to_table(rejects, REJECT)


def _card(settings: RewriteSettings, source: DatasetFolder) -> Card:
    written = "questions" if settings.kind == "reading" else "summaries"
    return Card(
        title=f"Pairs with {written} written by a model",
        description=(
            f"Pairs of the folder `{source.path.name}` (step `{source.manifest.step}`); the {written} were "
            f"rewritten by {model_display_name(settings.model)}."
        ),
        columns={"input": "a question or a document", "output": "an answer in a passage, or a summary"},
        made=f"The {written} were written by a program; no person has checked them.",
        citations=(MINING,),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=[source.path]),
        task="summarization" if settings.kind == "summaries" else "",
    )
