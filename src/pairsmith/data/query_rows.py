"""Test sets of retrieval from rows of queries, such as ``queries`` writes, and all chunks they may find."""

from collections import defaultdict
from collections.abc import Sequence

from pairsmith.core.errors import InputError
from pairsmith.data.beir import REPEATED, UNKNOWN_DOCUMENTS, RetrievalSet
from pairsmith.data.chunk_rows import OF_EXAMPLES, QUERY_COLUMNS, read_chunks
from pairsmith.data.readers import column_text, text_id, with_names
from pairsmith.data.sources import open_source


def read_query_rows(data: str, corpus: Sequence[str]) -> RetrievalSet:
    """Read queries with the texts that answer them, and the documents among which these are searched for.

    Args:
        data: rows with the columns query and chunk, the id of a document; or query and positive, its text. A
            query with several relevant documents has several rows.
        corpus: chunks or documents, as ``read_chunks`` reads them; of those with one id the first counts.
    """
    documents: dict[str, str] = {}
    of_text: dict[str, str] = {}  # a document's id, by its text alone
    for chunk in (chunk for source in corpus for chunk in read_chunks(source)):
        documents.setdefault(chunk.id, " ".join(filter(None, (chunk.title, chunk.text))))
        of_text.setdefault(chunk.text, chunk.id)
    queries: dict[str, str] = {}
    relevance: dict[str, dict[str, int]] = defaultdict(dict)
    faults: dict[str, list[str]] = defaultdict(list)
    for where, row, (name,) in with_names(open_source(data), QUERY_COLUMNS):
        query = column_text(row, name, where)
        column = next((each for each in OF_EXAMPLES if each in row and each != name), None)
        text = column_text(row, column, where) if column else ""
        known = str(row.get("chunk") or "")
        relevant = known if known in documents else of_text.get(text, "")
        if not query:
            raise InputError(f"{where}: {name} is blank; give a query or drop the row")
        if not relevant:
            faults[UNKNOWN_DOCUMENTS].append(known or text_id(text))
        elif relevant in relevance[text_id(query)]:
            faults[REPEATED].append(text_id(query))
        else:
            queries[text_id(query)] = query
            relevance[text_id(query)][relevant] = 1
    if not queries:
        raise InputError(
            f"{data}: none of its queries has its text among those of {', '.join(corpus)}; the column chunk "
            "has to name one of them, or positive to hold one"
        )
    return RetrievalSet(
        data,
        {each: documents[each] for each in sorted(documents, reverse=True)},
        queries,
        {query: relevance[query] for query in queries},
        {fault: ids for fault, ids in faults.items() if ids},
    )
