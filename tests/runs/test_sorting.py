"""Sorting and grouping on the disk, against plain Python."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.core.errors import InputError
from pairsmith.runs.sorting import (
    differs_from_previous,
    first_of_each,
    sorted_rows,
    sorted_within,
    stable_order,
)

COLUMN = st.sampled_from([0, 1, 2, 2**31, 2**32 - 1])


def columns(rows, width):
    return list(np.array(rows, np.uint32).reshape(-1, width).T)


def test_an_order_by_hand():
    order = stable_order(columns([[2, 1], [1, 9], [2, 0], [1, 9]], 2))
    assert order.tolist() == [1, 3, 2, 0]
    assert differs_from_previous(columns([[1, 9], [1, 9], [2, 0], [2, 1]], 2)).tolist() == [
        True,
        False,
        True,
        True,
    ]


@given(rows=st.lists(st.tuples(COLUMN, COLUMN, COLUMN), max_size=30))
def test_equal_rows_stay_in_their_order(rows):
    expected = sorted(range(len(rows)), key=lambda place: rows[place])
    assert stable_order(columns(rows, 3)).tolist() == expected


@given(
    ids=st.lists(st.integers(0, 12), max_size=60),
    cut=st.integers(1, 60),
    rows=st.integers(1, 20),
    seed=st.integers(0, 3),
)
def test_the_first_of_each_key(tmp_path_factory, ids, cut, rows, seed):
    draw = np.random.default_rng(seed)
    of_id = draw.integers(0, 2**64, (13, 2), dtype=np.uint64)
    of_id[6:, 0] = of_id[:7, 0]  # keys that differ in their second number only
    keys = of_id[np.array(ids, np.int64)]
    parts = [keys[start : start + cut] for start in range(0, len(keys), cut)]
    folder = tmp_path_factory.getbasetemp()
    firsts = first_of_each(iter(parts), len(keys), folder, rows=rows)
    assert firsts.tolist() == [ids.index(number) for number in ids]
    assert not list(folder.glob(".pairsmith-*"))


def test_a_key_that_fills_all_parts(tmp_path):
    keys = np.full((1_000, 1), 7, np.uint64)
    keys[500] = 2**63
    firsts = first_of_each([keys], 1_000, tmp_path, rows=10)
    assert np.flatnonzero(firsts).tolist() == [500]
    assert firsts[500] == 500


def test_more_than_can_be_numbered_are_refused(tmp_path):
    with pytest.raises(
        InputError, match="4,294,967,297 texts are more than the 4,294,967,296 that can be compared"
    ):
        first_of_each([], 2**32 + 1, tmp_path)


@given(
    rows=st.lists(st.tuples(COLUMN, COLUMN), max_size=60),
    cut=st.integers(1, 60),
    at_once=st.integers(1, 20),
)
def test_rows_sorted_on_the_disk_are_those_sorted_in_memory(tmp_path_factory, rows, cut, at_once):
    numbered = np.array([(*row, place) for place, row in enumerate(rows)], np.uint32).reshape(-1, 3)
    parts = [numbered[start : start + cut] for start in range(0, len(rows), cut)]
    folder = tmp_path_factory.getbasetemp()
    pieces = list(sorted_rows(iter(parts), lambda some: some[:, 1::-1].T, folder, "sort", rows=at_once))
    expected = sorted(range(len(rows)), key=lambda place: rows[place][::-1])
    assert [place for part in pieces for place in part[:, 2].tolist()] == expected
    runs = -(-len(rows) // at_once)
    assert all(len(part) <= at_once + runs for part in pieces)
    assert not list(folder.glob(".pairsmith-*"))


@given(rows=st.lists(st.tuples(COLUMN, COLUMN), max_size=40), cut=st.integers(1, 9))
def test_rows_in_order_of_a_column_are_sorted_within_it(rows, cut):
    there = np.array(sorted(rows, key=lambda row: row[1]), np.uint32).reshape(-1, 2)
    parts = [there[start : start + cut] for start in range(0, len(there), cut)]
    pieces = list(sorted_within([there[:0], *parts, there[:0]], lambda some: some[:, ::-1].T, 1))
    assert [tuple(row) for part in pieces for row in part.tolist()] == sorted(rows, key=lambda row: row[::-1])


def test_parts_are_of_nearly_the_size_that_is_allowed(tmp_path):
    """Half of the rows in order, half at random, as the candidates of inputs and of outputs are."""
    draw = np.random.default_rng(1)
    in_order = np.arange(40_000, dtype=np.uint32)
    rows = np.concatenate([in_order, draw.integers(0, 40_000, 40_000, np.uint32)])[:, None]
    parts = list(sorted_rows([rows], lambda some: some.T, tmp_path, "sort", rows=1_000))
    assert np.concatenate(parts)[:, 0].tolist() == sorted(rows[:, 0].tolist())
    assert len(parts) < 130  # at least 80
    assert max(map(len, parts)) <= 1_000


def test_memory_of_a_sort_does_not_grow_with_the_rows(tmp_path):
    def peak(runs):
        parts = (np.arange(20_000, dtype=np.uint32)[::-1, None] + 19_900 * number for number in range(runs))
        tracemalloc.start()
        sizes = map(len, sorted_rows(parts, lambda some: some.T, tmp_path, "sort", rows=20_000))
        assert sum(sizes) == 20_000 * runs
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    peak(1)
    # The samples of each run, and their order; its rows have 80,000 bytes.
    assert peak(25) < peak(5) + 20 * 30_000


def test_a_sort_that_is_not_finished_leaves_no_file(tmp_path):
    rows = np.arange(100, dtype=np.uint32).reshape(-1, 1)[::-1]
    parts = sorted_rows([rows], lambda some: [some[:, 0]], tmp_path, "sort", rows=10)
    assert next(parts)[0].tolist() == [0]
    assert list(tmp_path.iterdir())
    parts.close()
    assert not list(tmp_path.iterdir())
