"""``queries --reuse``: chunks that have not changed keep the queries of an earlier run.

finished folder of queries -> the hash of each chunk's prompt -> rows and rejects of chunks with the same hash
-> rows and rejects in the order in which a run without ``--reuse`` writes them
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Self

import pyarrow as pa

from pairsmith.core.errors import DamagedError, FolderError
from pairsmith.core.paths import size_of
from pairsmith.data.chunk_rows import ChunkRow
from pairsmith.data.schemas import REJECT, Reject, text_schema, to_table
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import RecordShard, RowsAndRejects
from pairsmith.runs.seeds import stream_key
from pairsmith.steps.retrieval.settings import QueriesSettings
from pairsmith.steps.reuse import EarlierRows, RowsOfItem, WithEarlier, open_earlier

QUERY = text_schema("id", "query", "positive", "title", "chunk", "kind")
CONTENTS = "contents.json"
"""The file beside the manifest with the hashes of ``contents_of``, for a later run with ``--reuse``."""

_CHOOSING = ("shard_size", "limit")
"""Settings that decide which chunks are used and how rows are saved, but not the queries of a chunk."""


ChunkWithEarlier = WithEarlier[ChunkRow, RowsOfItem]
"""A chunk, and its rows and rejects of an earlier run; without these, queries have to be written for it."""


def contents_of(settings: QueriesSettings, chunks: Iterable[ChunkRow]) -> dict[str, int]:
    """Chunk id -> a hash of all texts that enter the chunk's prompts, counter-prompts and random draws."""
    with_neighbours = settings.decay > 0 and "neighbours" in settings.against
    return {
        chunk.id: stream_key(chunk.text, chunk.title, *(chunk.neighbours if with_neighbours else ()))
        for chunk in chunks
    }


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
                f"--reuse {path}: it has no {CONTENTS} that records the texts its queries were written from; "
                "give another folder"
            )
        rows = EarlierRows(folder, itemgetter("chunk"), lambda reject: str(json.loads(reject.row)["chunk"]))
        return cls(record["contents"], rows)

    def __len__(self) -> int:
        """The number of chunks that queries were written for."""
        return len(self._contents)

    def has(self, chunk: str, content: int) -> bool:
        """Whether the folder has queries for the chunk with this id and this hash of ``contents_of``."""
        return self._contents.get(chunk) == content

    def filled(
        self, contents: Mapping[str, int], shard: RecordShard[ChunkRow]
    ) -> RecordShard[ChunkWithEarlier]:
        """The chunks of a shard; unchanged chunks get their rows and rejects from the folder.

        ``contents`` are the hashes of ``contents_of``.
        """
        unchanged = {chunk.id for chunk in shard.records if self.has(chunk.id, contents[chunk.id])}
        rows = self._rows.of(unchanged)
        return RecordShard(
            shard.number,
            tuple(
                WithEarlier(chunk, {chunk.id: rows.get(chunk.id, ([], []))})
                if chunk.id in unchanged
                else WithEarlier(chunk, left=1)
                for chunk in shard.records
            ),
        )


def merged_rows(
    inputs: Sequence[ChunkWithEarlier], new_rows: Iterable[dict[str, str]], new_rejects: Iterable[Reject]
) -> RowsAndRejects:
    """Merge earlier and new rows and rejects, in the order of a run without ``--reuse``.

    Rows are sorted by chunk. Rejects are sorted by try, chunk and query, whose numbers their ids contain (see
    ``QueryWriter.write``).
    """
    by_chunk = defaultdict[str, list[dict[str, str]]](list)
    for row in new_rows:
        by_chunk[row["chunk"]].append(row)
    rejects = list(new_rejects)
    place = {entry.record.id: number for number, entry in enumerate(inputs)}
    for entry in inputs:
        for chunk, (earlier_rows, earlier_rejects) in entry.earlier.items():
            by_chunk[chunk] = earlier_rows
            rejects += earlier_rejects

    def position(reject: Reject) -> tuple[int, int, int]:
        query_id, _, try_number = reject.id.rpartition("-try-")
        chunk, _, query_number = query_id.rpartition("-")
        return int(try_number), place[chunk], int(query_number)

    rejects.sort(key=position)
    rows = [row for entry in inputs for row in by_chunk[entry.record.id]]
    return pa.Table.from_pylist(rows, schema=QUERY), to_table(rejects, REJECT)
