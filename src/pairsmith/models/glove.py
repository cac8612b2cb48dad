"""A baseline: a sentence's vector is the average of the GloVe vectors of its words (D12)."""

import gzip
import re
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np

from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import InputError, first_line

# GloVe was trained on texts in which contractions are separated: "don't" is "do" and "n't".
_WORD = re.compile(r"[\w-]+?(?=n't)|n't|'\w+|\w+(?:-\w+)*|[^\w\s]", re.IGNORECASE)


def encode_with_glove(path: Path, sentences: Sequence[str]) -> Float32s:
    """The average word vector of each of n sentences: ``(n, d)`` float32 (D12).

    A word is looked up as written, then in lower case; words without a vector are left out. The vector of a
    sentence without any known word is zero.

    Args:
        path: a text file, plain or ``.gz``, with a line ``word v1 … vd`` for each word; the first line may be
            ``count d``.
        sentences: the n sentences.
    """
    words = [split_words(sentence) for sentence in sentences]
    forms = {form for row in words for word in row for form in (word, word.lower())}
    vectors = read_vectors(path, forms)
    if not vectors:
        raise InputError(
            f"{path}: holds no vector for any word of the sentences; is it a file of word vectors?"
        )
    averages = np.zeros((len(words), len(next(iter(vectors.values())))), np.float32)
    for row, average in zip(words, averages, strict=True):
        known_forms = [word if word in vectors else word.lower() for word in row]
        if word_vectors := [vectors[form] for form in known_forms if form in vectors]:
            average[:] = np.mean(word_vectors, axis=0, dtype=np.float32)
    return averages


def split_words(sentence: str) -> list[str]:
    """The words and punctuation marks of a sentence, in order, with letter case kept."""
    return _WORD.findall(sentence)


def read_vectors(path: Path, wanted: Set[str]) -> dict[str, Float32s]:
    """The vectors of the ``wanted`` words, each ``(d,)`` float32; other words are skipped."""
    keys = {word.encode(): word for word in wanted}
    vectors: dict[str, Float32s] = {}
    size: int | None = None
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            fields = line.split()
            if not fields:
                continue
            if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                continue  # word2vec's ``count d``
            size = len(fields) - 1 if size is None else size
            if len(fields) - 1 != size:
                _check_width(fields, size, f"{path}:{number}")
                continue
            word = keys.get(fields[0])
            if word is not None and word not in vectors:
                vectors[word] = _vector(fields[1:], f"{path}:{number}")
    return vectors


def _check_width(fields: list[bytes], size: int, where: str) -> None:
    """Raise an ``InputError`` for a line with another number of values than the lines before.

    A line with more fields is skipped if its second is no number: a few words of the largest GloVe file
    contain spaces.
    """
    if len(fields) - 1 > size and not _is_number(fields[1]):
        return
    raise InputError(
        f"{where}: {len(fields) - 1} values, where the lines before have {size}; is the file cut off?"
    )


def _vector(fields: list[bytes], where: str) -> Float32s:
    try:
        vector = np.array([float(field) for field in fields], dtype=np.float32)
    except ValueError as error:
        raise InputError(f"{where}: a value is not a number ({first_line(error)})") from None
    if not np.isfinite(vector).all():
        raise InputError(f"{where}: a value is not finite")
    return vector


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with path.open("rb") as plain:
            yield cast(IO[bytes], gzip.GzipFile(fileobj=plain)) if path.suffix == ".gz" else plain
    except (OSError, EOFError) as error:
        raise InputError(f"{path}: cannot be read as word vectors ({first_line(error)})") from error
