"""Margin scores (M3) and the retrieval rules that select pairs by them.

A similarity says little by itself: some texts are near to everything. The margin compares it with the
similarities of both texts to their nearest neighbours.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from pairsmith.search.exact import Neighbours

JUDGED = 32_768
"""Pairs in the first batch that is judged; each next batch is twice as large, up to ``MOST_JUDGED``, since
looking up the texts of even a few pairs means reading a whole corpus."""

MOST_JUDGED = 2**18

MarginName = Literal["ratio", "distance", "absolute"]
RetrievalName = Literal["max", "intersection", "forward", "backward"]


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of an x and a y, with their margins."""

    x: Tensor  # (pairs,) int64, indices
    y: Tensor  # (pairs,) int64
    similarity: Tensor  # (pairs,) float32, cosines
    margin: Tensor  # (pairs,) float32

    def __len__(self) -> int:
        """The number of pairs."""
        return len(self.x)

    def renumbered(self, of_x: Tensor, of_y: Tensor) -> "Pairs":
        """The same pairs with other indices, ``of_x[x]`` for x and ``of_y[y]`` for y."""
        return Pairs(of_x[self.x], of_y[self.y], self.similarity, self.margin)


def margin(similarity: Tensor, of_x: Tensor, of_y: Tensor, kind: MarginName = "ratio") -> Tensor:
    """The margin score of pairs (M3), from their cosines, of any shape.

    Args:
        of_x: mean cosine of each pair's x with its k nearest y; its shape broadcasts.
        of_y: mean cosine of each pair's y with its k nearest x.
        kind: ``ratio`` divides by the mean of the two, which is M3, and gives NaN where that is not above 0,
            as a ratio to it would be meaningless; ``distance`` subtracts it; ``absolute`` leaves the cosine.
    """
    if kind == "absolute":
        return similarity.clone()
    usual = (of_x + of_y) / 2
    if kind == "distance":
        return similarity - usual
    return torch.where(usual > 0, similarity / usual, torch.nan)


def candidates(of_x: Neighbours, of_y: Neighbours, kind: MarginName = "ratio") -> tuple[Pairs, Pairs]:
    """Every x with each of its nearest y, and every y with each of its nearest x, as searches found them.

    Pairs whose ``margin`` of this kind is NaN are left out.
    """
    mean_x, mean_y = of_x.similarities.mean(dim=1), of_y.similarities.mean(dim=1)
    forward = _with_neighbours(of_x, mean_x, mean_y, kind)
    backward = _with_neighbours(of_y, mean_y, mean_x, kind)
    return forward, Pairs(backward.y, backward.x, backward.similarity, backward.margin)


def joined(parts: Sequence[Pairs]) -> Pairs:
    """The concatenated pairs of all parts."""
    return Pairs(*(torch.cat([getattr(part, name) for part in parts]) for name in Pairs.__slots__))


Judge = Callable[[Pairs], Sequence[str]]
"""Returns for each pair the reason why it may not be taken, or an empty text if it may."""


def accept_all(pairs: Pairs) -> Sequence[str]:
    """A judge that accepts every pair."""
    return [""] * len(pairs)


@dataclass(frozen=True, slots=True)
class Choice:
    """The pairs that a retrieval rule took, and those that the judge kept it from taking, with its reasons.

    Both are in the order of decreasing margin, ties in the order of their indices.
    """

    taken: Pairs
    refused: Pairs
    reasons: Sequence[str]

    def parts(self, size: int) -> Iterator["Choice"]:
        """Split into parts of at most ``size`` taken and ``size`` refused pairs; at least one part."""
        for start in range(0, max(len(self.taken), len(self.refused), 1), size):
            part = slice(start, start + size)
            yield Choice(_selected(self.taken, part), _selected(self.refused, part), self.reasons[part])


def choose(
    forward: Pairs,
    backward: Pairs,
    retrieval: RetrievalName = "max",
    *,
    judge: Judge = accept_all,
    best: int | None = None,
) -> Choice:
    """Select at most ``best`` pairs by a retrieval rule, from the candidates of each x and of each y.

    ``forward`` takes for each x the accepted y with the largest margin; ``backward`` for each y an x;
    ``intersection`` takes the pairs that both would take; ``max`` goes through all candidates in order of
    decreasing margin, and takes a pair if neither of its texts has been taken. The judge is called with every
    pair that the rule reaches, and in advance with some that it never reaches.
    """
    if retrieval == "forward":
        return _walk(_ranked(forward), judge, best, once=("x",))
    if retrieval == "backward":
        return _walk(_ranked(backward), judge, best, once=("y",))
    if retrieval == "max":
        return _walk(_ranked(joined([forward, backward])), judge, best, once=("x", "y"))
    ahead = _walk(_ranked(forward), judge, None, once=("x",))
    back = _walk(_ranked(backward), judge, None, once=("y",))
    taken = _selected(ahead.taken, torch.isin(_names(ahead.taken), _names(back.taken)))
    refused = joined([ahead.refused, back.refused])
    reasons = dict(zip(_names(refused).tolist(), [*ahead.reasons, *back.reasons], strict=True))
    refused = _ranked(refused)
    return Choice(
        _selected(taken, slice(best)), refused, [reasons[name] for name in _names(refused).tolist()]
    )


def _with_neighbours(near: Neighbours, means: Tensor, means_of_others: Tensor, kind: MarginName) -> Pairs:
    margins = margin(near.similarities, means[:, None], means_of_others[near.ids], kind)
    numbers = torch.arange(len(near.ids))[:, None].expand_as(near.ids)
    pairs = Pairs(*(each.flatten() for each in (numbers, near.ids, near.similarities, margins)))
    return _selected(pairs, ~pairs.margin.isnan())


def _ranked(pairs: Pairs) -> Pairs:
    """Pairs sorted by decreasing margin, then by x and y; of duplicates the best one is kept."""
    order = torch.arange(len(pairs))
    for key, descending in ((pairs.y, False), (pairs.x, False), (pairs.margin, True)):
        order = order[key[order].sort(stable=True, descending=descending).indices]
    pairs = _selected(pairs, order)
    firsts = np.unique(_names(pairs).numpy(), return_index=True)[1]
    return _selected(pairs, torch.from_numpy(np.sort(firsts)))


def _walk(pairs: Pairs, judge: Judge, best: int | None, once: Sequence[str]) -> Choice:
    """Take one pair after the other, each text on the sides in ``once`` at most once."""
    # Single look-ups are ten times as fast in bytes as in a tensor; tensors of the same bytes serve many.
    marks = [bytearray(int(getattr(pairs, side).max()) + 1 if len(pairs) else 1) for side in once]
    seen = [torch.frombuffer(each, dtype=torch.bool) for each in marks]
    numbers = [getattr(pairs, side) for side in once]
    taken: list[int] = []
    refused: list[int] = []
    reasons: list[str] = []
    for start, stop in _stretches(len(pairs)):
        if len(taken) == best:
            break
        free = torch.arange(start, stop)
        for done, texts in zip(seen, numbers, strict=True):
            free = free[~done[texts[free]]]
        verdicts = judge(_selected(pairs, free))
        for place, reason, *pair in zip(
            free.tolist(), verdicts, *(texts[free].tolist() for texts in numbers), strict=True
        ):
            if len(taken) == best:
                break
            if any(mark[text] for mark, text in zip(marks, pair, strict=True)):
                continue
            if reason:
                refused.append(place)
                reasons.append(reason)
                continue
            taken.append(place)
            for mark, text in zip(marks, pair, strict=True):
                mark[text] = True
    numbers_taken, numbers_refused = torch.tensor(taken).long(), torch.tensor(refused).long()
    return Choice(_selected(pairs, numbers_taken), _selected(pairs, numbers_refused), reasons)


def _stretches(count: int) -> Iterator[tuple[int, int]]:
    """Ranges from 0 to ``count``, each twice as long as the one before, up to ``MOST_JUDGED``."""
    start, length = 0, JUDGED
    while start < count:
        yield start, min(start + length, count)
        start, length = start + length, min(2 * length, MOST_JUDGED)


def _names(pairs: Pairs) -> Tensor:
    """A number that identifies each pair."""
    return pairs.x * 2**31 + pairs.y


def _selected(pairs: Pairs, which: Tensor | slice) -> Pairs:
    return Pairs(*(getattr(pairs, name)[which] for name in Pairs.__slots__))
