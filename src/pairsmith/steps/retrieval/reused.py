"""Queries that an earlier run wrote for chunks that are unchanged, which ``queries --reuse`` takes over.

finished folder of queries -> the hash of what decides a chunk's queries -> rows and rejects of chunks with
the same hash -> in the order in which a run without them writes rows and rejects
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Self

import pyarrow as pa

from pairsmith.core.errors import DamagedError, FolderError
from pairsmith.core.paths import Place, size_of
from pairsmith.data.chunk_rows import ChunkRow
from pairsmith.data.schemas import REJECT, Reject, text_schema, to_table
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import RecordShard, RowsAndRejects
from pairsmith.runs.seeds import stream_key
from pairsmith.runs.storage import write_json
from pairsmith.steps.retrieval.settings import QueriesSettings
from pairsmith.steps.reuse import EarlierRows, open_earlier

QUERY = text_schema("id", "query", "positive", "title", "chunk", "kind")
CONTENTS = "contents.json"
"""Beside the manifest: the hash of what of each chunk decides its queries, by the chunk's id."""

_CHOOSING = ("shard_size", "limit")
"""Settings that decide which chunks there are and how they are saved, but no query."""


@dataclass(frozen=True, slots=True)
class ChunkInput:
    """A chunk, and the rows and rejects that an earlier run made for it; None if they have to be made."""

    chunk: ChunkRow
    earlier: tuple[list[dict[str, str]], list[Reject]] | None = None

    @property
    def kept(self) -> int:
        """1 if the chunk keeps its queries, else 0."""
        return int(self.earlier is not None)

    @property
    def left(self) -> int:
        """1 if queries have to be written for the chunk, else 0."""
        return int(self.earlier is None)


def contents_of(settings: QueriesSettings, chunks: Iterable[ChunkRow]) -> dict[str, int]:
    """A hash of what of each chunk enters its prompts and its random draws, by the chunk's id."""
    beside = settings.decay > 0 and "neighbours" in settings.against
    return {
        chunk.id: stream_key(chunk.text, chunk.title, *(chunk.neighbours if beside else ()))
        for chunk in chunks
    }


def write_contents(out: Place, fingerprint: str, contents: Mapping[str, int]) -> None:
    """Keep the hashes for a later run with ``--reuse``."""
    write_json(out / CONTENTS, {"fingerprint": fingerprint, "contents": dict(contents)})


class EarlierQueries:
    """The queries and rejects of a finished folder, by chunk."""

    def __init__(self, contents: Mapping[str, int], rows: EarlierRows) -> None:
        self._contents, self._rows = contents, rows

    @classmethod
    def open(cls, path: str, identity: Identity) -> Self:
        """Open the folder ``path`` for the run with this identity.

        Raises:
            FolderError: the folder is unfinished or damaged, or its queries were made with other settings.
        """
        folder = open_earlier(path, identity, choosing=_CHOOSING, sources="chunks", rows="queries")
        try:
            file = folder.path / CONTENTS
            record = json.loads(file.read_bytes()) if size_of(file) is not None else {}
        except ValueError:
            raise DamagedError(f"--reuse {path}: its file {CONTENTS} is damaged") from None
        if record.get("fingerprint") != folder.manifest.fingerprint:
            raise FolderError(
                f"--reuse {path}: it has no {CONTENTS} that says what its queries were written from; give "
                "another folder"
            )
        rows = EarlierRows(folder, itemgetter("chunk"), lambda reject: str(json.loads(reject.row)["chunk"]))
        return cls(record["contents"], rows)

    def __len__(self) -> int:
        """The number of chunks that queries were written for."""
        return len(self._contents)

    def has(self, chunk: str, content: int) -> bool:
        """Whether the folder has the chunk with this id, and what decides its queries is the same."""
        return self._contents.get(chunk) == content

    def filled(self, contents: Mapping[str, int], shard: RecordShard[ChunkRow]) -> RecordShard[ChunkInput]:
        """The chunks of a shard; those that the folder holds unchanged come with their rows and rejects."""
        names = [chunk.id for chunk in shard.records if self.has(chunk.id, contents[chunk.id])]
        rows = self._rows.of(names)
        earlier = {name: rows.get(name, ([], [])) for name in names}
        chunks = (ChunkInput(chunk, earlier.get(chunk.id)) for chunk in shard.records)
        return RecordShard(shard.number, tuple(chunks))


def merged_rows(
    inputs: Sequence[ChunkInput], new_rows: Iterable[dict[str, str]], new_rejects: Iterable[Reject]
) -> RowsAndRejects:
    """Earlier rows and rejects together with new ones, as a run that makes all of them orders them.

    Rows are ordered by chunk; rejects by try, chunk and query, which their ids name (``QueryWriter.write``).
    """
    by_chunk = defaultdict[str, list[dict[str, str]]](list)
    for row in new_rows:
        by_chunk[row["chunk"]].append(row)
    rejects = list(new_rejects)
    place = {entry.chunk.id: number for number, entry in enumerate(inputs)}
    for entry in inputs:
        if entry.earlier:
            by_chunk[entry.chunk.id] = entry.earlier[0]
            rejects += entry.earlier[1]

    def turn(reject: Reject) -> tuple[int, int, int]:
        query, _, number = reject.id.rpartition("-try-")
        chunk, _, of_chunk = query.rpartition("-")
        return int(number), place[chunk], int(of_chunk)

    rejects.sort(key=turn)
    rows = [row for entry in inputs for row in by_chunk[entry.chunk.id]]
    return pa.Table.from_pylist(rows, schema=QUERY), to_table(rejects, REJECT)
