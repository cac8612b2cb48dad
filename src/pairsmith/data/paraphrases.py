"""Pairs of texts that people labelled as paraphrases or not (Q8, Q9).

MRPC as it was released, PAWS, Quora's questions, and any file with two columns of texts and their labels.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place, place, reaching, size_of
from pairsmith.data.readers import at_least_one, find_column, given_id, two_texts, with_names
from pairsmith.data.sources import Columns, Source, data_suffix, open_source, open_table, read_lines

_FIRST = ("sentence1", "question1", "#1 String", "text1")
_SECOND = ("sentence2", "question2", "#2 String", "text2")
LABELS = ("label", "is_duplicate", "Quality")
"""Names of the column that says whether a pair is one of paraphrases."""
_NEAR = 50
"""Number of most similar texts from which a negative is drawn."""
_AT_ONCE = 100
"""Texts that are compared with all others at once."""
_WORD = re.compile(r"\w+")
_VALUES = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


@dataclass(frozen=True, slots=True)
class Paraphrase:
    """Two texts; ``label`` says whether they are paraphrases, None without a label."""

    sentence1: str
    sentence2: str
    label: bool | None
    id: str = ""  # empty where the row has none


def read_paraphrases(source: str | Place) -> Iterator[Paraphrase]:
    """Read pairs of texts with labels: 0 or 1, true or false; a file without labels has only paraphrases.

    ``source`` is as for ``read_texts``; the texts are called sentence1 and sentence2, or question1 and
    question2, and the label label or is_duplicate. Also MRPC's text files, which are known by their header.
    The pairs come in the order of the source, all with a label or all without.
    """
    path = place(source)
    opened = open_table(path) if _is_table(path) else open_source(source)
    return at_least_one(_paraphrases(opened), f"{opened.name} holds no pairs of texts")


def _is_table(path: Place) -> bool:
    """Whether a text file begins with a header that names two columns of texts, as those of MRPC do."""
    with reaching(path, InputError):
        if data_suffix(path) != ".txt" or size_of(path) is None:
            return False
    _, first = next(read_lines(path), (1, ""))
    header = dict.fromkeys(name.strip() for name in first.split("\t"))
    return None not in (find_column(header, _FIRST), find_column(header, _SECOND))


def _paraphrases(source: Source) -> Iterator[Paraphrase]:
    label: str | None = None
    for number, (where, row, names) in enumerate(with_names(source, _FIRST, _SECOND)):
        if not number:
            label = find_column(row, LABELS)
        texts = two_texts(row, names, where)
        is_paraphrase = None if label is None else _label(row, label, where)
        yield Paraphrase(*texts, is_paraphrase, given_id(row, where))


def _label(row: Columns, name: str, where: str) -> bool:
    value = row.get(name)
    label = _VALUES.get(str(value).strip().casefold())
    if label is None:
        raise InputError(f"{where}: {name} is {str(value)[:40]!r}; expected 1 (a paraphrase) or 0")
    return label


def paraphrase_pairs(source: str, seed: int) -> tuple[list[Paraphrase], str]:
    """The pairs of ``source``, and the origin of its negatives: ``people`` or ``sampled``."""
    pairs = list(read_paraphrases(source))
    if pairs[0].label is None:
        if not any(_WORD.search(text) for pair in pairs for text in (pair.sentence1, pair.sentence2)):
            raise InputError(
                f"{source}: the texts hold no words, so no negatives can be sampled; give labels"
            )
        return with_negatives(pairs, seed), "sampled"
    labels = {pair.label for pair in pairs}
    if len(labels) < 2:
        raise InputError(
            f"{source}: all {len(pairs):,} pairs have the label {int(bool(pairs[0].label))}; both labels "
            "are needed"
        )
    return pairs, "people"


def with_negatives(pairs: Sequence[Paraphrase], seed: int) -> list[Paraphrase]:
    """The pairs labelled as paraphrases, with as many sampled negatives.

    Each first text is paired with another pair's second text, drawn from the ``_NEAR`` ones with the largest
    tf-idf cosine, so that not every negative is easy. Some may be paraphrases that nobody has labelled, so
    figures on them must be reported as figures on sampled negatives. There must be 2 distinct pairs or
    more, and at least one word in them.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    firsts, seconds = [pair.sentence1 for pair in pairs], [pair.sentence2 for pair in pairs]
    vectors = TfidfVectorizer(token_pattern=_WORD.pattern).fit([*firsts, *seconds])
    a, b = vectors.transform(firsts), vectors.transform(seconds)
    rng = np.random.default_rng(seed)
    same: dict[str, set[str]] = {}
    for pair in pairs:
        same.setdefault(pair.sentence1, {pair.sentence1}).add(pair.sentence2)
    negatives = []
    for top in range(0, len(pairs), _AT_ONCE):
        ranked = np.argsort(-(a[top : top + _AT_ONCE] @ b.T).toarray(), axis=1, kind="stable")
        for first, order in zip(firsts[top : top + _AT_ONCE], ranked[:, : 2 * _NEAR], strict=True):
            others = [seconds[index] for index in order if seconds[index] not in same[first]][:_NEAR]
            if not others:
                raise InputError(
                    f"there are too few texts to find one that is not a paraphrase of {first[:60]!r}; "
                    "give more pairs, or labels"
                )
            negatives.append(Paraphrase(first, others[int(rng.integers(len(others)))], label=False))
    return [Paraphrase(pair.sentence1, pair.sentence2, label=True) for pair in pairs] + negatives
