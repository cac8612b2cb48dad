"""Pairs chosen in memory and from files, against plain loops."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.search.margin import ScoredCandidates
from pairsmith.search.selection import PairFile, pair_rows, pairs_of, select_pairs

RULES = ["candidates", "max", "intersection", "forward", "backward"]
MARGINS = st.sampled_from([-torch.inf, -1.5, -1e-40, -0.0, 0.0, 1e-40, 0.5, 1.0, torch.inf])


def made(rows):
    x, y = (torch.tensor([row[side] for row in rows], dtype=torch.int64) for side in (0, 1))
    similarity = torch.arange(len(rows), dtype=torch.float32)  # tells equal pairs apart
    return ScoredCandidates(x, y, similarity, torch.tensor([row[2] for row in rows], dtype=torch.float32))


def rows_of(pairs):
    return pair_rows(pairs.x.numpy(), pairs.y.numpy(), pairs)


def joined(parts):
    return pairs_of(np.concatenate([np.zeros((0, 4), np.uint32), *parts]))


def by_loops(forward, backward, retrieval, best):
    """The pairs that a rule takes, as tuples of x, y, cosine and margin."""

    def ranked(*sides):
        rows = [row for side in sides for row in listed(side)]
        rows = sorted(rows, key=lambda row: (-row[3], row[0], row[1]))  # stable, as forward comes first
        return [row for at, row in enumerate(rows) if row[:2] not in {earlier[:2] for earlier in rows[:at]}]

    def once(rows, sides):
        kept, used = [], set()
        for row in rows:
            texts = {(side, row[side]) for side in sides}
            if not texts & used:
                kept.append(row)
                used |= texts
        return kept

    if retrieval == "candidates":
        return sorted(ranked(forward, backward)[:best], key=lambda row: row[0])
    if retrieval == "max":
        return once(ranked(forward, backward), (0, 1))[:best]
    ahead, back = once(ranked(forward), (0,)), once(ranked(backward), (1,))
    if retrieval == "intersection":
        ahead = [row for row in ahead if row[:2] in {other[:2] for other in back}]
    return (back if retrieval == "backward" else ahead)[:best]


def listed(pairs):
    columns = (getattr(pairs, name).tolist() for name in ("x", "y", "similarity", "margin"))
    return list(zip(*columns, strict=True))


def stored(path, pairs, cut=3):
    file = PairFile(path)
    for start in range(0, len(pairs), cut):
        part = pairs[start : start + cut]
        file.extend([rows_of(part)])
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
def test_from_files_and_in_memory_as_by_loops(tmp_path_factory, ahead, back, retrieval, best, rows):
    folder = tmp_path_factory.getbasetemp()
    forward, backward = made(ahead), made(back)
    pair_file = PairFile(folder / "found")
    files = stored(folder / "forward", forward), stored(folder / "backward", backward)
    parts = (file.parts() for file in files)
    pair_file.extend(select_pairs(*parts, retrieval, (6, 6), best=best, folder=folder, rows=rows))
    in_memory = [rows_of(forward)], [rows_of(backward)]
    assert same(pair_file[:], joined(select_pairs(*in_memory, retrieval, (6, 6), best=best)))
    assert listed(pair_file[:]) == by_loops(forward, backward, retrieval, best)
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
    forward = made([(0, 0, 2.0), (0, 1, 3.0), (1, 0, 2.0), (2, 1, 1.0)])
    backward = made([(0, 1, 3.0), (0, 0, 2.0)])
    pair_file = PairFile(tmp_path / "found")
    files = stored(tmp_path / "forward", forward), stored(tmp_path / "backward", backward)
    parts = (file.parts() for file in files)
    pair_file.extend(select_pairs(*parts, retrieval, (3, 2), folder=tmp_path, rows=2))
    listed = (getattr(pair_file[:], name).tolist() for name in ("x", "y", "margin"))
    assert list(zip(*listed, strict=True)) == expected


def test_pairs_are_read_as_they_were_added(tmp_path):
    last = 2**32 - 1
    pairs = ScoredCandidates(
        *torch.tensor([[0, 1, 2], [3, 4, 5]]), torch.tensor([0.1, -0.0, 1.0]), torch.ones(3)
    )
    file = PairFile(tmp_path / "file")
    assert len(file[:]) == 0
    file.extend([pair_rows(np.array([0, 1, last]), np.array([last, 4, 5], np.uint32), pairs)])
    assert file[:].x.tolist() == [0, 1, last]
    assert file[1:9].y.tolist() == [4, 5]
    assert file[:2].similarity.equal(pairs.similarity[:2])
    assert len(file[3:]) == 0
    assert next(file.parts())[1, :2].tolist() == [1, 4]


def test_in_memory_numbers_may_need_32_bits():
    far = [rows_of(made([(2**32 - 1, 2**31, 1.0), (2**31, 2**32 - 1, 2.0), (2**31, 2**31, 3.0)]))]
    some = [far[0][:2]]
    assert joined(select_pairs(far, some, "candidates", (0, 0))).x.tolist() == [2**31, 2**31, 2**32 - 1]
    assert joined(select_pairs(far, some, "intersection", (0, 0))).y.tolist() == [2**31]
