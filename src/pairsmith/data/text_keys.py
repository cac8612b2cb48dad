"""64-bit keys of texts and of their ids, so that many are compared without Python objects."""

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.data.readers import ID_LENGTH
from pairsmith.data.text.folding import folded

TextKeys = NDArray[np.uint64]

_NO_DIGIT = 16
_DIGITS = np.full(256, _NO_DIGIT, np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def text_keys(texts: pa.ChunkedArray) -> TextKeys:
    """A number for each text, ``(n,)``: that of its ``text_id``; an id of 16 digits keeps its number.

    Equal texts have equal keys, on every machine. Different texts have different ones as surely as different
    ids: of 550 million, two share a key with a probability below 1 %. ``texts`` are strings without nulls.
    """
    chunks = [_chunk_keys(chunk) for chunk in texts.iterchunks()]
    return np.concatenate([np.zeros(0, np.uint64), *chunks])


def keys_of_list(texts: Sequence[str]) -> TextKeys:
    """The ``text_keys`` of a list of texts, ``(n,)``."""
    return text_keys(pa.chunked_array([pa.array(texts, pa.string())]))


def copy_keys(texts: Sequence[str]) -> tuple[TextKeys, TextKeys]:
    """Keys by which copies of texts are known: those of the texts, and those without the first line.

    They are ``(n,)`` each, of the texts without case, spaces and punctuation. The first line is that of a
    title, where there is one; a text of one line has the same key twice.
    """
    rests = [text.partition("\n")[2].strip() for text in texts]
    plain = [folded(text) for text in texts]
    plain_rests = [folded(rest) if rest else whole for rest, whole in zip(rests, plain, strict=True)]
    return keys_of_list(plain), keys_of_list(plain_rests)


def _chunk_keys(texts: pa.Array) -> TextKeys:
    if not len(texts):
        return np.zeros(0, np.uint64)
    plain = texts.cast(pa.large_binary())
    _, where, data = plain.buffers()
    edges = np.frombuffer(where, np.int64)[plain.offset : plain.offset + len(plain) + 1]
    letters = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    long = np.flatnonzero(np.diff(edges) == ID_LENGTH)
    values = _DIGITS[letters[edges[long, None] + np.arange(ID_LENGTH)]]
    is_id = (values < _NO_DIGIT).all(axis=1)
    keys = np.empty(len(plain), np.uint64)
    keys[long[is_id]] = (values[is_id, ::2] << 4 | values[is_id, 1::2]).view(">u8").ravel()
    others = np.ones(len(plain), bool)
    others[long[is_id]] = False
    if others.any():
        coded = plain.filter(pa.array(others)).dictionary_encode()  # e.g. the same group in all rows
        digests = b"".join(sha256(text).digest()[: ID_LENGTH // 2] for text in coded.dictionary.to_pylist())
        keys[others] = np.frombuffer(digests, ">u8")[coded.indices.to_numpy()]
    return keys
