"""The approximate search against a sort of all similarities."""

import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsmith.core.errors import MissingExtra, SettingsError
from pairsmith.search import faiss_search as module
from pairsmith.search.faiss_search import FaissIndex, faiss_search, needed_vectors

pytestmark = pytest.mark.slow

faiss = pytest.importorskip("faiss")

WIDTH = 16
ROWS = 10_000  # an index of 256 lists or less is trained from 9,984 vectors on


def clustered(rows, seed):
    """Vectors of length 1 about 100 centres."""
    centres = torch.randn(100, WIDTH, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    which = torch.randint(100, (rows,), generator=generator)
    noise = torch.randn(rows, WIDTH, generator=generator)
    return torch.nn.functional.normalize(noise + 2 * centres[which], dim=1)


def random(rows, seed, width=WIDTH):
    """Vectors of length 1 in all directions, which no list holds together."""
    vectors = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(vectors, dim=1)


def holding(y, index):
    """An index that was trained on these vectors and holds them."""
    faiss_index = FaissIndex(index, y.shape[1])
    faiss_index.train(y)
    faiss_index.hold(y)
    return faiss_index


def search(x, y, k, index="Flat", **options):
    return faiss_search(x, holding(y, index), k, **options)


def products(x, y):
    return (x.double() @ y.double().T).float()


def exact(x, y, k):
    values, ids = products(x, y).sort(dim=1, descending=True, stable=True)
    return ids[:, :k], values[:, :k]


def check_form(near, x, y, k):
    """The shape, distinct numbers, true similarities, and their order."""
    assert near.ids.shape == near.similarities.shape == (len(x), min(k, len(y)))
    assert (near.ids.dtype, near.similarities.dtype) == (torch.int64, torch.float32)
    assert all(len(set(row)) == len(row) for row in near.ids.tolist())
    assert torch.allclose(near.similarities, products(x, y).gather(1, near.ids), rtol=0, atol=1e-7)
    falls = near.similarities[:, :-1] - near.similarities[:, 1:]
    assert (falls >= 0).all()
    assert (near.ids[:, :-1] < near.ids[:, 1:])[falls == 0].all()


def share(near, x, y, k):
    """Recall by numbers."""
    ids, _ = exact(x, y, k)
    return float((near.ids[:, :, None] == ids[:, None, :]).any(dim=1).double().mean())


def test_flat_is_exact():
    x, y = clustered(130, 1), clustered(300, 2)
    near, recall = search(x, y, 4, "Flat")
    ids, values = exact(x, y, 4)
    assert torch.equal(near.ids, ids)
    assert torch.equal(near.similarities, values)
    assert recall == 1.0


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 60),
    columns=st.integers(1, 60),
    k=st.integers(1, 70),
    seed=st.integers(0, 2**31),
    copies=st.booleans(),
    index=st.sampled_from(["Flat", "IVF8,Flat", "HNSW8"]),
)
def test_any_shape_with_equal_vectors(rows, columns, k, seed, copies, index):
    x, y = clustered(rows, seed), clustered(columns, seed + 1)
    if copies:
        y = y[torch.randint(columns, (columns,), generator=torch.Generator().manual_seed(seed))]
    near, recall = search(x, y, k, index)
    check_form(near, x, y, k)
    if index != "HNSW8":
        assert torch.allclose(near.similarities, exact(x, y, k)[1], atol=2e-6)
        assert recall == 1.0


@pytest.mark.parametrize(
    "index",
    [
        *("IVF64,PQ8x4fs", "PCA8,IVF64,PQ4x4"),
        *(pytest.param(index, marks=pytest.mark.long) for index in ("IVF64,Flat", "HNSW16", "IVF64,SQ8")),
    ],
)
def test_recall_and_similarities_of_clustered_vectors(index):
    x, y = clustered(1500, 1), clustered(ROWS, 2)
    near, recall = search(x, y, 4, index)
    check_form(near, x, y, 4)
    assert recall >= 0.94
    assert recall == pytest.approx(share(near, x, y, 4), abs=0.03)


@pytest.mark.parametrize(("index", "least", "most"), [("IVF64,Flat", 1, 64), ("HNSW16", 1, 256)])
def test_a_higher_probe_finds_more(index, least, most):
    x, y = random(300, 1), random(ROWS, 2)
    tried = holding(y, index)
    efforts = [module._Effort(probe, 4) for probe in (least, most)]
    few, many = (share(tried.search(x, 4, effort), x, y, 4) for effort in efforts)
    assert few < 0.9
    assert many >= 0.99


def test_more_candidates_find_what_compression_hides():
    x, y = random(300, 1), random(ROWS, 2)
    tried = holding(y, "PQ4x4")
    few, many = (share(tried.search(x, 4, module._Effort(1, count)), x, y, 4) for count in (4, ROWS))
    assert few < 0.5
    assert many == 1.0


@pytest.mark.parametrize("wanted", [0.5, 0.8, 0.99])
def test_what_is_looked_at_follows_from_the_recall_that_is_wanted(wanted):
    x, y = random(1000, 1), random(ROWS, 2)
    _, recall = search(x, y, 4, "IVF64,SQ4", recall=wanted)
    assert wanted - 0.03 <= recall < 1 - (1 - wanted) / 8


def test_no_more_is_looked_at_where_it_finds_nothing():
    index = holding(random(ROWS, 2), "IVF64,Flat")
    tried = []
    look = index.search
    index.search = lambda queries, k, effort: tried.append(effort) or look(queries, k, effort)
    effort = module._tuned(index, random(50, 1), 4, 2.0)
    probes = [one.probe for one in tried if one.candidates == effort.candidates == 8]
    assert probes == [2**number for number in range(len(probes))]
    assert probes[-1] == min(64, 2 * effort.probe)


def test_too_few_to_train_are_searched_exactly():
    x, y = random(50, 1), random(2000, 2)
    near, recall = search(x, y, 4, "IVF64,PQ8")
    assert torch.equal(near.ids, exact(x, y, 4)[0])
    assert recall == 1.0


def test_a_query_that_finds_fewer_than_k_is_searched_exactly():
    """About 40 vectors stand in the one list that is looked at."""
    x, y = random(20, 1), random(ROWS, 2)
    near, recall = search(x, y, 200, "IVF256,Flat", recall=0.0)
    assert torch.allclose(near.similarities, exact(x, y, 200)[1], atol=2e-6)
    assert recall == 1.0


def test_fewer_others_than_k():
    x, y = clustered(5, 1), clustered(3, 2)
    near, recall = search(x, y, 10, "HNSW8")
    assert torch.equal(near.ids, exact(x, y, 10)[0])
    assert recall == 1.0


def test_as_near_as_the_kth_counts_as_found():
    """Of 30 equal vectors any two are the nearest."""
    x = torch.eye(4)[:1]
    y = torch.eye(4)[[1, *[0] * 30, 2]]
    near, recall = search(x, y, 2, "Flat")
    assert near.similarities.tolist() == [[1.0, 1.0]]
    assert near.ids[0, 0] < near.ids[0, 1]
    assert recall == 1.0


def test_progress_counts_queries_and_too_few_others_need_no_index():
    x, y = random(ROWS, 1), random(300, 2)
    heard = []
    near, recall = search(x, y, 3, "IVF64,Flat", advance=heard.append)
    assert torch.equal(near.ids, exact(x, y, 3)[0])
    assert recall == 1.0
    assert sum(heard) == len(x)
    _, other_recall = search(y, x, 3, "IVF64,Flat")
    assert other_recall < 1.0


@pytest.mark.parametrize("index", ["IVF64,PQ4x4", "HNSW8", "IVF64_HNSW8,Flat"])
def test_the_same_bytes_each_time(index):
    x, y = clustered(200, 1), clustered(ROWS, 2)
    usual = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(2)
    try:
        (one, _), (other, _) = (search(x, y, 4, index) for _ in range(2))
        assert faiss.omp_get_max_threads() == 2
    finally:
        faiss.omp_set_num_threads(usual)
    assert torch.equal(one.ids, other.ids)
    assert torch.equal(one.similarities, other.similarities)


@pytest.mark.parametrize(
    "index",
    [
        *("IVF64,Flat", "IVF64,PQ8x4fs", "IVF64_HNSW8,Flat", "Flat", "HNSW8"),
        *(pytest.param(index, marks=pytest.mark.long) for index in ("PCA8,IVF64,SQ8", "HNSW8_SQ8")),
    ],
)
def test_an_index_trained_once_holds_other_vectors(index):
    x, y = clustered(200, 1), clustered(2 * ROWS, 2)
    faiss_index = FaissIndex(index, WIDTH)
    faiss_index.train(y)
    trained = faiss_index.to_bytes()
    for part in (y[:ROWS], y[ROWS : ROWS + 300], y):
        faiss_index.hold(part)
        near, recall = faiss_search(x, faiss_index, 4)
        copied = FaissIndex.from_bytes(index, WIDTH, trained)
        copied.hold(part)  # and nothing before
        again, _ = faiss_search(x, copied, 4)
        assert torch.equal(near.ids, again.ids)
        assert torch.equal(near.similarities, again.similarities)
        check_form(near, x, part, 4)
        assert recall >= 0.93
    again, _ = search(x, y, 4, index)
    assert torch.equal(near.ids, again.ids)


@pytest.mark.parametrize("index", ["IVF64,Flat", "Flat", pytest.param("NSG8", marks=pytest.mark.long)])
def test_vectors_in_float16_are_found_as_their_float32_copies(index, monkeypatch):
    x, y = clustered(100, 1).half(), clustered(ROWS, 2).half()
    monkeypatch.setattr(module, "CONVERTED", 3_001)
    near, recall = search(x, y, 4, index)
    expected, recall_32 = search(x.float(), y.float(), 4, index)
    assert torch.equal(near.ids, expected.ids)
    assert torch.equal(near.similarities, expected.similarities)
    assert recall == recall_32


def test_vectors_mapped_from_a_file_and_cut_out_of_others(tmp_path):
    x, y = clustered(100, 1), clustered(ROWS, 2)
    expected, _ = search(x, y, 4, "IVF64,Flat")
    y.numpy().tofile(tmp_path / "vectors")
    mapped = torch.from_numpy(np.memmap(tmp_path / "vectors", np.float32, "c").reshape(ROWS, WIDTH))
    wide = torch.cat([x, x], dim=1)[:, :WIDTH]
    assert not wide.is_contiguous()
    near, _ = search(wide, mapped, 4, "IVF64,Flat")
    assert torch.equal(near.ids, expected.ids)


def test_progress_is_that_of_the_queries():
    heard = []
    search(random(9000, 1, 4), random(10, 2, 4), 1, "Flat", advance=heard.append)
    assert len(heard) == 3
    assert sum(heard) == 9000


def test_what_an_index_is_trained_on():
    assert needed_vectors("Flat", 16) == needed_vectors("HNSW8", 16) == 0
    assert needed_vectors("IVF64,Flat", 16) == 39 * 256  # as many as a byte has values, at least
    assert needed_vectors("IVF1024,PQ4x4", 16) == 39 * 1024


def test_samples():
    drawn = module._drawn(4, 10, 1)
    stretches = [range(2), range(2, 5), range(5, 7), range(7, 10)]
    assert all(number in stretch for number, stretch in zip(drawn.tolist(), stretches, strict=True))
    assert module._drawn(5, 5, 1).tolist() == [0, 1, 2, 3, 4]
    assert not torch.equal(module._drawn(50, 10_000, 1), module._drawn(50, 10_000, 2))


@pytest.mark.parametrize(
    "index", ["", "IVF", "Nope", "IVF64,PQ5", "IVF0,Flat", "IVF64_HNSW1,Flat", "HNSW0", "LSH", "IDMap,Flat"]
)
def test_an_index_that_cannot_be_made(index):
    with pytest.raises(SettingsError, match=f"index '{index}' .* width 16 .* try IVF4096,Flat"):
        search(random(3, 1), random(ROWS, 2), 1, index)


def test_an_index_that_cannot_be_trained():
    y = random(ROWS, 2)
    y[:] = torch.nan
    with pytest.raises(SettingsError, match="index 'IVF64,Flat' .* NaN"):
        search(random(3, 1), y, 1, "IVF64,Flat")


@pytest.mark.parametrize(
    ("x", "y", "options"),
    [
        (torch.zeros(0, 3), torch.ones(1, 3), {}),
        (torch.ones(1, 3), torch.zeros(0, 3), {}),
        (torch.ones(1, 3), torch.ones(1, 2), {}),
        (torch.ones(3), torch.ones(1, 3), {}),
        (torch.ones(1, 3), torch.ones(1, 3), {"k": 0}),
    ],
)
def test_what_does_not_fit(x, y, options):
    with pytest.raises(ValueError, match="expected"):
        search(x, y, **{"k": 1} | options)


def test_without_faiss(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"pairsmith\[faiss\]"):
        search(random(3, 1), random(3, 2), 1, "Flat")
