"""Cosine similarity of rows."""

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float64s


def cosine_similarity_rows(a: NDArray[np.floating], b: NDArray[np.floating]) -> Float64s:
    """Cosine of row i of ``a`` with row i of ``b``, both (n, d) of any floating dtype (D11): (n,) float64.

    Within [-1, 1]. A zero vector is similar to nothing: its cosine is 0.
    """
    if a.ndim != 2 or a.shape != b.shape:
        raise ValueError(f"expected two arrays of one shape (n, d), got {a.shape} and {b.shape}")
    u, v = unit_rows(a), unit_rows(b)
    # u·v = 1 - |u - v|²/2 for unit vectors. Written like this, equal directions give exactly 1, and pairs of
    # equal sentences are true ties in a ranking; u·v itself is sometimes off in the last digit.
    cosines: Float64s = 1.0 - np.square(u - v).sum(axis=1) / 2
    known = u.any(axis=1) & v.any(axis=1)
    return np.where(known, np.clip(cosines, -1.0, 1.0), 0.0)


def unit_rows(vectors: NDArray[np.floating]) -> Float64s:
    """``vectors``, ``(n, d)``, each row scaled to length 1: ``(n, d)`` float64; zero rows stay zero."""
    wide = vectors.astype(np.float64)
    # Divide by the largest entry first, so that squares neither overflow nor underflow.
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    scaled = wide / np.where(largest > 0, largest, 1.0)
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    rows: Float64s = scaled / np.where(lengths > 0, lengths, 1.0)
    return rows
