"""Margins and retrieval rules, against numbers worked out by hand and a slow direct computation."""

import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.methods.mining.candidates import NeighboursInMemory, score_candidates
from pairsmith.search import margin as margins
from pairsmith.search.exact import Neighbours
from pairsmith.search.margin import ScoredCandidates, greedy_matching, margin
from pairsmith.search.names import MarginName
from pairsmith.search.selection import pair_rows, pairs_of, select_pairs

# Three x and three y; k = 2.
#        y0   y1   y2
# x0    0.9  0.8  0.1
# x1    0.7  0.2  0.3
# x2    0.6  0.5  0.4
OF_X = Neighbours(torch.tensor([[0, 1], [0, 2], [0, 1]]), torch.tensor([[0.9, 0.8], [0.7, 0.3], [0.6, 0.5]]))
OF_Y = Neighbours(torch.tensor([[0, 1], [0, 2], [2, 1]]), torch.tensor([[0.9, 0.7], [0.8, 0.5], [0.4, 0.3]]))
# Means: x 0.85, 0.5, 0.55; y 0.8, 0.65, 0.35.


def candidates(of_x, of_y, kind="ratio"):
    """The rows of the candidates of each x and of each y."""
    near = NeighboursInMemory(of_x), NeighboursInMemory(of_y)
    numbers, into = (np.arange(len(of_x.ids)), np.arange(len(of_y.ids))), ([], [])
    k = max(of_x.ids.shape[1], of_y.ids.shape[1])
    score_candidates(near, numbers, k, kind, into)
    return into


def selected(forward, backward, retrieval="max", best=None):
    parts = select_pairs(forward, backward, retrieval, (10, 10), best=best)
    return pairs_of(np.concatenate([np.zeros((0, 4), np.uint32), *parts]))


def listed(pairs):
    return [
        (x, y, round(s, 4), round(m, 4))
        for x, y, s, m in zip(
            *(getattr(pairs, n).tolist() for n in ("x", "y", "similarity", "margin")), strict=True
        )
    ]


BY_HAND = {"ratio": 0.9 / ((0.9 + 0.8) / 4 + (0.9 + 0.7) / 4), "distance": 0.9 - 0.825, "absolute": 0.9}


@pytest.mark.parametrize("kind", get_args(MarginName))
def test_margins_by_hand(kind):
    assert kind in BY_HAND, f"work out the margin {kind} of a cosine of 0.9 and means of 0.85 and 0.8"
    pair_margin = margin(torch.tensor([0.9]), torch.tensor([0.85]), torch.tensor([0.8]), kind)
    assert pair_margin.item() == pytest.approx(BY_HAND[kind], abs=1e-6)


def test_a_ratio_to_nothing_is_no_number():
    assert math.isnan(margin(torch.tensor(0.1), torch.tensor(-0.2), torch.tensor(0.1)).item())


# x0: y0 1.0909, y1 1.0667; x1: y0 1.0769, y2 0.7059; x2: y0 0.8889, y1 0.8333
# y0: x0 1.0909, x1 1.0769; y1: x0 1.0667, x2 0.8333; y2: x2 0.8889, x1 0.7059


@pytest.mark.parametrize(
    ("retrieval", "expected"),
    [
        ("forward", [(0, 0, 0.9, 1.0909), (1, 0, 0.7, 1.0769), (2, 0, 0.6, 0.8889)]),
        ("backward", [(0, 0, 0.9, 1.0909), (0, 1, 0.8, 1.0667), (2, 2, 0.4, 0.8889)]),
        ("intersection", [(0, 0, 0.9, 1.0909)]),
        ("max", [(0, 0, 0.9, 1.0909), (2, 2, 0.4, 0.8889)]),
    ],
)
def test_retrieval_by_hand(retrieval, expected):
    assert listed(selected(*candidates(OF_X, OF_Y), retrieval)) == expected


def test_all_candidates_input_by_input():
    pairs = selected(*candidates(OF_X, OF_Y), "candidates")
    assert [pair[:2] for pair in listed(pairs)] == [(0, 0), (0, 1), (1, 0), (1, 2), (2, 0), (2, 2), (2, 1)]
    some = selected(*candidates(OF_X, OF_Y), "candidates", best=3)
    assert [pair[:2] for pair in listed(some)] == [
        pair[:2] for pair in listed(pairs) if pair in best(pairs, 3)
    ]


def best(pairs, count):
    return sorted(listed(pairs), key=lambda pair: -pair[3])[:count]


def test_a_place_without_a_neighbour_is_no_pair_and_does_not_count_in_the_mean():
    of_x = Neighbours(torch.tensor([[0, -1], [-1, -1]]), torch.tensor([[0.9, -torch.inf], [-torch.inf] * 2]))
    of_y = Neighbours(torch.tensor([[0, -1]]), torch.tensor([[0.9, -torch.inf]]))
    for (rows,) in candidates(of_x, of_y):
        assert listed(pairs_of(rows)) == [(0, 0, 0.9, 1.0)]


def near(similarities, k):
    values, ids = torch.tensor(similarities).sort(dim=1, descending=True, stable=True)
    return Neighbours(ids[:, :k], values[:, :k])


@st.composite
def corpora(draw):
    """Cosines of a few x and y, drawn from few values so that many tie; their means are exact."""
    few = st.sampled_from([1, 2, 4, 8])
    cosines = st.sampled_from([-0.5, 0.0, 0.25, 0.5, 0.75, 1.0])
    rows, columns = draw(few), draw(few)
    row = st.lists(cosines, min_size=columns, max_size=columns)
    return draw(st.lists(row, min_size=rows, max_size=rows)), draw(few)


@given(case=corpora(), kind=st.sampled_from(get_args(MarginName)))
def test_every_rule_against_plain_loops(case, kind):
    rows, k = case
    columns = [list(column) for column in zip(*rows, strict=True)]
    of_x, of_y = near(rows, k), near(columns, k)

    def mean(values):
        top = sorted(values, reverse=True)[:k]
        return sum(top) / len(top)

    def score(x, y):
        usual = (mean(rows[x]) + mean(columns[y])) / 2
        if kind == "absolute":
            return rows[x][y]
        return rows[x][y] - usual if kind == "distance" else rows[x][y] / usual if usual > 0 else None

    ahead = [(x, y) for x in range(len(rows)) for y in of_x.ids[x].tolist()]
    back = [(x, y) for y in range(len(columns)) for x in of_y.ids[y].tolist()]

    def by_margin(pairs):
        scored = [p for p in pairs if score(*p) is not None]
        return sorted(scored, key=lambda p: (-torch.tensor(score(*p)).item(), p))

    def walked(pairs, sides):
        kept, seen = [], set()
        for pair in by_margin(pairs):
            texts = {(side, pair[side]) for side in sides}
            if not texts & seen:
                kept.append(pair)
                seen |= texts
        return kept

    expected = {
        "forward": walked(ahead, [0]),
        "backward": walked(back, [1]),
        "intersection": by_margin(set(walked(ahead, [0])) & set(walked(back, [1]))),
        "max": walked(set(ahead + back), [0, 1]),
    }
    for retrieval, pairs in expected.items():
        chosen = selected(*candidates(of_x, of_y, kind), retrieval)
        assert list(zip(chosen.x.tolist(), chosen.y.tolist(), strict=True)) == pairs
        assert chosen.margin.tolist() == pytest.approx([score(*pair) for pair in pairs], abs=1e-5)


@pytest.mark.parametrize("retrieval", ["forward", "backward", "intersection", "max"])
def test_a_text_of_two_numbers_is_taken_once(retrieval):
    one = ScoredCandidates(
        torch.tensor([0, 0, 2, 2]),
        torch.tensor([0, 0, 2, 2]),
        torch.full((4,), 0.5),
        torch.tensor([1.0, 2.0, 4.0, 3.0]),
    )
    rows = [pair_rows(one.x.numpy(), one.y.numpy(), one)]
    assert listed(selected(rows, rows, retrieval)) == [(2, 2, 0.5, 4.0), (0, 0, 0.5, 2.0)]
    assert listed(selected(rows, rows, retrieval, best=1)) == [(2, 2, 0.5, 4.0)]


@pytest.mark.parametrize("together", [1, 2, 100])
def test_each_text_once_by_hand(together, monkeypatch):
    monkeypatch.setattr(margins, "PAIRS_AT_ONCE", together)
    x, y = torch.tensor([0, 0, 2, 1, 1, 3]), torch.tensor([1, 0, 1, 0, 2, 2])
    assert greedy_matching(x, y).tolist() == [0, 3, 5]
    assert greedy_matching(x[:0], y[:0]).tolist() == []
