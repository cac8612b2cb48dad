"""What ``filter-queries`` reads: written queries, the chunks that they are searched in, and an evaluation."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Self

import numpy as np
import pyarrow as pa

from pairsmith.core.errors import InputError
from pairsmith.core.paths import is_folder, place, size_of
from pairsmith.data.documents import Document, TitledText, read_titled
from pairsmith.data.readers import column_text, pick_column, text_id, with_names
from pairsmith.data.sources import open_source
from pairsmith.data.splits import split_of
from pairsmith.data.text.folding import folded
from pairsmith.data.text_keys import text_keys
from pairsmith.runs import DatasetFolder
from pairsmith.runs.folder import MANIFEST
from pairsmith.steps.retrieval.settings import FilterQueriesSettings
from pairsmith.steps.retrieval.vectors import Keys, places_of

QUERY_COLUMNS = ("query", "question", "anchor", "input")
POSITIVE_COLUMNS = ("positive", "context", "passage", "output", "document")
EVALUATION_COLUMNS = (*QUERY_COLUMNS, "text", "sentence")
_ADDED = (pa.field("rank", pa.int64()), pa.field("similarity", pa.float32()))
_AT_ONCE = 10_000
"""Texts whose keys are computed at once."""


def keys_of(texts: Iterable[str]) -> Keys:
    """The key of each text, ``(n,)``."""
    found, some = [np.zeros(0, np.uint64)], list[str]()
    for text in texts:
        some.append(text_id(text))
        if len(some) == _AT_ONCE:
            found.append(text_keys(pa.chunked_array([some], pa.string())))
            some = []
    return np.concatenate([*found, text_keys(pa.chunked_array([some], pa.string()))])


def _distinct(texts: Sequence[str], keys: Keys, where: str) -> Iterator[Document]:
    """Each text that is not blank once, in order."""
    for row in np.sort(np.unique(keys, return_index=True)[1]).tolist():
        if texts[row]:
            yield Document(text_id(texts[row]), texts[row], "", "", where)


@dataclass(frozen=True)
class WrittenQueries:
    """Rows of queries with the texts that they were written for.

    Attributes:
        table: the rows as they were read, without a rank and a similarity of an earlier filter.
        texts: their queries, stripped of white space; blank ones are empty.
        positives: the texts that they were written for, likewise.
        chunks: the ids of these, or None where the rows name none.
        source: the name for messages.
    """

    table: pa.Table
    texts: Sequence[str]
    positives: Sequence[str]
    chunks: Sequence[str] | None
    source: str

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.texts)

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows that are kept."""
        return pa.schema([*self.table.schema, *_ADDED])

    @cached_property
    def keys(self) -> Keys:
        """The key of each query, ``(n,)``."""
        return keys_of(self.texts)

    @cached_property
    def names(self) -> Keys:
        """A number for each query that is the same for copies: case, spaces and punctuation do not count."""
        return keys_of(map(folded, self.texts))

    def distinct(self) -> Iterator[Document]:
        """Each query once."""
        return _distinct(self.texts, self.keys, self.source)

    def rows(self, part: slice) -> pa.Table:
        """Some of the rows."""
        return self.table.slice(part.start, part.stop - part.start)

    def name_of(self, row: int) -> str:
        """The id of a row, or of its texts if it has none."""
        if "id" in self.table.column_names and (given := self.table["id"][row].as_py()) is not None:
            return str(given)
        return text_id(f"{self.texts[row]}\n{self.positives[row]}")


def read_written(source: str) -> WrittenQueries:
    """Read queries with the texts that they were written for, from one split of a source."""
    return as_written(_rows(source), source)


def as_written(table: pa.Table, source: str) -> WrittenQueries:
    """Rows as queries with the texts that they were written for; ``source`` is their name for messages."""
    if not table.num_rows:
        raise InputError(f"{source} holds no queries")
    names = table.column_names
    row = dict.fromkeys(names)
    query = pick_column(row, QUERY_COLUMNS, source)
    positive = pick_column(row, [name for name in POSITIVE_COLUMNS if name != query], source)
    texts, positives = (_texts(table, name, source) for name in (query, positive))
    if not any(texts):
        raise InputError(f"{source}: all of its queries are blank")
    chunks = None
    if "chunk" in names:
        chunks = ["" if each is None else str(each) for each in table["chunk"].to_pylist()]
    kept = [name for name in names if name not in {each.name for each in _ADDED}]
    return WrittenQueries(table.select(kept), texts, positives, chunks, source)


def _rows(source: str) -> pa.Table:
    folder, split = split_of(source)
    path = place(folder)
    if is_folder(path) and size_of(path / MANIFEST) is not None:
        opened = DatasetFolder.open(path)
        return opened.table(split or opened.splits[0])
    rows = [row for _, row in open_source(source).rows()]
    names = dict.fromkeys(chain.from_iterable(rows))
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: Sequence[object]) -> pa.Array:
    """A column of rows of any program: of one type if its values are, else of text."""
    with suppress(pa.ArrowException, OverflowError, UnicodeError):
        found = pa.array(values)
        if not pa.types.is_nested(found.type):
            return found
    return pa.array([_as_text(value) for value in values], pa.string())


def _as_text(value: object) -> str | None:
    """A value as text; lists, objects and what UTF-8 cannot hold as JSON."""
    if isinstance(value, str | int | float | None):
        with suppress(UnicodeError):
            return None if value is None else str(value).encode().decode()
    return json.dumps(value, default=str)


def _texts(table: pa.Table, name: str, source: str) -> list[str]:
    rows = enumerate(table[name].to_pylist(), start=1)
    return [column_text({name: value}, name, f"{source}, row {number}") for number, value in rows]


@dataclass(frozen=True, slots=True)
class Texts:
    """The chunks of a corpus as they are encoded, with their titles.

    ``ids`` are the keys of their ids, ``texts`` those of their texts without titles, and ``wholes`` those of
    what is encoded, each ``(n,)``.
    """

    settings: FilterQueriesSettings
    ids: Keys
    texts: Keys
    wholes: Keys

    @classmethod
    def of(cls, settings: FilterQueriesSettings) -> Self:
        """Read the corpus once; 24 bytes are held for each chunk."""
        found: list[list[Keys]] = [[], [], []]
        rows = _chunks(settings)
        while some := list(islice(rows, _AT_ONCE)):
            sides = ([row.id for row in some], [row.text for row in some], [row.whole for row in some])
            for keys, side in zip(found, sides, strict=True):
                keys.append(keys_of(side))
        if not found[0]:
            raise InputError(f"{', '.join(settings.corpus)}: the corpus holds no texts")
        ids, texts, wholes = (np.concatenate(keys) for keys in found)
        order = np.argsort(ids, kind="stable")
        again = (np.diff(ids[order]) == 0) & (np.diff(wholes[order]) != 0)
        if again.any():
            place = int(order[1:][again][0])
            row = next(islice(_chunks(settings), place, None))
            raise InputError(
                f"{row.where}: another chunk of {', '.join(settings.corpus)} has the id {row.id!r}, too; "
                "each has to have an id of its own"
            )
        return cls(settings, ids, texts, wholes)

    def documents(self) -> Iterator[Document]:
        """The chunks with their titles, one at a time."""
        for row in _chunks(self.settings):
            yield Document(text_id(row.whole), row.whole, "", "", row.where)

    def of_chunks(self, written: WrittenQueries) -> Keys:
        """The key of what is encoded of each query's own chunk, ``(n,)``; 0 where that is not in the corpus.

        It is looked up by its id, if there is one, and else by its text.
        """
        at = places_of(keys_of(written.positives), self.texts)
        if written.chunks is not None:
            by_id = places_of(keys_of(written.chunks), self.ids)
            at = np.where(by_id >= 0, by_id, at)
        return np.where(at >= 0, self.wholes[at], np.uint64(0))


def _chunks(settings: FilterQueriesSettings) -> Iterator[TitledText]:
    every = chain.from_iterable(
        read_titled(_in_beir(source, "corpus.jsonl"), column=settings.corpus_column)
        for source in settings.corpus
    )
    return (row for row in every if row.text)


def _in_beir(source: str, name: str) -> str:
    """The file of this name where the source is a folder that holds it; else the source."""
    folder = place(source)
    if is_folder(folder) and size_of(folder / name) is not None:
        return str(folder / name)
    return source


@dataclass(frozen=True)
class Evaluation:
    """The queries of an evaluation, from ``sources``; there may be none."""

    texts: Sequence[str]
    sources: Sequence[str]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.texts)

    @cached_property
    def names(self) -> Keys:
        """A number for each that is the same for copies, as of ``WrittenQueries``."""
        return keys_of(map(folded, self.texts))

    def distinct(self) -> Iterator[Document]:
        """Each query once."""
        return _distinct(self.texts, keys_of(self.texts), "the evaluation")


def read_evaluation(settings: FilterQueriesSettings) -> Evaluation:
    """Read the queries that nothing may be trained on."""
    column = settings.evaluation_column
    sources = [_in_beir(each, "queries.jsonl") for each in settings.evaluation]
    texts = []
    for source in sources:
        opened = open_source(source)
        rows = with_names(opened, [column] if column else EVALUATION_COLUMNS)
        found = [text for where, row, (name,) in rows if (text := column_text(row, name, where))]
        if not found:
            raise InputError(f"{opened.name} holds no queries")
        texts += found
    return Evaluation(texts, sources)
