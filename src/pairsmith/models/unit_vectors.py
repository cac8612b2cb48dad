"""Distinct texts and their unit vectors, the input of searches by cosine similarity."""

from collections.abc import Iterable
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.arrays import Float32s
from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.progress import Progress, Silent
from pairsmith.models.encode import Side, encode_texts

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def distinct_unit_vectors(
    encoder: "SentenceTransformer",
    texts: Iterable[str],
    side: Side,
    name: str,
    *,
    unit: str = "texts",
    progress: Progress | None = None,
) -> tuple[list[str], Tensor]:
    """The n distinct texts whose vectors are not zero, and their unit vectors, ``(n, d)`` float32.

    ``name`` is the name of the caller's argument with the texts, for messages. ``progress`` shows how many of
    the texts are encoded, and calls them ``unit``.

    Raises:
        InputError: no text has a nonzero vector.
        ModelError: a vector is not finite.
    """
    distinct = list(dict.fromkeys(texts))
    vectors = np.zeros((0, 1), np.float32)
    if distinct:
        with (progress or Silent()).task("encode", len(distinct), unit) as bar:
            vectors = encode_texts(encoder, distinct, side=side, advance=bar.advance)
    if (index := first_not_finite(vectors)) is not None:
        raise ModelError(f"the encoder gives a vector that is not finite for {distinct[index]!r}")
    lengths = np.linalg.norm(vectors, axis=1)
    nonzero = lengths > 0
    if not nonzero.any():
        raise InputError(f"{name}: there are no texts, or none with a nonzero vector")
    unit_vectors = vectors[nonzero] / lengths[nonzero, None]
    return list(compress(distinct, nonzero)), torch.from_numpy(unit_vectors)


def first_not_finite(vectors: Float32s) -> int | None:
    """The index of the first of n vectors, ``(n, d)``, that is not finite; None if all are finite."""
    indices = np.flatnonzero(~np.isfinite(np.linalg.norm(vectors, axis=1)))
    return int(indices[0]) if len(indices) else None
