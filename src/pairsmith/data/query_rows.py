"""Queries to search for, and test sets of retrieval, made from rows of queries and the chunks to search."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pairsmith.core.errors import InputError, joined_names
from pairsmith.core.paths import Place
from pairsmith.core.progress import Say
from pairsmith.data.beir import REPEATED, UNKNOWN_DOCUMENTS, RetrievalSet, in_beir
from pairsmith.data.chunk_rows import read_passages
from pairsmith.data.documents import DOCUMENT_COLUMNS, Document
from pairsmith.data.kept_columns import value_as_text
from pairsmith.data.query_columns import PASSAGES, QUERIES_ALONE, column_texts, positive_column
from pairsmith.data.readers import (
    NAME_TEXTS,
    at_least_one,
    column_text,
    find_column,
    id_column,
    own_id,
    text_id,
    with_names,
)
from pairsmith.data.sources import Columns, Source, open_source


@dataclass(frozen=True, slots=True)
class QueryRow:
    """A query and the other columns of its row: texts unchanged, other values as JSON, null as None.

    If the row has an id, it is the value of ``id``, whatever the letter case of its column's name.
    """

    query: str
    others: Mapping[str, str | None]


def read_queries_to_search(
    source: str | Place, on_blank: Callable[[str], object], *, with_others: bool
) -> list[QueryRow]:
    """Read queries from the first of the columns ``QUERIES_ALONE`` that exists.

    Rows without a query are skipped, and ``on_blank`` is called with the location of each. Without
    ``with_others``, only the queries are read, and ``others`` is empty.
    """
    opened = open_source(source)
    queries = []
    for where, row, (name,) in with_names(opened, QUERIES_ALONE):
        query = column_text(row, name, where)
        if not query:
            on_blank(where)
            continue
        others: dict[str, str | None] = {}
        if with_others:
            others |= {"id": query_id} if (query_id := own_id(row, where)) else {}
            not_others = (name, id_column(row))
            others |= {
                key: value_as_text(value, key, where) for key, value in row.items() if key not in not_others
            }
        queries.append(QueryRow(query, others))
    return list(at_least_one(queries, f"{opened.name} holds no queries"))


def read_corpus(
    corpus: Sequence[str],
    column: str | None = None,
    remedy: str = NAME_TEXTS,
    say: Say = lambda _: None,
) -> dict[str, Document]:
    """Read the documents to search, as a mapping from id to document; documents without text are skipped.

    Args:
        corpus: sources of chunks or documents, as ``read_passages`` reads them, or folders in BEIR's layout.
        column: the column with the texts, as for ``read_passages``.
        remedy: as for ``pick_column``.
        say: is called with a message for each source in which several columns hold texts, if ``column`` is
            None.

    Raises:
        InputError: two documents with different titles or texts have the same id.
    """
    documents: dict[str, Document] = {}
    for source in corpus:
        opened = open_source(in_beir(source))
        if column is None:
            opened = Source(opened.name, partial(_rows_with_notice, opened, remedy, say))
        for passage in read_passages(opened, column, remedy):
            if documents.setdefault(passage.id, passage).whole != passage.whole:
                raise InputError(
                    f"{source}: another document of {', '.join(corpus)} has the id {passage.id!r}, too; give "
                    "each document an id of its own"
                )
    return documents


def _rows_with_notice(source: Source, remedy: str, say: Say) -> Iterator[tuple[str, Columns]]:
    """The rows of a source; if the first one has several texts, ``say`` is told which of them is read.

    A text is a value of several words that is neither a title nor the name of a chunk's document.
    """
    for number, (where, row) in enumerate(source.rows()):
        searched = None if number else find_column(row, [*PASSAGES, *DOCUMENT_COLUMNS])
        if searched:
            no_texts = {searched.casefold(), "id", "_id", "title", "document"}
            others = [
                name
                for name, value in row.items()
                if name.casefold() not in no_texts and isinstance(value, str) and len(value.split()) > 1
            ]
            if others:
                say(
                    f"{source.name}: the texts in the column {searched} are read, those in "
                    f"{joined_names(others)} are not; {remedy}"
                )
        yield where, row


def read_query_rows(
    data: str, corpus: Sequence[str], column: str | None = None, remedy: str = NAME_TEXTS
) -> RetrievalSet:
    """Make a test set of retrieval from rows of queries and the documents to search.

    Args:
        data: rows with the columns query and chunk, the id of the relevant document; or with query and
            positive, the text of the relevant document. A query with several relevant documents has several
            rows.
        corpus, column, remedy: the documents to search, as for ``read_corpus``.

    Raises:
        InputError: a query is blank or has no document, or more than half of the relevant documents are not
            in the corpus.
    """
    faults: dict[str, list[str]] = defaultdict(list)
    passages = read_corpus(corpus, column, remedy)
    documents = {name: passage.whole for name, passage in passages.items()}
    id_of_text: dict[str, str] = {}  # the id of the first document with this text, whatever its title
    for name, passage in passages.items():
        id_of_text.setdefault(passage.text, name)
    queries: dict[str, str] = {}
    relevance: dict[str, dict[str, int]] = defaultdict(dict)
    for where, row, (name,) in with_names(open_source(data), QUERIES_ALONE):
        query = column_text(row, name, where)
        column = positive_column(row, name)
        if not query:
            raise InputError(f"{where}: {name} is blank; give a query or drop the row")
        chunk_id = own_id(row, where, "chunk")
        texts = column_texts(row, column, where) if column and chunk_id not in documents else []
        filled = [text for text in texts if text]
        if not filled and not chunk_id:
            raise InputError(
                f"{where}: neither chunk nor positive names a document that answers the query; give its id "
                "or its text, or drop the row"
            )
        for text in filled or [""]:
            relevant = chunk_id if chunk_id in documents else id_of_text.get(text, chunk_id or text_id(text))
            if relevant in relevance[text_id(query)]:
                faults[REPEATED].append(text_id(query))
                continue
            queries[text_id(query)] = query
            relevance[text_id(query)][relevant] = 1
            if relevant not in documents:
                faults[UNKNOWN_DOCUMENTS].append(relevant)
    if not queries:
        raise InputError(f"{data} holds no queries")
    lost, total = len(faults[UNKNOWN_DOCUMENTS]), sum(map(len, relevance.values()))
    if lost > total / 2:  # the figures would mostly measure how many documents the corpus lacks
        raise InputError(
            f"{data}: {lost:,} of the {total:,} texts that its queries should find are not among those of "
            f"{', '.join(corpus)}; the column chunk has to hold the id of a document there, or the column "
            "positive its exact text (the step chunk may have cut your documents)"
        )
    return RetrievalSet(
        data,
        documents,
        queries,
        {query: relevance[query] for query in queries},
        {fault: ids for fault, ids in faults.items() if ids},
    )
