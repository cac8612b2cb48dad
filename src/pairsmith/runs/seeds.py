"""Random numbers that depend only on the seed and on what they are drawn for.

A draw is a pure function of (seed, stream, position). A stream is identified by what it is for (row id,
label, try), so neither the worker, the batch, the order of work nor PYTHONHASHSEED can change a row. The
generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), computed for
many streams at once.
"""

from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s

_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = 0x9E3779B9
_WEYL_1 = 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)
_WORD = np.uint64(32)


def stream_key(*parts: str | int) -> int:
    """The 64-bit key of the stream that ``parts`` describe; ``("ab", "c")`` and ``("a", "bc")`` differ."""
    digest = blake2b(digest_size=8)
    for part in parts:
        data = str(part).encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return int.from_bytes(digest.digest(), "little")


def generator(seed: int, *parts: str | int) -> np.random.Generator:
    """A NumPy generator for the stream that ``parts`` identify, for shuffling and sampling."""
    return np.random.Generator(np.random.Philox(key=stream_key(seed, *parts)))


def philox(counter: NDArray[np.uint64], key: tuple[int, int]) -> NDArray[np.uint64]:
    """Philox4x32-10 of a ``counter``, ``(n, 4)`` uint64, and a ``key``.

    The result is ``(n, 4)`` uint64. All numbers of the arguments and of the result are below 2**32.
    """
    c0, c1, c2, c3 = (counter[:, i].astype(np.uint64) for i in range(4))
    k0, k1 = key
    for _ in range(10):
        product_0, product_1 = _MULTIPLIER_0 * c0, _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> _WORD) ^ c1 ^ np.uint64(k0),
            product_1 & _LOW,
            (product_0 >> _WORD) ^ c3 ^ np.uint64(k1),
            product_0 & _LOW,
        )
        k0, k1 = (k0 + _WEYL_0) & 0xFFFFFFFF, (k1 + _WEYL_1) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1)


def uniforms(seed: int, streams: NDArray[np.uint64], positions: NDArray[np.int64]) -> Float64s:
    """One uniform draw from [0, 1) for each stream, at its position: ``(n,)`` float64 with 53 random bits.

    Args:
        seed: the seed, 0 to 2**64 - 1.
        streams: the keys of the streams, ``(n,)`` uint64, from ``stream_key``.
        positions: the index of each draw in its stream, ``(n,)`` int64, 0 to 2**63 - 1.
    """
    place = positions.astype(np.uint64)
    counter = np.stack([streams & _LOW, streams >> _WORD, place & _LOW, place >> _WORD], axis=1)
    words = philox(counter, (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))
    bits = (words[:, 0] >> np.uint64(5)) << np.uint64(26) | words[:, 1] >> np.uint64(6)
    return bits.astype(np.float64) * 2.0**-53
