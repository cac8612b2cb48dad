"""The filter of queries against brute force, and by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsmith.methods.retrieval import consistency
from pairsmith.methods.retrieval.consistency import closest, near_copies, own_places


def vectors(count: int, width: int, seed: int) -> torch.Tensor:
    values = np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)
    return torch.from_numpy(values / np.linalg.norm(values, axis=1, keepdims=True))


def test_a_chunk_s_rank_counts_the_nearer_chunks():
    corpus = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [0.0, 1.0]])
    queries = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    places = own_places(queries, corpus, np.array([0, 1, 2, 3]), 2)
    # The third query's chunk is none of the two nearest; the fourth's shares its place with another.
    assert places.ranks.tolist() == [1, 2, 3, 2]
    assert places.similarities == pytest.approx([1, 0.6, 0, 1])


@pytest.mark.parametrize("within", [1, 3, 10, 60])
def test_ranks_are_those_of_all_similarities_sorted(within, monkeypatch):
    monkeypatch.setattr(consistency, "NEIGHBOURS", 100)  # of few queries at once
    queries, corpus = vectors(30, 8, 1), vectors(50, 8, 2)
    own = np.random.default_rng(3).integers(0, 50, 30)
    places = own_places(queries, corpus, own, within)
    every = queries.double().numpy() @ corpus.double().numpy().T
    ranks = [1 + sorted(row, reverse=True).index(row[at]) for row, at in zip(every, own, strict=True)]
    assert places.ranks.tolist() == [min(rank, within + 1) for rank in ranks]
    assert places.similarities == pytest.approx(every[np.arange(30), own], abs=1e-6)


def test_the_closest_of_others():
    queries, others = vectors(20, 8, 1), vectors(7, 8, 2)
    assert closest(queries, others) == pytest.approx((queries @ others.T).max(dim=1).values.numpy(), abs=1e-6)


def test_a_copy_of_a_dropped_query_stays():
    # Each is near the one before only: the second goes, so the third stays, and the fourth goes.
    angles = torch.tensor([0.0, 0.3, 0.6, 0.9])
    some = torch.stack([angles.cos(), angles.sin()], dim=1)
    rows = np.arange(4)
    assert near_copies(some, rows, np.arange(4, dtype=np.uint64), 0.95).tolist() == [-1, 0, -1, 2]


def test_equal_names_are_copies_whatever_the_vectors():
    some = torch.eye(3)
    names = np.array([5, 6, 5], np.uint64)
    assert near_copies(some, np.arange(3), names, 1.0).tolist() == [-1, -1, 0]
    assert near_copies(some, np.array([0, 0]), np.array([1, 2], np.uint64), 1.0).tolist() == [-1, -1]
    assert near_copies(some, np.zeros(0, np.int64), np.zeros(0, np.uint64), 0.9).tolist() == []


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.integers(0, 10_000),
    st.sampled_from([0.3, 0.6, 0.9, 1.0]),
    st.integers(1, 7),
    st.integers(1, 5),
)
def test_copies_are_those_of_a_plain_loop(count, seed, threshold, block, kept_at_once):
    draw = np.random.default_rng(seed)
    some = vectors(12, 3, seed)
    rows, names = draw.integers(0, 12, count), draw.integers(0, 12, count).astype(np.uint64)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(consistency, "QUERIES_AT_ONCE", block)
        patched.setattr(consistency, "KEPT_AT_ONCE", kept_at_once)
        originals = near_copies(some, rows, names, threshold)
    like = (some @ some.T).numpy()
    kept: list[int] = []
    for place in range(count):
        copies = [
            other
            for other in kept
            if names[other] == names[place] or (threshold < 1 and like[rows[other], rows[place]] >= threshold)
        ]
        assert (originals[place] < 0) == (not copies)
        if copies:
            assert originals[place] in copies
        else:
            kept.append(place)
