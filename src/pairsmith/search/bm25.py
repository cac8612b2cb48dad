"""BM25, which ranks documents by the words that they share with a query."""

import importlib.util
import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import MissingExtra
from pairsmith.data.text.words import MARKS, UNSPACED, terms

K1, B = 0.9, 0.4
"""Parameters of BM25: the values with which BM25 was published for BEIR's data sets."""


def bm25_revision() -> str:
    """The package and version that computes BM25."""
    for module, package in (("bm25s", "bm25s"), ("Stemmer", "PyStemmer")):
        if importlib.util.find_spec(module) is None:
            raise MissingExtra(package, "eval")
    return f"bm25s {version('bm25s')}"


_FIRST, _FEWEST_WORDS, _LEAST_SHARE = 500, 50, 0.07
_TOKEN = rf"[\w{MARKS}]{{2,}}|[{UNSPACED}]"
_RUN = re.compile(f"[{UNSPACED}]+")
_CAPITAL_I = str.maketrans({"I": "ı", "İ": "i"})
"""Lower case of the two letters that Turkish alone writes otherwise."""


def _prepared(text: str, language: str) -> str:
    """A text of whose words ``_TOKEN`` finds each, with composed letters (NFC)."""
    if text.isascii() and language != "turkish":
        return text
    text = unicodedata.normalize("NFC", text)
    if language == "turkish":
        text = text.translate(_CAPITAL_I)
    return _RUN.sub(lambda run: f" {' '.join(terms(run[0]))} ", text)


def language_warning(documents: Sequence[str], language: str) -> str:
    """A warning if the first documents seem to be in another language than ``language``, else empty.

    It is given if they have fewer stop words of this language than a text in it has. In English
    texts 15 to 40 % of the words are on the list of English stop words, in German ones about 3 %.
    """
    if language == "none":
        return ""
    bm25_revision()
    import bm25s

    first = [_prepared(document, language) for document in documents[:_FIRST]]
    split = partial(bm25s.tokenize, first, token_pattern=_TOKEN, return_ids=False, show_progress=False)
    total = sum(map(len, split(stopwords=None)))
    others = sum(map(len, split(stopwords=language)))
    if total < _FEWEST_WORDS or total - others >= _LEAST_SHARE * total:
        return ""
    return (
        f"only {100 * (total - others) / total:.1f} % of the first documents' words are stop words of "
        f"{language}, so they may be in another language: give it as --language, or none for a language that "
        "is not listed there"
    )


class WordIndex:
    """An index of the words of documents, for BM25.

    Words of two letters or more are lower-cased. Stop words of ``language`` are left out and the others are
    stemmed; with the language ``none``, neither is done. In scripts without spaces between words, such as
    Chinese, Japanese and Thai, each two neighbouring letters count as a word.
    """

    def __init__(self, documents: Sequence[str], language: str) -> None:
        bm25_revision()
        import bm25s
        import Stemmer

        plain = language == "none"
        self._language = language
        self._tokenize = partial(
            bm25s.tokenize,
            token_pattern=_TOKEN,
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

    def _words(self, texts: Sequence[str]) -> Sequence[Sequence[str]]:
        words: Sequence[Sequence[str]] = self._tokenize([_prepared(text, self._language) for text in texts])
        return words

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
