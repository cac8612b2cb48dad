"""The step ``mine``: naturally occurring pairs of two corpora (few-shot mining).

corpora -> vectors -> nearest neighbours both ways -> margin score (M3) -> filters (M5) -> rows and rejects
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pairsmith.citations import MINING
from pairsmith.encoders.margin import Pairs, pairs_by_margin
from pairsmith.encoders.search import two_way_search
from pairsmith.errors import InputError
from pairsmith.mine.corpus import Corpus, encode_corpus
from pairsmith.mine.settings import MineSettings
from pairsmith.modelnames import model_revision
from pairsmith.records import MINED_PAIR, REJECT, MinedPair, Reject, as_columns, text_id, to_table
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, refuse_source, summary
from pairsmith.runs.storage import scratch_file, storage_errors

_WHERE = {"device", "batch_size", "memory", "executor", "workers", "ray_address"}
"""Settings that say where and how fast, not what."""


def mine(settings: MineSettings, run: Run) -> DatasetFolder:
    """Mine pairs; see ``MineSettings`` for what can be set. The vectors stay in ``inputs`` and ``outputs``.

    Raises:
        UserError: a corpus, the encoder or the folder is not usable.
        StorageError: the disk failed; finished shards are kept, and the same command continues.
        WorkerError: a worker failed; finished shards are kept.
    """
    for source in settings.inputs:
        refuse_source(run, inputs=source)
    for source in settings.outputs:
        refuse_source(run, outputs=source)
    corpora = (
        Corpus.of("inputs", settings.inputs, settings.input_column),
        Corpus.of("outputs", settings.outputs, settings.output_column),
    )
    revision = model_revision(settings.encoder)
    writer = FolderWriter.start(
        run,
        step="mine",
        schema=MINED_PAIR,
        settings=settings.model_dump(mode="json", exclude={*_WHERE, "inputs", "outputs", "encoder"}),
        inputs={name: digest for corpus in corpora for name, digest in corpus.hashes.items()},
        models={"encoder": revision},
    )
    if writer.finished:
        run.progress.say(f"{run.out} is finished already; nothing to do")
        return writer.folder()

    folders = [
        encode_corpus(corpus, settings, revision, Run(run.out / corpus.name, run.progress, run.fresh))
        for corpus in corpora
    ]
    with scratch_file(run.out, "inputs") as of_x, scratch_file(run.out, "outputs") as of_y:
        x, y = encoded_texts(folders[0], of_x), encoded_texts(folders[1], of_y)
        with run.progress.task("search", len(x), "inputs") as bar:
            near = two_way_search(
                x.vectors, y.vectors, settings.k, memory=int(settings.memory * 2**30), advance=bar.advance
            )
        pairs = pairs_by_margin(*near, settings.margin, settings.retrieval)
        mined = filtered(pairs, x, y, settings)
    copies = [*x.copies("inputs"), *y.copies("outputs")]
    writer.commit(0, {"train": to_table(mined.rows, MINED_PAIR)}, to_table([*mined.rejects, *copies], REJECT))
    folder = writer.finish(_card(settings, {"inputs": len(x), "outputs": len(y), "candidates": len(pairs)}))
    run.progress.say(summary(folder))
    return folder


@dataclass(frozen=True)
class Encoded:
    """The distinct texts of an encoded corpus.

    Attributes:
        vectors: ``(n, d)`` float32, mapped from a file.
        rows: ``(n,)`` int64, the row of each in the folder.
        folder: where the texts are.
    """

    vectors: torch.Tensor
    rows: NDArray[np.int64]
    folder: DatasetFolder

    def __len__(self) -> int:
        """How many distinct texts there are."""
        return len(self.rows)

    def texts(self, numbers: Sequence[int]) -> list[str]:
        """The texts of these numbers, in their order."""
        wanted = self.rows[np.asarray(numbers, dtype=np.int64)]
        found: dict[int, str] = {}
        first = 0
        for table in self.folder.shards("train", ["text"]):
            here = wanted[(wanted >= first) & (wanted < first + table.num_rows)]
            for row, text in zip(here.tolist(), table["text"].take(here - first).to_pylist(), strict=True):
                found[row] = text
            first += table.num_rows
        return [found[row] for row in wanted.tolist()]

    def copies(self, corpus: str) -> Iterator[Reject]:
        """The texts that had been there before."""
        first = 0
        for table in self.folder.shards("train", ["id", "text"]):
            there = np.isin(np.arange(first, first + table.num_rows), self.rows)
            for row in table.take(np.flatnonzero(~there)).to_pylist():
                yield Reject.of(row["id"], "duplicate", f"the text was among the {corpus} before", row)
            first += table.num_rows


def encoded_texts(folder: DatasetFolder, scratch: Path) -> Encoded:
    """The distinct texts of a folder that ``encode_corpus`` wrote, their vectors in the file ``scratch``.

    Raises:
        InputError: there are fewer than two, so that there are no neighbours to compare.
    """
    seen: set[str] = set()
    rows: list[int] = []
    first = 0
    with storage_errors(scratch), scratch.open("wb") as file:
        for table in folder.shards("train", ["id", "vector"]):
            new = []
            for row, name in enumerate(table["id"].to_pylist()):
                if name not in seen:
                    seen.add(name)
                    new.append(row)
            rows += [first + row for row in new]
            first += table.num_rows
            if new:
                vectors = table["vector"].take(new).combine_chunks().flatten().to_numpy(zero_copy_only=False)
                file.write(np.ascontiguousarray(vectors, np.float32).tobytes())
    if len(rows) < 2:
        raise InputError(
            f"{folder.path}: {len(rows)} distinct texts of {first} have a vector; mining compares texts with "
            "their neighbours, so each corpus needs two or more"
        )
    mapped = np.memmap(scratch, np.float32, "c").reshape(len(rows), -1)
    return Encoded(torch.from_numpy(mapped), np.array(rows), folder)


@dataclass(frozen=True, slots=True)
class Mined:
    """Pairs that passed the filters, and those that did not."""

    rows: list[MinedPair]
    rejects: list[Reject]


def filtered(pairs: Pairs, x: Encoded, y: Encoded, settings: MineSettings) -> Mined:
    """The best pairs that pass the filters (M5), from the largest margin on, until there are enough."""
    mined = Mined([], [])
    size = settings.best or len(pairs)
    for start in range(0, len(pairs), max(1, size)):
        part = slice(start, start + size)
        for row in _rows(pairs, part, x, y):
            filter_, reason = judged(row, settings)
            if reason:
                mined.rejects.append(Reject.of(row.id, filter_, reason, as_columns(row)))
            elif len(mined.rows) < size:
                mined.rows.append(row)
        if len(mined.rows) == size:
            break
    return mined


def judged(row: MinedPair, settings: MineSettings) -> tuple[str, str]:
    """The filter that drops a pair and why; two empty texts for one that stays."""
    if settings.threshold is not None and row.margin < settings.threshold:
        return "margin", f"below {settings.threshold}"
    if settings.verbatim == "drop":
        if row.output in row.input:
            return "verbatim", "the output stands word for word in the input"
        if row.input in row.output:
            return "verbatim", "the input stands word for word in the output"
    return "", ""


def _rows(pairs: Pairs, part: slice, x: Encoded, y: Encoded) -> Iterator[MinedPair]:
    inputs, outputs = x.texts(pairs.x[part].tolist()), y.texts(pairs.y[part].tolist())
    numbers = pairs.margin[part].tolist(), pairs.similarity[part].tolist()
    for one, other, margin, similarity in zip(inputs, outputs, *numbers, strict=True):
        yield MinedPair(f"{text_id(one)}-{text_id(other)}", one, other, margin, similarity)


def _card(settings: MineSettings, counts: dict[str, int]) -> Card:
    return Card(
        title="Mined pairs",
        description=(
            "Pairs of texts that were found in two corpora and put together by a program, by the margin "
            f"score of their vectors under {settings.encoder}. Nobody has checked the pairs."
        ),
        counts=counts,
        columns={
            "input": "a text of the first corpus",
            "output": "a text of the second",
            "margin": f"the pair's margin score ({settings.margin}), by which it was found",
            "score": "the cosine of the two vectors",
        },
        made="The pairs were put together by a program; no person has checked each of them.",
        tags=("mined",),
        citations=(MINING,),
        licence="The rights in the corpora apply to the texts.",
    )
