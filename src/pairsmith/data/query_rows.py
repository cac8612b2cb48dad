"""Test sets of retrieval made from rows of queries, as ``queries`` writes them, and the chunks to search."""

from collections import defaultdict
from collections.abc import Sequence

from pairsmith.core.errors import InputError
from pairsmith.data.beir import REPEATED, UNKNOWN_DOCUMENTS, RetrievalSet, in_beir
from pairsmith.data.chunk_rows import read_passages
from pairsmith.data.documents import Document
from pairsmith.data.query_columns import QUERIES_ALONE, column_texts, positive_column
from pairsmith.data.readers import column_text, given_id, text_id, with_names
from pairsmith.data.sources import open_source


def read_corpus(corpus: Sequence[str]) -> dict[str, Document]:
    """Read the documents that may answer queries, by their ids, each once; blank ones are skipped.

    An id stands for one title and text.

    Args:
        corpus: chunks or documents, as ``read_passages`` reads them, or folders in BEIR's layout.
    """
    documents: dict[str, Document] = {}
    for source in corpus:
        for passage in read_passages(in_beir(source)):
            if documents.setdefault(passage.id, passage).whole != passage.whole:
                raise InputError(
                    f"{source}: another document of {', '.join(corpus)} has the id {passage.id!r}, too; each "
                    "has to have an id of its own"
                )
    return documents


def read_query_rows(data: str, corpus: Sequence[str]) -> RetrievalSet:
    """Read queries with the texts that answer them, and the documents among which these are searched for.

    Args:
        data: rows with the columns query and chunk, the id of a document; or query and positive, its text. A
            query with several relevant documents has several rows.
        corpus: chunks or documents, as ``read_corpus`` reads them.
    """
    faults: dict[str, list[str]] = defaultdict(list)
    passages = read_corpus(corpus)
    documents = {name: passage.whole for name, passage in passages.items()}
    of_text: dict[str, str] = {}  # a document's id, by its text alone
    for name, passage in passages.items():
        of_text.setdefault(passage.text, name)
    queries: dict[str, str] = {}
    relevance: dict[str, dict[str, int]] = defaultdict(dict)
    for where, row, (name,) in with_names(open_source(data), QUERIES_ALONE):
        query = column_text(row, name, where)
        column = positive_column(row, name)
        if not query:
            raise InputError(f"{where}: {name} is blank; give a query or drop the row")
        named = given_id(row, where, "chunk")
        for text in column_texts(row, column, where) if column and named not in documents else [""]:
            relevant = named if named in documents else of_text.get(text, named or text_id(text))
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
    if lost > total / 2:  # figures would say how many texts are there, and not how well they are found
        raise InputError(
            f"{data}: {lost:,} of the {total:,} texts that its queries should find are not among those of "
            f"{', '.join(corpus)}; the column chunk has to hold the id of one of them, or positive the text "
            "of one as it stands there (chunk may have cut yours)"
        )
    return RetrievalSet(
        data,
        documents,
        queries,
        {query: relevance[query] for query in queries},
        {fault: ids for fault, ids in faults.items() if ids},
    )
