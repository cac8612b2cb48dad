"""Test sets of retrieval in BEIR's layout: documents, queries, and which documents are relevant to a query.

A folder has ``corpus.jsonl`` (``_id``, ``title``, ``text``), ``queries.jsonl`` (``_id``, ``text``) and
``qrels/SPLIT.tsv``, a table with the header query-id, corpus-id, score; each file may be ``.gz``. On the Hub
the three are the configurations ``corpus``, ``queries`` and ``default`` or ``qrels`` of one data set, or the
relevance is in a data set of its own, ``NAME-qrels``.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pairsmith.core.errors import InputError, joined_names, known_names_hint
from pairsmith.core.paths import Place, display_name, inside, is_folder, place, reaching, size_of
from pairsmith.core.progress import Say
from pairsmith.data.documents import with_title
from pairsmith.data.readers import column_text, find_column, parse_score, with_names
from pairsmith.data.sources import (
    Columns,
    Source,
    is_hub_data,
    missing_source,
    open_source,
    open_table,
    plain_or_gzip,
)

_ID = ("_id", "id")
_QRELS = ("query-id", "corpus-id", "score")
_NAMED = 3
"""Largest number of ids that a message names."""

UNANSWERED = "queries without a relevant document"
BLANK_QUERIES = "queries without text"
BLANK_DOCUMENTS = "documents without text"
UNKNOWN_QUERIES = "judged queries that are not among the queries"
UNKNOWN_DOCUMENTS = "relevant documents that are not in the corpus"
REPEATED = "rows that repeat an earlier one"

_CONSEQUENCES = {
    UNANSWERED: "they are left out",
    BLANK_QUERIES: "they are left out",
    BLANK_DOCUMENTS: "they are never retrieved",
    UNKNOWN_QUERIES: "they are left out",
    UNKNOWN_DOCUMENTS: "they count as not retrieved",
    REPEATED: "they count once",
}
"""How each kind of fault in the data is handled, for messages."""


@dataclass(frozen=True, slots=True)
class RetrievalSet:
    """A test set of retrieval.

    Attributes:
        name: the name of the data set, for messages.
        documents: for each document id, the document's title and text as one text, in the order of the
            corpus.
        queries: for each query id, the text of the query. Only queries that can be evaluated are included.
        relevance: for each query id, the relevance grades of the judged documents by their ids. A document
            is relevant if its grade is above 0; every query has at least one relevant document.
        faults: for each description of a fault, such as ``UNANSWERED``, the ids of the queries, documents
            or judgements that have it.
    """

    name: str
    documents: Mapping[str, str]
    queries: Mapping[str, str]
    relevance: Mapping[str, Mapping[str, int]]
    faults: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def tell(self, say: Say) -> None:
        """Report each fault of the data, and how it is handled, by calling ``say``."""
        for fault, ids in self.faults.items():
            named = ", ".join(ids[:_NAMED]) + (", …" if len(ids) > _NAMED else "")
            say(f"{self.name}: {fault}: {len(ids):,} ({named}); {_CONSEQUENCES[fault]}")

    def digest(self) -> str:
        """SHA-256 of the documents, queries and relevance grades, as hexadecimal digits.

        The digest does not depend on the format of the files.
        """
        digest = hashlib.sha256()
        for part in (self.documents, self.queries, self.relevance):
            for entry in sorted(part.items()):
                digest.update(json.dumps(entry, sort_keys=True).encode() + b"\n")
            digest.update(b"\n")
        return digest.hexdigest()


def read_retrieval(data: str, split: str | None = None, say: Say = lambda _: None) -> RetrievalSet:
    """Read a test set of retrieval from a folder or the Hub.

    Args:
        data: a folder in BEIR's layout, or a Hub data set ``org/name``.
        split: the split whose judgements are read; None: ``test``, or the only split of a folder.
        say: is called with a message if ``split`` is None and the only split of a folder is not ``test``.
    """
    corpus, queries, qrels = (
        _on_hub(data, split or "test") if is_hub_data(data) else _in_folder(data, split, say)
    )
    faults: dict[str, list[str]] = defaultdict(list)
    documents = _texts(corpus, faults)
    if not any(documents.values()):
        raise InputError(f"{corpus.name} holds no documents" + (" with text" if documents else ""))
    query_texts = _texts(queries, faults)
    judged = _judgements(qrels, faults)
    faults[UNKNOWN_QUERIES] = [query for query in judged if query not in query_texts]
    grades_of = {query: grades for query, grades in judged.items() if query in query_texts}
    relevant = {
        query: [document for document, grade in grades.items() if grade > 0]
        for query, grades in grades_of.items()
    }
    faults[UNANSWERED] = [query for query in relevant if not relevant[query]]
    faults[BLANK_QUERIES] = [query for query in relevant if relevant[query] and not query_texts[query]]
    evaluated = [query for query in relevant if relevant[query] and query_texts[query]]
    if not evaluated:
        raise InputError(
            f"{qrels.name}: none of its {len(judged):,} queries has a relevant document and a text in "
            f"{queries.name}; are these files of the same data set?"
        )
    all_relevant = dict.fromkeys(document for query in evaluated for document in relevant[query])
    faults[UNKNOWN_DOCUMENTS] = [document for document in all_relevant if document not in documents]
    if len(faults[UNKNOWN_DOCUMENTS]) == len(all_relevant):
        raise InputError(
            f"{qrels.name}: none of its {len(all_relevant):,} relevant documents is in {corpus.name}, the "
            f"first is {next(iter(all_relevant))!r}; are these files of the same data set?"
        )
    faults[BLANK_DOCUMENTS] = [document for document, text in documents.items() if not text]
    return RetrievalSet(
        data,
        documents,
        {query: query_texts[query] for query in evaluated},
        {query: grades_of[query] for query in evaluated},
        {fault: ids for fault, ids in faults.items() if ids},
    )


def _in_folder(data: str, split: str | None, say: Say) -> tuple[Source, Source, Source]:
    """The corpus, the queries and the judgements in a folder of BEIR's layout."""
    folder = place(data)
    with reaching(folder, InputError):
        if not is_folder(folder):
            raise (
                InputError(f"{folder} is a file; {_EXPECTED}")
                if size_of(folder) is not None
                else missing_source(folder)
            )
        splits = {
            display_name(file).removesuffix(".gz").removesuffix(".tsv"): file
            for file in (inside(folder / "qrels") if is_folder(folder / "qrels") else [])
            if display_name(file).endswith((".tsv", ".tsv.gz"))
        }
        corpus, queries = (open_source(_file(folder, f"{name}.jsonl")) for name in ("corpus", "queries"))
    if not splits:
        raise InputError(f"{folder} has no qrels/*.tsv; {_EXPECTED}")
    chosen = split or "test"
    if split is None and chosen not in splits and len(splits) == 1:
        (chosen,) = splits
        say(f"{folder}: the queries of its only split, {chosen}, are evaluated")
    if chosen not in splits:
        raise InputError(f"{folder} has no split {chosen!r}; {known_names_hint(chosen, splits)}")
    return corpus, queries, open_table(splits[chosen])


_EXPECTED = "expected a folder in BEIR's layout: corpus.jsonl, queries.jsonl and qrels/test.tsv"


def _file(folder: Place, name: str) -> Place:
    file = plain_or_gzip(folder, name)
    if file is None:
        raise InputError(f"{folder} has no {name}; {_EXPECTED}")
    return file


def _on_hub(data: str, split: str) -> tuple[Source, Source, Source]:
    """The corpus, the queries and the judgements of a Hub data set, in the layout of BEIR or of mteb."""
    if ":" in data:
        raise InputError(f"{data}: give the name of the data set alone, and the split as --split")
    return (
        _first(f"{data}/corpus:{name}" for name in ("corpus", split, "train")),
        _first(f"{data}/queries:{name}" for name in ("queries", split, "train")),
        _first([f"{data}/default:{split}", f"{data}/qrels:{split}", f"{data}-qrels:{split}"]),
    )


def _first(names: Iterable[str]) -> Source:
    """The first of these Hub data sets whose rows can be read.

    Raises:
        InputError: none can be read; the error is that of the first name.
    """
    first_error: InputError | None = None
    for name in names:
        source = open_source(name)
        try:
            next(source.rows(), None)
        except InputError as error:
            first_error = first_error or error
        else:
            return source
    assert first_error is not None
    raise first_error


def _texts(source: Source, faults: dict[str, list[str]]) -> dict[str, str]:
    """For each row's id, the row's text, with its title on a line before it if it has one."""
    texts: dict[str, str] = {}
    for where, row, (id_column, text_column) in with_names(source, _ID, ["text"]):
        row_id = _id(row, id_column, where)
        title_column = find_column(row, ["title"])
        title = column_text(row, title_column, where) if title_column else ""
        text = with_title(title, column_text(row, text_column, where))
        if row_id not in texts:
            texts[row_id] = text
        elif texts[row_id] == text:
            faults[REPEATED].append(row_id)
        else:
            raise InputError(
                f"{where}: an earlier row has the same id, {row_id!r}, and another text; give each text an "
                "id of its own"
            )
    return texts


def _judgements(source: Source, faults: dict[str, list[str]]) -> dict[str, dict[str, int]]:
    """For each query id, the relevance grades of the judged documents by their ids."""
    judged: dict[str, dict[str, int]] = defaultdict(dict)
    for where, row in source.rows():
        if not judged and not set(_QRELS) <= row.keys():
            raise InputError(
                f"{source.name} has the columns {joined_names(row)}; expected {', '.join(_QRELS)}. The first "
                "line of a file has to be this header, separated by tabs"
            )
        query, document = _id(row, "query-id", where), _id(row, "corpus-id", where)
        grade = parse_score(row.get("score"), where)
        if not grade.is_integer():
            raise InputError(f"{where}: the relevance is {grade:g}; it has to be a whole number")
        if document not in judged[query]:
            judged[query][document] = int(grade)
        elif judged[query][document] == grade:
            faults[REPEATED].append(f"{query} {document}")
        else:
            raise InputError(
                f"{where}: an earlier row gives query {query!r} and document {document!r} another relevance; "
                "keep one of the two rows"
            )
    if not judged:
        raise InputError(f"{source.name} holds no judgements")
    return judged


def _id(row: Columns, column: str, where: str) -> str:
    """The id in a column, as text; the column may hold numbers."""
    value = row.get(column)
    text = str(value) if isinstance(value, int) else column_text(row, column, where)
    if not text:
        raise InputError(f"{where}: {column} is blank; give an id or drop the row")
    return text


def in_beir(source: str, name: str = "corpus.jsonl") -> str:
    """The path of ``name``, or else of ``name.gz``, in a folder of BEIR's layout; any other source unchanged.

    A source is taken for such a folder if it is a folder that holds one of these files.
    """
    folder = place(source)
    file = plain_or_gzip(folder, name) if is_folder(folder) else None
    return source if file is None else str(file)
