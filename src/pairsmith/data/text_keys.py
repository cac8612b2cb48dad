"""64-bit keys of texts and of ids, with which many texts are compared as arrays of numbers."""

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
    """The key of each of n texts, ``(n,)`` uint64: the number that its ``text_id`` is in hexadecimal digits.

    A text that is itself such an id, 16 hexadecimal digits, has the number of this id as its key. Equal texts
    have equal keys on every machine. Different texts may have equal keys, but are as unlikely to as different
    ids: among 550 million texts, the probability that two have the same key is below 1 %. ``texts`` are
    strings without nulls.
    """
    chunks = [_chunk_keys(chunk) for chunk in texts.iterchunks()]
    return np.concatenate([np.zeros(0, np.uint64), *chunks])


def keys_of_list(texts: Sequence[str]) -> TextKeys:
    """The ``text_keys`` of a list of n texts, ``(n,)`` uint64."""
    return text_keys(pa.chunked_array([pa.array(texts, pa.string())]))


def copy_keys(texts: Sequence[str]) -> tuple[TextKeys, TextKeys]:
    """Two keys of each of n texts by which copies are recognised, ``(n,)`` uint64 each.

    The first is the key of the text, the second that of the text without its first line, which may be a
    title. Both ignore case, spaces and punctuation. For a text of one line the two keys are equal.
    """
    rests = [text.partition("\n")[2].strip() for text in texts]
    folded_texts = [folded(text) for text in texts]
    folded_rests = [folded(rest) if rest else text for rest, text in zip(rests, folded_texts, strict=True)]
    return keys_of_list(folded_texts), keys_of_list(folded_rests)


def _chunk_keys(texts: pa.Array) -> TextKeys:
    if not len(texts):
        return np.zeros(0, np.uint64)
    encoded = texts.cast(pa.large_binary())
    _, offsets, data = encoded.buffers()
    edges = np.frombuffer(offsets, np.int64)[encoded.offset : encoded.offset + len(encoded) + 1]
    characters = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    long_as_id = np.flatnonzero(np.diff(edges) == ID_LENGTH)
    values = _DIGITS[characters[edges[long_as_id, None] + np.arange(ID_LENGTH)]]
    is_id = (values < _NO_DIGIT).all(axis=1)
    keys = np.empty(len(encoded), np.uint64)
    keys[long_as_id[is_id]] = (values[is_id, ::2] << 4 | values[is_id, 1::2]).view(">u8").ravel()
    others = np.ones(len(encoded), bool)
    others[long_as_id[is_id]] = False
    if others.any():
        # Each distinct text is hashed once; many columns, such as those of groups, have few distinct texts.
        coded = encoded.filter(pa.array(others)).dictionary_encode()
        digests = b"".join(sha256(text).digest()[: ID_LENGTH // 2] for text in coded.dictionary.to_pylist())
        keys[others] = np.frombuffer(digests, ">u8")[coded.indices.to_numpy()]
    return keys
