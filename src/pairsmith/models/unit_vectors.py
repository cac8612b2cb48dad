"""Distinct texts and their vectors of length 1, as searches by cosine need them."""

from collections.abc import Iterable
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import InputError, ModelError
from pairsmith.models.encode import Side, encode_texts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def distinct_unit_vectors(
    encoder: "SentenceTransformer", texts: Iterable[str], side: Side, name: str
) -> tuple[list[str], Tensor]:
    """The distinct texts with a nonzero vector, n of them, and their vectors of length 1, ``(n, d)`` float32.

    ``name`` is the name of the argument with the texts, for messages.

    Raises:
        InputError: no text has a nonzero vector.
        ModelError: a vector is not finite.
    """
    distinct = list(dict.fromkeys(texts))
    vectors = encode_texts(encoder, distinct, side=side) if distinct else np.zeros((0, 1), np.float32)
    if (place := first_not_finite(vectors)) is not None:
        raise ModelError(f"the encoder gives a vector that is not finite for {distinct[place]!r}")
    lengths = np.linalg.norm(vectors, axis=1)
    nonzero = lengths > 0
    if not nonzero.any():
        raise InputError(f"{name}: there are no texts, or none with a nonzero vector")
    unit_vectors = vectors[nonzero] / lengths[nonzero, None]
    return list(compress(distinct, nonzero)), torch.from_numpy(unit_vectors)


def first_not_finite(vectors: Float32s) -> int | None:
    """The number of the first of n vectors, ``(n, d)``, that is not finite; None where all are."""
    places = np.flatnonzero(~np.isfinite(np.linalg.norm(vectors, axis=1)))
    return int(places[0]) if len(places) else None
