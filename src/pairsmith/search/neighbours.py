"""Nearest neighbours, as every search returns them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The nearest neighbours of each of n vectors, nearest first, ties in the order of their ids.

    Attributes:
        ids: ``(n, k)`` int64.
        similarities: ``(n, k)`` float32.
    """

    ids: Tensor
    similarities: Tensor


def merged(parts: Sequence[Neighbours], k: int) -> Neighbours:
    """The k nearest neighbours of each of n vectors, from searches in several parts of the others.

    Args:
        parts: neighbours of the same n vectors, with ids that are distinct over all parts.
        k: at least 1; fewer are returned where the parts hold fewer in all.
    """
    ids, order = torch.cat([part.ids for part in parts], dim=1).sort(dim=1)
    similarities = torch.cat([part.similarities for part in parts], dim=1).gather(1, order)
    values, places = similarities.sort(dim=1, descending=True, stable=True)
    return Neighbours(ids.gather(1, places)[:, :k], values[:, :k])
