"""BM25, which ranks documents by the words that they share with a query."""

import importlib.util
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import MissingExtra

K1, B = 0.9, 0.4
"""Parameters of BM25: the values with which BM25 was published for BEIR's data sets."""


def bm25_revision() -> str:
    """The package and version that computes BM25."""
    for module, package in (("bm25s", "bm25s"), ("Stemmer", "PyStemmer")):
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(package, "eval")
    return f"bm25s {version('bm25s')}"


class WordIndex:
    """An index of the words of documents, for BM25.

    Words of two letters or more are lower-cased. Stop words of ``language`` are left out and the others are
    stemmed; with the language ``none``, neither is done.
    """

    def __init__(self, documents: Sequence[str], language: str) -> None:
        bm25_revision()
        import bm25s
        import Stemmer

        plain = language == "none"
        self._words = partial(
            bm25s.tokenize,
            stopwords=None if plain else language,
            stemmer=None if plain else Stemmer.Stemmer(language),
            return_ids=False,
            show_progress=False,
        )
        corpus = self._words(documents)
        self._index: Any = None
        if any(corpus):  # without any word there is nothing to find
            self._index = bm25s.BM25(k1=K1, b=B)
            self._index.index(corpus, show_progress=False)

    def best(
        self, queries: Sequence[str], depth: int, advance: Callable[[int], None] = lambda _: None
    ) -> tuple[NDArray[np.int64], Float32s]:
        """The ``depth`` documents with the highest BM25 for each query, best first.

        Both arrays are ``(queries, depth)``: the numbers of the documents, int64, and their BM25, float32. If
        fewer documents share a word with the query, the last places have the number -1 and the BM25 -inf.
        """
        places = np.full((len(queries), depth), -1, np.int64)
        scores = np.full((len(queries), depth), -np.inf, np.float32)
        if self._index is None:
            return places, scores
        for row, words in enumerate(self._words(queries)):
            if term_ids := self._index.get_tokens_ids(words):
                bm25 = self._index.get_scores_from_ids(term_ids)
                matching = np.flatnonzero(bm25 > 0)
                best = matching[np.argsort(-bm25[matching], kind="stable")[:depth]]
                places[row, : len(best)], scores[row, : len(best)] = best, bm25[best]
            advance(1)
        return places, scores
