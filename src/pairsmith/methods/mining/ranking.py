"""The ranking of pairs by a judge's scores (M6), and the choice among pairs that share a text."""

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
"""Columns of numbers, each ``(n,)`` for n pairs."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Pairs from best to worst, and which of them win against the pairs that share a text with them.

    Attributes:
        name: the name of the values in the reasons of rejects.
        values: ``(n,)`` float64, in the order of the rows: what the pairs are ranked by.
        order: ``(n,)`` int64: the numbers of the rows, the best one first.
        wins: ``(n,)`` bool, in the order of ``order``: whether each pair wins.
        reasons: ``(n,)`` str, in the order of ``order``: why a pair that does not win was beaten.
    """

    name: str
    values: Float64s
    order: NDArray[np.int64]
    wins: NDArray[np.bool_]
    reasons: NDArray[np.str_]

    def kept(self, threshold: float | None, most: int) -> NDArray[np.bool_]:
        """Whether to keep each pair, ``(n,)`` in the order of ``order``.

        Kept are the first ``most`` winners whose value is at least ``threshold``, if there is one.
        """
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
    """Rank n mined pairs by a judge's scores (M6).

    Args:
        pairs: the mined pairs.
        scores: ``(n,)``, the judge's scores.
        beside: columns that are added to the scores, after the scores and each column are standardised.
        rank_by: if not empty, the sum above only chooses one pair of each input, and the chosen pairs are
            ranked by the sum of these columns, each standardised.
        one_per: which pairs compete with each other, see ``winners``.
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
    """Rank n generated pairs by how well a judge's score of each pair agrees with its target score.

    ``judged``, the judge's scores, and ``targets``, the scores that the pairs were written for, are ``(n,)``,
    in [0, 1].
    """
    values = target_agreement(judged, targets)
    order = balanced_order(values, targets)
    return Ranking("agreement", values, order, winners(pairs, order, one_per), np.full(len(order), BEATEN))


def winners(pairs: pa.Table, order: NDArray[np.int64], one_per: OnePer) -> NDArray[np.bool_]:
    """Which pairs win against the pairs that share a text with them, ``(n,)`` bool, as ordered by ``order``.

    ``order`` has the best pair first. With ``input`` the first pair of each input wins; with ``both`` a pair
    wins if no earlier winner shares a text with it; with ``pair`` all pairs win.
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
    """Choose one pair of each input, rank the chosen pairs, and put all other pairs after them.

    Args:
        pairs: n mined pairs.
        values: ``(n,)``: of the pairs of an input, the one with the highest value is chosen.
        ranking: ``(n,)``: the chosen pairs are ordered by falling values of this.
        one_per: ``input``: every chosen pair wins. ``both``: of chosen pairs with the same output only the
            first one wins, and the inputs of the others have no pair.

    Returns:
        The order of the pairs, ``(n,)``; which of them win, ``(n,)`` in that order; and the number of chosen
        pairs.
    """
    order = np.argsort(-values, kind="stable")
    wins = winners(pairs, order, "input")
    chosen, others = order[wins], order[~wins]
    chosen = chosen[np.argsort(-ranking[chosen], kind="stable")]
    chosen_wins = winners(pairs, chosen, one_per)
    wins = np.concatenate([chosen_wins, np.zeros(len(others), bool)])
    return np.concatenate([chosen, others]), wins, len(chosen)


def _keys(pairs: pa.Table, side: str) -> NDArray[np.uint64]:
    """A key of this side's text for each row, ``(n,)``: equal texts have equal keys."""
    column = pairs[f"{side}_id" if f"{side}_id" in pairs.column_names else side]
    return text_keys(column.cast(pa.string()).fill_null(""))


def standardised(values: Float64s) -> Float64s:
    """Standard scores ``(n,)``: the values minus their mean, divided by their standard deviation.

    All scores are 0 if all values are equal.
    """
    centred = values - values.mean() if len(values) else values
    deviation = float(centred.std()) if len(values) else 0.0
    standard_scores: Float64s = centred / deviation if deviation > 0 else np.zeros(len(values))
    return standard_scores


def probabilities(scores: Float32s) -> Float64s:
    """The sigmoid of a cross-encoder's unnormalised scores of any shape (M6): as many numbers in [0, 1]."""
    sigmoids: Float64s = 0.5 * (1 + np.tanh(scores.astype(np.float64) / 2))  # cannot overflow
    return sigmoids


def ranks(scores: Float32s) -> Float64s:
    """The relative ranks of n scores, ``(n,)`` float64, from 0 for the lowest to 1 for the highest.

    Equal scores have the mean of their ranks. The cosines of one encoder lie near 1 and those of another near
    0, so only the order of cosines can be compared with the scores that pairs were written for.
    """
    places = group_ranks(dense_groups(scores))
    relative_ranks: Float64s = (places - 1) / max(1, len(places) - 1)
    return relative_ranks


def target_agreement(judged: Float64s, targets: Float64s) -> Float64s:
    """The agreement of a judge's scores with target scores, ``1 - |judged - target|``: ``(n,)`` in [0, 1].

    ``judged`` and ``targets`` are ``(n,)``, in [0, 1].
    """
    agreement: Float64s = 1 - np.abs(judged - targets)
    return agreement


def balanced_order(values: Float64s, labels: Float64s) -> NDArray[np.int64]:
    """The order of rows, ``(n,)``, in which every prefix holds about the same share of each label's rows.

    Rows are sorted by their relative rank within their label, by falling values; of rows with equal ranks the
    one with the higher value comes first.
    """
    rank = np.empty(len(values))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        rank[rows[np.argsort(-values[rows], kind="stable")]] = (np.arange(len(rows)) + 0.5) / len(rows)
    order: NDArray[np.int64] = np.lexsort((-values, rank))
    return order
