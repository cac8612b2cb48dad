"""Neighbours merged and scored in parts, against those in memory."""

import weakref
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.memory import kilobytes_in_memory, tells_what_is_in_memory

from pairsmith.methods.mining.candidates import NeighboursInMemory, score_candidates
from pairsmith.runs import storage
from pairsmith.search.exact import Neighbours, two_way_search
from pairsmith.search.margin import ScoredCandidates
from pairsmith.search.selection import PairFile, pairs_of
from pairsmith.steps import search_parts
from pairsmith.steps.mine.search import add_neighbours, scored_candidates
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.search_parts import NeighbourFile, SearchGroup, neighbour_rows


def settings(**changes):
    given = {"inputs": ["x"], "outputs": ["y"], "encoder": "none", "verbatim": "keep"}
    return MineSettings(**given, **changes)


def unit(count, seed):
    vectors = torch.randn(count, 4, generator=torch.Generator().manual_seed(seed))
    return vectors / vectors.norm(dim=1, keepdim=True)


def same(file, pairs):
    return all(getattr(file[:], name).equal(getattr(pairs, name)) for name in ScoredCandidates.__slots__)


@given(
    counts=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    k=st.integers(1, 5),
    cut=st.integers(1, 9),
    at_once=st.integers(1, 9),
)
def test_parts_of_the_search_scored_in_parts(tmp_path_factory, counts, k, cut, at_once):
    folder = tmp_path_factory.getbasetemp()
    x, y = unit(counts[0], 1), unit(counts[1], 2)
    tables = []
    for start in range(0, len(x), cut):
        of_x, of_y = two_way_search(x[start : start + cut], y, k)
        of_y.ids.add_(start)
        tables += [neighbour_rows(0, "x", start, of_x), neighbour_rows(0, "y", 0, of_y)]
    group = SearchGroup(np.arange(len(x)) + 100, np.arange(len(y)) + 2**32 - 10)
    files = PairFile(folder / "ahead"), PairFile(folder / "back")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(search_parts, "PAIRS_AT_ONCE", at_once)
        _, unscored = scored_candidates(tables, [group], (), (), settings(k=k), files, folder)
    near = [NeighboursInMemory(of_side) for of_side in two_way_search(x, y, k)]
    in_memory = [], []
    score_candidates(near, (group.x, group.y), k, "ratio", in_memory)
    whole = [pairs_of(rows) for (rows,) in in_memory]
    assert all(same(file, pairs) for file, pairs in zip(files, whole, strict=True))
    compared = len(x) * min(k, len(y)) + len(y) * min(k, len(x))
    assert unscored == compared - len(whole[0]) - len(whole[1])
    assert not list(folder.glob(".pairsmith-*"))


def test_a_text_of_two_groups_has_the_number_of_the_first(tmp_path):
    of = Neighbours(torch.tensor([[0]]), torch.tensor([[0.5]]))
    tables = [neighbour_rows(group, side, 0, of) for group in (0, 1) for side in ("x", "y")]
    groups = [SearchGroup(np.array([number]), np.array([number])) for number in (0, 1)]
    corpora = [
        SimpleNamespace(firsts=lambda first=first: np.array(first, np.uint32)) for first in ([0, 0], [0, 1])
    ]
    files = PairFile(tmp_path / "ahead"), PairFile(tmp_path / "back")
    given = settings(k=1, group_column="day")
    scored_candidates(tables, groups, corpora, (), given, files, tmp_path)
    for file in files:
        assert list(zip(file[:].x.tolist(), file[:].y.tolist(), strict=True)) == [(0, 0), (0, 1)]
        assert file[:].margin.tolist() == [1.0, 1.0]


def test_no_file_is_cut_or_removed_while_it_is_mapped(tmp_path, monkeypatch):
    """Windows refuses both, and elsewhere a reader of a file that was cut is ended by the system."""
    mapped = {}

    def is_mapped(file):
        return any(reference() is not None for reference in mapped.pop(file, ()))

    def empty(count, width, file):
        assert not is_mapped(file)
        near = made(count, width, file)
        mapped[file] = weakref.ref(near.ids), weakref.ref(near.similarities)
        return near

    def remove(file):
        assert not is_mapped(file)
        removed(file)

    made, removed = NeighbourFile.empty, storage.remove
    monkeypatch.setattr(NeighbourFile, "empty", empty)
    monkeypatch.setattr(storage, "remove", remove)
    of = Neighbours(torch.tensor([[0]]), torch.tensor([[0.5]]))
    tables = [neighbour_rows(group, side, 0, of) for group in (0, 1) for side in ("x", "y")]
    groups = [SearchGroup(np.array([number]), np.array([number])) for number in (0, 1)]
    files = PairFile(tmp_path / "ahead"), PairFile(tmp_path / "back")
    scored_candidates(tables, groups, (), (), settings(k=1), files, tmp_path)
    assert not mapped
    assert not list(tmp_path.glob(".pairsmith-*"))


@pytest.mark.parametrize(("width", "texts"), [(3, 2), (6, 1), (1024, 1)])
def test_parts_are_cut_by_their_neighbours(tmp_path, monkeypatch, width, texts):
    monkeypatch.setattr(search_parts, "PAIRS_AT_ONCE", 6)
    near = NeighbourFile.empty(5, width, tmp_path / "near")
    near.write(0, Neighbours(torch.arange(width).expand(5, -1), torch.zeros(5, width)))
    parts = list(near.parts())
    assert [first for first, _ in parts] == list(range(0, 5, texts))
    assert max(part.ids.numel() for _, part in parts) == texts * width


@tells_what_is_in_memory
def test_parts_that_were_read_or_written_do_not_stay_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(search_parts, "PAIRS_AT_ONCE", 1000)
    near = NeighbourFile.empty(1000, 100, tmp_path / "near")
    assert near.ids.nbytes + near.similarities.nbytes == 800_000
    for first in range(0, 1000, 100):
        ids = torch.arange(first, first + 100)[:, None].expand(-1, 100)
        near.write(first, Neighbours(ids, ids / 1000))
    assert kilobytes_in_memory(tmp_path / "near") < 100
    assert [int(part.ids[0, 0]) for _, part in near.parts()] == list(range(0, 1000, 10))
    assert kilobytes_in_memory(tmp_path / "near") < 100


def test_passes_over_stretches_that_hold_fewer_than_k(tmp_path):
    near = NeighbourFile.empty(2, 3, tmp_path / "near")
    add_neighbours(near, 0, Neighbours(torch.tensor([[0], [0]]), torch.tensor([[0.5], [0.1]])))
    ((_, part),) = near.parts()
    assert part.ids.tolist() == [[0, -1, -1], [0, -1, -1]]
    add_neighbours(near, 0, Neighbours(torch.tensor([[2, 1]]), torch.tensor([[0.9, 0.5]])))
    add_neighbours(near, 1, Neighbours(torch.tensor([[1, 2]]), torch.tensor([[0.3, 0.2]])))
    ((_, part),) = near.parts(2)
    assert part.ids.tolist() == [[2, 0], [1, 2]]  # of ties the smaller id
    assert part.similarities.equal(torch.tensor([[0.9, 0.5], [0.3, 0.2]]))
    ((_, part),) = NeighbourFile.empty(1, 1, tmp_path / "near").parts()  # for texts of another group
    assert part.ids.tolist() == [[-1]]
