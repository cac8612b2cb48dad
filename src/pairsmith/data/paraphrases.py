"""Reading pairs of texts that people labelled as paraphrases or not (Q8, Q9).

MRPC as it was released, PAWS, Quora's questions, and any file with two columns of texts and a column of
labels can be read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place, data_suffix, place, reaching, size_of
from pairsmith.data.lines import read_lines
from pairsmith.data.readers import at_least_one, find_column, own_id, same_column, two_texts, with_names
from pairsmith.data.sources import Columns, Source, open_source, open_table
from pairsmith.data.text.words import terms

_FIRST = ("sentence1", "question1", "#1 String", "text1")
_SECOND = ("sentence2", "question2", "#2 String", "text2")
LABELS = ("label", "is_duplicate", "Quality")
"""Names of the column that says whether the two texts of a pair are paraphrases."""
_CANDIDATES = 50
"""A negative is drawn from this many texts, the most similar ones."""
_AT_ONCE = 100
"""Number of texts that are compared with all others in one matrix product."""
_VALUES = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


@dataclass(frozen=True, slots=True)
class Paraphrase:
    """A pair of texts, and whether they are paraphrases."""

    sentence1: str
    sentence2: str
    label: bool | None  # whether they are paraphrases; None if the source has no labels
    id: str = ""  # empty if the row has none


def read_paraphrases(source: str | Place) -> Iterator[Paraphrase]:
    """Read pairs of texts with labels, which are 0 or 1, or true or false.

    All pairs of a source without labels are taken for paraphrases, and their ``label`` is None. The pairs are
    in the order of the source.

    ``source`` is as for ``read_texts``, or one of MRPC's text files, which are recognised by their header.
    The columns of the texts are the first that exist of ``_FIRST`` and ``_SECOND``, such as sentence1 and
    sentence2, or question1 and question2; that of the labels is the first of ``LABELS``.
    """
    path = place(source)
    opened = open_table(path) if _is_table(path) else open_source(source)
    return at_least_one(_paraphrases(opened), f"{opened.name} holds no pairs of texts")


def _is_table(path: Place) -> bool:
    """Whether a text file begins with a header that names two columns of texts, as MRPC's files do."""
    with reaching(path, InputError):
        if data_suffix(path) != ".txt" or size_of(path) is None:
            return False
    _, first_line = next(read_lines(path), (1, ""))
    header = dict.fromkeys(name.strip() for name in first_line.split("\t"))
    return None not in (find_column(header, _FIRST), find_column(header, _SECOND))


def _paraphrases(source: Source) -> Iterator[Paraphrase]:
    label: str | None = None
    for number, (where, row, names) in enumerate(with_names(source, _FIRST, _SECOND)):
        found = find_column(row, LABELS)
        label = same_column(label, found, where) if number else found
        texts = two_texts(row, names, where)
        is_paraphrase = None if label is None else _label(row, label, where)
        yield Paraphrase(*texts, is_paraphrase, own_id(row, where))


def _label(row: Columns, name: str, where: str) -> bool:
    value = row.get(name)
    label = _VALUES.get(str(value).strip().casefold())
    if label is None:
        raise InputError(f"{where}: {name} is {str(value)[:40]!r}; expected 1 (a paraphrase) or 0")
    return label


def paraphrase_pairs(source: str, seed: int) -> tuple[list[Paraphrase], str]:
    """The pairs of ``source``, and the origin of its negatives: ``people`` or ``sampled``.

    If the source has no labels, negatives are sampled (``with_negatives``) with the random seed ``seed``.

    Raises:
        InputError: all labels are equal, or there are no words by which negatives could be sampled.
    """
    pairs = list(read_paraphrases(source))
    if pairs[0].label is None:
        if not any(terms(text) for pair in pairs for text in (pair.sentence1, pair.sentence2)):
            raise InputError(
                f"{source}: the texts hold no words, so no negatives can be sampled; add a column label"
            )
        try:
            return with_negatives(pairs, seed), "sampled"
        except InputError as error:
            raise InputError(f"{source}: {error}") from None
    labels = {pair.label for pair in pairs}
    if len(labels) < 2:
        raise InputError(
            f"{source}: all {len(pairs):,} pairs have the label {int(bool(pairs[0].label))}; pairs with both "
            "labels, 0 and 1, are needed"
        )
    return pairs, "people"


def with_negatives(pairs: Sequence[Paraphrase], seed: int) -> list[Paraphrase]:
    """The pairs, labelled as paraphrases, followed by one sampled negative for each pair.

    Each first text is paired with the second text of another pair, drawn from the ``_CANDIDATES`` second
    texts with the largest tf-idf cosine, so that not every negative is easy. Some sampled negatives may be
    paraphrases in fact, so figures on them must be reported as figures on sampled negatives.

    Args:
        pairs: at least 2 distinct pairs, with at least one word in their texts.
        seed: random seed of the draws.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    firsts, seconds = [pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs]
    vectors = TfidfVectorizer(tokenizer=terms, token_pattern=None).fit([*firsts, *seconds])
    a, b = vectors.transform(firsts), vectors.transform(seconds)
    rng = np.random.default_rng(seed)
    paraphrases_of: dict[str, set[str]] = {}
    for pair in pairs:
        paraphrases_of.setdefault(pair.sentence1, {pair.sentence1}).add(pair.sentence2)
    negatives = []
    for top in range(0, len(pairs), _AT_ONCE):
        ranked = np.argsort(-(a[top : top + _AT_ONCE] @ b.T).toarray(), axis=1, kind="stable")
        for first, order in zip(firsts[top : top + _AT_ONCE], ranked, strict=True):
            others = (seconds[index] for index in order if seconds[index] not in paraphrases_of[first])
            candidates = list(islice(others, _CANDIDATES))
            if not candidates:
                raise InputError(
                    f"there are too few texts to find one that is not a paraphrase of {first[:60]!r}; "
                    "give more pairs, or labels"
                )
            drawn = candidates[int(rng.integers(len(candidates)))]
            negatives.append(Paraphrase(first, drawn, label=False))
    return [Paraphrase(pair.sentence1, pair.sentence2, label=True) for pair in pairs] + negatives
