"""Neighbours that may be paired, against plain loops over all similarities."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.search.exact import Neighbours
from pairsmith.search.permitted import permitted


def nearest(cosines, k):
    values, ids = cosines.sort(dim=1, descending=True, stable=True)
    return Neighbours(ids[:, :k], values[:, :k])


COSINES = torch.tensor([[0.9, 0.8, 0.7, 0.6], [0.1, 0.2, 0.3, 0.4]])


def test_what_is_forbidden_takes_no_place():
    def forbidden(rows, ids):
        return (rows == 0) & (ids < 2)

    searches = []

    def find_more(rows, more):
        searches.append((rows.tolist(), more))
        return nearest(COSINES[rows], more)

    neighbours, left_out = permitted(nearest(COSINES, 2), 2, forbidden, find_more, 4)
    assert neighbours.ids.tolist() == [[2, 3], [3, 2]]
    assert neighbours.similarities[0].tolist() == COSINES[0, 2:].tolist()
    assert left_out == 2
    assert searches == [([0], 4)]  # the other text had two


def test_a_text_of_which_too_little_is_left_has_fewer():
    neighbours, left_out = permitted(
        nearest(COSINES, 2), 2, lambda rows, ids: ids != 1, lambda rows, more: nearest(COSINES[rows], more), 4
    )
    assert neighbours.ids.tolist() == [[1, -1], [1, -1]]
    assert neighbours.similarities[:, 1].tolist() == [-torch.inf] * 2
    assert left_out == 6


@given(
    seed=st.integers(0, 1000),
    k=st.integers(1, 5),
    spare=st.integers(0, 3),
    share=st.sampled_from([0, 0.5, 0.9]),
)
def test_against_plain_loops(seed, k, spare, share):
    generator = torch.Generator().manual_seed(seed)
    cosines = torch.rand(6, 9, generator=generator)
    never = torch.rand(6, 9, generator=generator) < share
    neighbours, left_out = permitted(
        nearest(cosines, k + spare),
        k,
        lambda rows, ids: never[rows, ids],
        lambda rows, more: nearest(cosines[rows], more),
        9,
    )
    expected, nearer = [], 0
    for row in range(6):
        order = cosines[row].argsort(descending=True).tolist()
        good = [y for y in order if not never[row, y]][:k]
        last = order.index(good[-1]) if len(good) == k else len(order)
        nearer += sum(bool(never[row, y]) for y in order[:last])
        expected.append([*good, *[-1] * (k - len(good))])
    assert neighbours.ids.tolist() == expected
    assert left_out == nearer
