"""Cosine similarity of rows."""

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s


def cosine_similarity_rows(a: NDArray[np.floating], b: NDArray[np.floating]) -> Float64s:
    """The cosine of each row of ``a`` with the same row of ``b``: ``(n,)`` float64, in [-1, 1] (D11).

    ``a`` and ``b`` are ``(n, d)`` of any floating dtype. The cosine of a zero vector with any other is 0.

    Raises:
        ValueError: the shapes differ, or are not ``(n, d)``.
    """
    if a.ndim != 2 or a.shape != b.shape:
        raise ValueError(f"expected two arrays of one shape (n, d), got {a.shape} and {b.shape}")
    u, v = unit_rows(a), unit_rows(b)
    # For unit vectors u·v = 1 - |u - v|²/2. The right side is exactly 1 for equal directions, so that pairs
    # of equal sentences are ties in a ranking; u·v itself may differ from 1 in the last digit.
    cosines: Float64s = 1.0 - np.square(u - v).sum(axis=1) / 2
    nonzero = u.any(axis=1) & v.any(axis=1)
    return np.where(nonzero, np.clip(cosines, -1.0, 1.0), 0.0)


def unit_rows(vectors: NDArray[np.floating]) -> Float64s:
    """``vectors``, ``(n, d)``, with each row scaled to length 1: ``(n, d)`` float64; zero rows stay zero."""
    rows64 = vectors.astype(np.float64)
    # Rows are first divided by their largest entry, so that squares neither overflow nor underflow.
    largest = np.abs(rows64).max(axis=1, keepdims=True, initial=0.0)
    scaled = rows64 / np.where(largest > 0, largest, 1.0)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    rows: Float64s = scaled / np.where(lengths > 0, lengths, 1.0)
    return rows
