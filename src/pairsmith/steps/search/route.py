"""The command ``search``: print the documents that a model ranks highest for a query.

corpus -> documents -> an index of their vectors or words -> queries -> the best documents for each query
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from io import TextIOWrapper
from pathlib import Path

import torch

from pairsmith.core.arrays import Float32s
from pairsmith.core.batches import in_batches
from pairsmith.core.errors import (
    InputError,
    ModelError,
    SettingsError,
    StorageError,
    counted,
    joined_names,
    one_line,
)
from pairsmith.core.model_names import GLOVE, model_revision
from pairsmith.core.paths import CACHE_VARIABLE, cache_folder, place
from pairsmith.core.progress import Progress
from pairsmith.core.text_width import cut_line
from pairsmith.data.beir import in_beir
from pairsmith.data.documents import Document
from pairsmith.data.kept_columns import kept_names
from pairsmith.data.query_rows import QueryRow, read_corpus, read_queries_to_search
from pairsmith.models.encode import encode_texts
from pairsmith.runs import resolve_dtype
from pairsmith.runs.storage import WORK_IS_KEPT, storage_errors
from pairsmith.search.bm25 import WordIndex, language_warning
from pairsmith.search.exact import Neighbours
from pairsmith.steps.evaluate.retrieval_settings import BM25
from pairsmith.steps.evaluate.retrievers import (
    QUERIES_AT_ONCE,
    Places,
    comparison_vectors,
    document_vectors,
    kept_vectors,
    nearest_with,
    ranking_order,
    retrieval_encoder,
)
from pairsmith.steps.kept_vectors import BLOCK, KeptVectors
from pairsmith.steps.search.settings import SearchSettings
from pairsmith.steps.shared import naming_texts

STANDARD_INPUT = "-"
PROMPT = "query> "
_OWN_NAMES = ("query", "documents")
"""Names of the search's own values in a JSON object; a kept column with one of them is renamed."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A document that is ranked high for a query, and its score; higher scores are better."""

    document: Document
    score: float


def search_documents(
    settings: SearchSettings, texts: Sequence[str], progress: Progress, *, as_json: bool = False
) -> None:
    """Print the ``settings.best`` documents for each query.

    The queries are ``texts`` and those of the file ``settings.queries``. Without any, the user types queries
    on the terminal, until one is empty. With ``as_json``, each line of the output is a JSON object with a
    query, the other columns of its row, and its documents.
    """
    settings = resolve_dtype(settings)
    if as_json and isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # the encoding of JSON, whatever the terminal's is
    queries = [QueryRow(_checked(query), {}) for query in texts]
    if settings.queries is not None:
        queries += queries_of(settings.queries, progress.say, with_others=as_json)
    names = kept_names(dict.fromkeys(name for row in queries for name in row.others), _OWN_NAMES)
    if not queries and not _on_terminal():
        raise SettingsError('no query is given; add one, as in pairsmith search … "a query", or --queries')
    documents = read_corpus(
        settings.corpus, settings.corpus_column, naming_texts("corpus_column"), progress.say
    )
    search = DocumentSearch(settings, documents, progress)

    def show(batch: Sequence[QueryRow], *, with_query: bool) -> None:
        for row, hits in zip(batch, search.best([row.query for row in batch]), strict=True):
            if as_json:
                # ``progress.result`` hides secrets and could replace a part of a string.
                print(_as_json(row, names, hits), flush=True)
            else:
                progress.result("\n".join(_lines(row.query, hits, with_query=with_query)))

    if not queries:
        progress.say("type a query; an empty line or Ctrl-D ends the search")
    for query in () if queries else typed_queries():
        show([QueryRow(query, {})], with_query=False)
    for batch in in_batches(queries, QUERIES_AT_ONCE):
        show(batch, with_query=len(queries) > 1)


def queries_of(source: str, say: Callable[[str], None], *, with_others: bool) -> list[QueryRow]:
    """Read the queries of a file or, for ``STANDARD_INPUT``, of the lines of standard input.

    Blank lines are left out, and so are rows whose query is blank, which ``say`` is told. The other columns
    of a file are read only ``with_others``.

    Raises:
        InputError: there are no queries.
    """
    if source != STANDARD_INPUT:
        blank: list[str] = []
        rows = read_queries_to_search(in_beir(source, "queries.jsonl"), blank.append, with_others=with_others)
        if blank:
            say(f"left out, as the query is blank: {joined_names(blank)}")
        return rows
    try:
        lines = sys.stdin.buffer.read().decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8 ({error.reason} at byte {error.start})") from None
    queries = [_checked(line) for line in lines if line.strip()]
    if not queries:
        raise InputError("standard input holds no queries; give one per line")
    return [QueryRow(query, {}) for query in queries]


def _on_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def typed_queries() -> Iterator[str]:
    """Yield the queries that are typed on the terminal, until an empty line or the end of the input."""
    with suppress(ImportError):
        import readline  # noqa: F401 - its import lets users edit lines and recall earlier ones
    while True:
        try:
            query = input(PROMPT).strip()
        except EOFError:
            print()
            return
        if not query:
            return
        yield _checked(query)


def _checked(query: str) -> str:
    """The query without surrounding white space; a ``SettingsError`` if it is blank or not UTF-8."""
    if not query.strip():
        raise SettingsError("a query is empty; give the words to search for")
    try:
        query.encode()
    except UnicodeEncodeError:
        raise SettingsError(f"the query {one_line(query)!r} is not UTF-8; type it again") from None
    return query.strip()


class DocumentSearch:
    """The documents, and the index with which queries are searched in them; the model is loaded once."""

    def __init__(
        self, settings: SearchSettings, documents: Mapping[str, Document], progress: Progress
    ) -> None:
        if not documents:
            raise InputError(f"{', '.join(settings.corpus)}: holds no documents with text")
        if "best" in settings.model_fields_set and settings.best > len(documents):
            raise SettingsError(
                f"--best {settings.best}: the corpus has only {counted(len(documents), 'documents')}; give "
                "this number or less"
            )
        ids, _ = ranking_order(documents)
        self._documents = [documents[name] for name in ids]
        self._count = min(settings.best, len(documents))
        if settings.model == BM25:
            texts = [document.whole for document in self._documents]
            if warning := language_warning(texts, settings.language):
                progress.say(warning)
            self._index: VectorIndex | WordIndex = WordIndex(texts, settings.language)
        else:
            texts_by_id = {name: document.whole for name, document in documents.items()}
            self._index = VectorIndex(settings, texts_by_id, progress)

    def best(self, queries: Sequence[str]) -> Iterator[list[Hit]]:
        """Yield the documents with the highest scores for each query, the best one first."""
        for places, scores in zip(*self._index.best(queries, self._count), strict=True):
            yield [
                Hit(self._documents[place], float(score))
                for place, score in zip(places, scores, strict=True)
                if place >= 0
            ]


class VectorIndex:
    """An index of the vectors of documents, searched by the cosine or dot product of an encoder."""

    def __init__(self, settings: SearchSettings, documents: Mapping[str, str], progress: Progress) -> None:
        if settings.model.startswith(GLOVE):
            raise ModelError(f"model {settings.model}: search takes no GloVe vectors; give an encoder")
        revision = model_revision(settings.model)
        self._encoder = retrieval_encoder(settings)
        self._encode = partial(encode_texts, self._encoder, batch_size=settings.batch_size)
        if not settings.keep_vectors:
            self._parts = self._encoded(documents, progress, None)
            return
        folder = place(settings.vectors) if settings.vectors else cache_folder() / "search"
        kept = kept_vectors(settings, folder, revision)
        try:
            if isinstance(folder, Path):
                with storage_errors(folder):  # other users may not read a folder that is created here
                    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._parts = self._encoded(documents, progress, kept)
        except StorageError as error:
            remedy = f"give --vectors or {CACHE_VARIABLE} another folder, or give --no-keep-vectors"
            why = str(error).removesuffix(f"; {WORK_IS_KEPT}")  # the search goes on
            progress.say(f"the documents' vectors cannot be kept: {why}\n{remedy}")
            try:  # vectors in a folder that cannot be written to are still read
                self._parts = self._encoded(documents, progress, replace(kept, writes=False))
            except StorageError:
                self._parts = self._encoded(documents, progress, None)

    def _encoded(
        self, documents: Mapping[str, str], progress: Progress, kept: KeptVectors | None
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Encode the documents: the parts of ``document_vectors``; ``kept`` is the store of vectors."""
        if kept:
            kept.has_all(in_batches(list(documents.values()), BLOCK), progress.say)
        with progress.task("encode", len(documents), "documents") as bar:
            return list(document_vectors(self._encoder, documents, self._encode, bar.advance, kept))

    def best(self, queries: Sequence[str], depth: int) -> tuple[Places, Float32s]:
        """The ``depth`` nearest documents of each of n queries.

        Returned are their places in the ranking order, and their scores, ``(n, depth)`` each, as in
        ``Rankings``.
        """
        x = comparison_vectors(self._encoder, queries, "query", self._encode(queries, side="query"))
        neighbours: Neighbours | None = None
        for numbers, y in self._parts:
            neighbours = nearest_with(x, y, numbers, neighbours, depth)
        assert neighbours is not None, "there is at least one document"
        return neighbours.ids.numpy(), neighbours.similarities.numpy()


# On the screen


def _as_json(row: QueryRow, names: Mapping[str, str], hits: Sequence[Hit]) -> str:
    """A query and its documents; ``names`` has the names under which the other columns are kept."""
    documents = [
        {
            "rank": rank,
            # Nine significant digits distinguish any two float32 numbers.
            "score": float(f"{hit.score:.9g}"),
            "id": hit.document.id,
            "title": hit.document.title,
            "document": hit.document.part_of,
            "text": hit.document.text,
        }
        for rank, hit in enumerate(hits, start=1)
    ]
    others = {names[name]: value for name, value in row.others.items()}
    return json.dumps({"query": row.query, **others, "documents": documents}, ensure_ascii=False)


def _lines(query: str, hits: Sequence[Hit], *, with_query: bool) -> Iterator[str]:
    """Two lines for each document: rank, score, id, title and source; then the beginning of its text.

    ``with_query`` adds a line with the query before them.
    """
    width = shutil.get_terminal_size().columns
    if with_query:
        yield cut_line(f"query: {one_line(query)}", width)
    if not hits:
        yield "no document contains a word of this query"
    rank_width = len(str(len(hits)))
    for rank, hit in enumerate(hits, start=1):
        about = (hit.document.id, hit.document.title, hit.document.part_of)
        head = "  ".join(one_line(part) for part in about if part)
        yield cut_line(f"{rank:>{rank_width}}  {hit.score:.4f}  {head}", width)
        yield cut_line(f"{'':{rank_width}}  {one_line(hit.document.text)}", width)
