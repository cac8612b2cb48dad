"""Ranks pairs by a judge's scores (M6), and keeps the best of those that share a text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s, Float64s
from pairsmith.core.fields import OnePer
from pairsmith.data.text_keys import text_keys
from pairsmith.metrics.correlation import dense_groups, group_ranks
from pairsmith.search.margin import greedy_matching

Numbers = Sequence[Float64s]
"""Columns of one number for each pair, each ``(n,)``."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Pairs from best to worst, and which of them win against those with the same text.

    Attributes:
        name: what the values are called in rejects.
        values: ``(n,)`` float64, by row: what the pairs are ranked by.
        order: ``(n,)`` int64: the rows, best first.
        wins: ``(n,)`` bool, in that order.
        reasons: ``(n,)`` str, in that order: why a pair that does not win was beaten.
    """

    name: str
    values: Float64s
    order: NDArray[np.int64]
    wins: NDArray[np.bool_]
    reasons: NDArray[np.str_]

    def kept(self, threshold: float | None, most: int) -> NDArray[np.bool_]:
        """Which pairs to keep, ``(n,)`` as in ``order``: ``most`` winners, and none below the threshold."""
        keep: NDArray[np.bool_] = self.wins.copy()
        if threshold is not None:
            keep &= self.values[self.order] >= threshold
        keep[np.cumsum(keep) > most] = False
        return keep


BEATEN = "a pair with the same text ranks higher"
NOT_CHOSEN = "the judge chose another pair of its input"


def rank_mined(
    pairs: pa.Table, scores: Float64s, beside: Numbers, rank_by: Numbers, one_per: OnePer
) -> Ranking:
    """Rank mined pairs by a judge's scores (M6), ``(n,)``, or by their sum with other numbers, standardised.

    With ``rank_by`` that only chooses the pair of each input, and the sum of these numbers, standardised,
    ranks the pairs that are chosen.
    """
    values = scores
    if beside:
        values = sum(map(standardised, beside), start=standardised(values))
    if not rank_by:
        order = np.argsort(-values, kind="stable")
        return Ranking("score", values, order, winners(pairs, order, one_per), np.full(len(order), BEATEN))
    ranking: Float64s = sum(map(standardised, rank_by), start=np.zeros(len(values)))
    order, wins, chosen = chosen_first(pairs, values, ranking, one_per)
    reasons = np.where(np.arange(len(order)) < chosen, BEATEN, NOT_CHOSEN)
    return Ranking("score", ranking, order, wins, reasons)


def rank_generated(pairs: pa.Table, judged: Float64s, targets: Float64s, one_per: OnePer) -> Ranking:
    """Rank n generated pairs by how near a judge's scores are to those that they were written for.

    ``judged`` and ``targets`` are ``(n,)``, in [0, 1].
    """
    values = target_agreement(judged, targets)
    order = best_of_each(values, targets)
    return Ranking("agreement", values, order, winners(pairs, order, one_per), np.full(len(order), BEATEN))


def winners(pairs: pa.Table, order: NDArray[np.int64], one_per: OnePer) -> NDArray[np.bool_]:
    """Which pairs win against those with the same text, ``(n,)`` in the order of ``order``, best first.

    With ``input`` the first pair of each input wins; with ``both`` a pair of which neither text is in an
    earlier winner; with ``pair`` all win.
    """
    if one_per == "pair":
        return np.ones(len(order), bool)
    wins = np.zeros(len(order), bool)
    if one_per == "input":
        wins[np.unique(_keys(pairs, "input")[order], return_index=True)[1]] = True
        return wins
    x, y = (np.unique(_keys(pairs, side), return_inverse=True)[1] for side in ("input", "output"))
    wins[greedy_matching(*(torch.from_numpy(side[order]) for side in (x, y))).numpy()] = True
    return wins


def chosen_first(
    pairs: pa.Table, values: Float64s, ranking: Float64s, one_per: OnePer
) -> tuple[NDArray[np.int64], NDArray[np.bool_], int]:
    """Rank the pairs that are chosen, one of each input, and put all others after them.

    Args:
        pairs: mined pairs, n of them.
        values: ``(n,)``; the pair of an input with the highest one is chosen.
        ranking: ``(n,)``; the chosen pair with the highest one is the first.
        one_per: ``input``, or ``both``, with which of chosen pairs of one output the first wins. The other
            inputs then have no pair.

    Returns:
        The order of the pairs, ``(n,)``; which of them win, ``(n,)`` in that order; and how many are chosen.
    """
    order = np.argsort(-values, kind="stable")
    wins = winners(pairs, order, "input")
    chosen, others = order[wins], order[~wins]
    chosen = chosen[np.argsort(-ranking[chosen], kind="stable")]
    still = winners(pairs, chosen, one_per)
    wins = np.concatenate([still, np.zeros(len(others), bool)])
    return np.concatenate([chosen, others]), wins, len(chosen)


def _keys(pairs: pa.Table, side: str) -> NDArray[np.uint64]:
    """A number for each row that is the same where this side's text is, ``(n,)``."""
    column = pairs[f"{side}_id" if f"{side}_id" in pairs.column_names else side]
    return text_keys(column.cast(pa.string()).fill_null(""))


def standardised(values: Float64s) -> Float64s:
    """Numbers, ``(n,)``, less their mean and divided by their standard deviation; equal ones become 0."""
    less = values - values.mean() if len(values) else values
    spread = float(less.std()) if len(values) else 0.0
    standard_scores: Float64s = less / spread if spread > 0 else np.zeros(len(values))
    return standard_scores


def probabilities(scores: Float32s) -> Float64s:
    """The sigmoid of a cross-encoder's unnormalised scores (M6), both of any shape; it lies in [0, 1]."""
    sigmoids: Float64s = 0.5 * (1 + np.tanh(scores.astype(np.float64) / 2))  # cannot overflow
    return sigmoids


def ranks(scores: Float32s) -> Float64s:
    """The rank of each of n scores among all, ``(n,)`` float64, from 0 for the lowest to 1 for the highest.

    Equal scores have the mean of their ranks. Cosines of one encoder lie near 1 and those of another near 0,
    so only their order can be compared with the scores that pairs were written for.
    """
    places = group_ranks(dense_groups(scores))
    relative_ranks: Float64s = (places - 1) / max(1, len(places) - 1)
    return relative_ranks


def target_agreement(judged: Float64s, targets: Float64s) -> Float64s:
    """How well a judge's scores agree with target scores, both ``(n,)`` in [0, 1]: ``1 - |judged - target|``.

    The result is ``(n,)`` float64, in [0, 1].
    """
    closeness: Float64s = 1 - np.abs(judged - targets)
    return closeness


def best_of_each(values: Float64s, labels: Float64s) -> NDArray[np.int64]:
    """Rank rows so that any prefix holds about the same share of each label's rows, those of highest value.

    The result, ``(n,)`` row numbers, is sorted by relative rank within the label; of equal ranks the higher
    value comes first.
    """
    rank = np.empty(len(values))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        rank[rows[np.argsort(-values[rows], kind="stable")]] = (np.arange(len(rows)) + 0.5) / len(rows)
    order: NDArray[np.int64] = np.lexsort((-values, rank))
    return order
