"""The texts of evaluation data, with which the texts of training rows are compared."""

from collections.abc import Iterator, Mapping
from typing import Any

from pairsmith.core.errors import InputError
from pairsmith.core.paths import place
from pairsmith.data.sources import open_source
from pairsmith.data.squad import official
from pairsmith.data.sts import is_released, read_sts
from pairsmith.tools.report.rows import digest, grams, words

FEWEST = 4
"""Evaluation texts with fewer words are ignored, as they can match by chance."""
_NO_TEXT = ("id", "qid", "label", "split", "source")


def evaluation_texts(source: str) -> Iterator[str]:
    """All texts of evaluation data: the strings in all columns but ids and labels, also in lists and objects.

    Official SQuAD and MRQA files and the released STS test sets are read in their own formats.
    """
    path = place(source)
    if is_released(path):
        for suite in read_sts(path):
            for pair in suite.pairs:
                yield from (pair.sentence1, pair.sentence2)
        return
    before: Mapping[str, Any] = {}
    for _, row in (official(path) or open_source(source)).rows():
        for name, value in row.items():
            if name not in before or before[name] != value:  # a passage is repeated for each of its questions
                yield from _strings(value, name)
        before = row


def _strings(value: Any, name: str) -> Iterator[str]:
    if isinstance(value, str) and name not in _NO_TEXT:
        yield from value.split("\t")  # a line of a table without a header is one string
    elif isinstance(value, Mapping):
        for inner, part in value.items():
            yield from _strings(part, inner)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part, name)


def known_texts(source: str) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """Digests of the texts of evaluation data, and of all sequences of ``GRAM`` consecutive words in them."""
    texts: set[bytes] = set()
    runs: set[bytes] = set()
    for text in evaluation_texts(source):
        folded = words(text)
        if folded.count(" ") + 1 >= FEWEST:
            texts.add(digest(folded))
            runs.update(grams(folded))
    if not texts:
        raise InputError(
            f"--against {source}: no text in it has {FEWEST} words or more, so nothing can be compared; name "
            "other evaluation data"
        )
    return frozenset(texts), frozenset(runs)
