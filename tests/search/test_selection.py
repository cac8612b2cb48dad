"""Pairs chosen from files, against those chosen in memory."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.search.margin import ScoredCandidates, select_pairs
from pairsmith.search.selection import PairFile, choose_from_files

RULES = ["candidates", "max", "intersection", "forward", "backward"]
MARGINS = st.sampled_from([-torch.inf, -1.5, -1e-40, -0.0, 0.0, 1e-40, 0.5, 1.0, torch.inf])


def pairs_of(rows):
    x, y = (torch.tensor([row[side] for row in rows], dtype=torch.int64) for side in (0, 1))
    similarity = torch.arange(len(rows), dtype=torch.float32)  # tells equal pairs apart
    return ScoredCandidates(x, y, similarity, torch.tensor([row[2] for row in rows], dtype=torch.float32))


def stored(path, pairs, cut=3):
    file = PairFile(path)
    for start in range(0, len(pairs), cut):
        part = pairs[start : start + cut]
        file.add(part.x.numpy(), part.y.numpy(), part)
    return file


def same(one, other):
    return all(getattr(one, name).equal(getattr(other, name)) for name in ScoredCandidates.__slots__)


TEXT = st.integers(0, 5)
CANDIDATES = st.lists(st.tuples(TEXT, TEXT, MARGINS), max_size=25)


@given(
    ahead=CANDIDATES,
    back=CANDIDATES,
    retrieval=st.sampled_from(RULES),
    best=st.none() | st.integers(1, 10),
    rows=st.integers(2, 30),
)
def test_from_files_as_in_memory(tmp_path_factory, ahead, back, retrieval, best, rows):
    folder = tmp_path_factory.getbasetemp()
    forward, backward = pairs_of(ahead), pairs_of(back)
    pair_file = PairFile(folder / "found")
    files = stored(folder / "forward", forward), stored(folder / "backward", backward)
    choose_from_files(*files, retrieval, pair_file, folder, (6, 6), best=best, rows=rows)
    assert same(pair_file[:], select_pairs(forward, backward, retrieval, best=best))
    assert len(pair_file) == len(pair_file[:])
    assert not list(folder.glob(".pairsmith-*"))


@pytest.mark.parametrize(
    ("retrieval", "expected"),
    [
        ("candidates", [(0, 1, 3.0), (0, 0, 2.0), (1, 0, 2.0), (2, 1, 1.0)]),
        ("max", [(0, 1, 3.0), (1, 0, 2.0)]),
        ("forward", [(0, 1, 3.0), (1, 0, 2.0), (2, 1, 1.0)]),
        ("backward", [(0, 1, 3.0), (0, 0, 2.0)]),
        ("intersection", [(0, 1, 3.0)]),
    ],
)
def test_rules_by_hand(tmp_path, retrieval, expected):
    forward = pairs_of([(0, 0, 2.0), (0, 1, 3.0), (1, 0, 2.0), (2, 1, 1.0)])
    backward = pairs_of([(0, 1, 3.0), (0, 0, 2.0)])
    pair_file = PairFile(tmp_path / "found")
    files = stored(tmp_path / "forward", forward), stored(tmp_path / "backward", backward)
    choose_from_files(*files, retrieval, pair_file, tmp_path, (3, 2), rows=2)
    listed = (getattr(pair_file[:], name).tolist() for name in ("x", "y", "margin"))
    assert list(zip(*listed, strict=True)) == expected


def test_pairs_are_read_as_they_were_added(tmp_path):
    last = 2**32 - 1
    pairs = ScoredCandidates(
        *torch.tensor([[0, 1, 2], [3, 4, 5]]), torch.tensor([0.1, -0.0, 1.0]), torch.ones(3)
    )
    file = PairFile(tmp_path / "file")
    assert len(file[:]) == 0
    file.add(np.array([0, 1, last]), np.array([last, 4, 5], np.uint32), pairs)
    assert file[:].x.tolist() == [0, 1, last]
    assert file[1:9].y.tolist() == [4, 5]
    assert file[:2].similarity.equal(pairs.similarity[:2])
    assert len(file[3:]) == 0
    assert next(file.parts())[1, :2].tolist() == [1, 4]


def test_in_memory_numbers_may_need_32_bits():
    far = pairs_of([(2**32 - 1, 2**31, 1.0), (2**31, 2**32 - 1, 2.0), (2**31, 2**31, 3.0)])
    assert select_pairs(far, far[:2], "candidates").x.tolist() == [2**31, 2**31, 2**32 - 1]
    assert select_pairs(far, far[:2], "intersection").y.tolist() == [2**31]
