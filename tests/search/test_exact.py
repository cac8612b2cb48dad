"""The two-way search against a sort of all similarities."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsmith.search import exact as search
from pairsmith.search import shortlist
from pairsmith.search.exact import merged, nearest, two_way_search

FORMATS = [torch.int8, torch.bfloat16, torch.float16, torch.float32]


def unit(rows, width, seed, copies=0):
    """Random vectors of length 1, some of them equal to others."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.nn.functional.normalize(torch.randn(rows, width, generator=generator), dim=1)
    for _ in range(copies):
        one, other = torch.randint(rows, (2,), generator=generator).tolist()
        vectors[one] = vectors[other]
    return vectors


def check(neighbours, x, y, k):
    """Equal to a stable sort, but for the order of those that are equally near within float32's rounding."""
    exact = (x.double() @ y.double().T).float()
    values, ids = exact.sort(dim=1, descending=True, stable=True)
    k = min(k, len(y))
    assert neighbours.ids.shape == neighbours.similarities.shape == (len(x), k)
    assert torch.allclose(neighbours.similarities, values[:, :k], atol=1e-5)
    assert all(len(set(row)) == k for row in neighbours.ids.tolist())
    assert torch.allclose(exact.gather(1, neighbours.ids), neighbours.similarities, atol=1e-5)
    clear = torch.ones(len(x), k, dtype=torch.bool)
    near = (values[:, :-1] - values[:, 1:] < 2e-6)[:, :k]  # each with the one after it
    clear[:, : near.shape[1]] &= ~near
    clear[:, 1:] &= ~near[:, : k - 1]
    assert torch.equal(neighbours.ids[clear], ids[:, :k][clear])
    return float((neighbours.ids == ids[:, :k]).float().mean())


@pytest.mark.parametrize("short", [*FORMATS, None])
@pytest.mark.parametrize(
    "shape", [(1, 1, 8, 4), (130, 5, 16, 3), (700, 2100, 64, 4), (1500, 300, 32, 20), (40, 4500, 384, 1)]
)
def test_both_directions(shape, short):
    rows, columns, width, k = shape
    x, y = unit(rows, width, 1), unit(columns, width, 2)
    of_x, of_y = two_way_search(x, y, k, memory=2**20, short=short)
    assert check(of_x, x, y, k) >= 0.9999
    assert check(of_y, y, x, k) >= 0.9999


@pytest.mark.parametrize(
    ("device", "fast", "short"),
    [
        ("cuda", ("bfloat16", "float16"), torch.bfloat16),
        ("cuda", ("float16", "avx512_vnni"), torch.float16),
        ("cpu", ("bfloat16", "avx512_vnni"), torch.int8),
        ("cpu", ("avx512_vnni",), torch.int8),
        ("cpu", ("bfloat16", "avx512_vnni", "amx_bf16"), torch.bfloat16),
        ("cpu", ("bfloat16",), torch.bfloat16),
        ("cpu", (), torch.float32),
        ("mps", ("float16",), torch.float32),
    ],
)
def test_the_short_format_is_one_that_the_device_multiplies_fast(device, fast, short, monkeypatch):
    monkeypatch.setattr(shortlist, "multiplies_fast", lambda name, where: where == device and name in fast)
    monkeypatch.setattr(shortlist, "processor_has", lambda name: name in fast)
    assert shortlist.short_format(torch.device(device), unit(300, 384, 1), unit(9, 384, 2)) == short


def test_vectors_that_lose_much_in_int8_are_not_searched_in_it(monkeypatch):
    monkeypatch.setattr(shortlist, "processor_has", lambda name: name == "avx512_vnni")
    plain, uneven = unit(300, 384, 1), unit(300, 384, 2)
    uneven[:, 7] += 0.6
    uneven = torch.nn.functional.normalize(uneven, dim=1)
    for sides in ((plain, uneven), (uneven, plain)):
        assert shortlist.short_format(torch.device("cpu"), *sides) != torch.int8


@pytest.mark.parametrize(
    ("device", "width", "right", "wanted"),
    [("cpu", 8, True, True), ("cpu", 1, True, False), ("cpu", 8, False, False), ("cuda", 8, True, False)],
)
def test_int8_is_multiplied_where_it_is_summed_rightly(device, width, right, wanted, monkeypatch):
    monkeypatch.setattr(shortlist, "_sums_are_right", lambda: right)
    assert shortlist.multiplies_int8(torch.device(device), width) == wanted


def exact(x, y, k):
    """A stable sort of all similarities."""
    values, ids = (x.double() @ y.double().T).float().sort(dim=1, descending=True, stable=True)
    return ids[:, :k], values[:, :k]


@pytest.mark.parametrize("short", FORMATS)
@pytest.mark.parametrize("case", ["many groups", "few positive", "zeros"])
def test_where_bounds_are_all_that_tells(case, short, monkeypatch):
    """Similarities that float32 tells apart and shorter formats do not; negative ones; vectors of zeros."""
    monkeypatch.setattr(shortlist, "GROUP", 32)
    monkeypatch.setattr(shortlist, "TILE", (64, 128))
    if case == "many groups":
        angles = torch.linspace(0.5, 0.52, 3000, dtype=torch.float64)
        angles = angles[torch.randperm(3000, generator=torch.Generator().manual_seed(1))]
        x, y, k = torch.tensor([[1.0, 0.0]]), torch.stack([angles.cos(), angles.sin()], dim=1).float(), 4
    elif case == "few positive":
        x, k = unit(1, 16, 1), 4
        y = torch.nn.functional.normalize(0.3 * unit(12 * 32 - 5, 16, 2) - x, dim=1)
        y[[40, 90]] = torch.nn.functional.normalize(0.1 * unit(2, 16, 3) + x, dim=1)
    else:
        x, y, k = unit(50, 16, 1), unit(20 * 32 + 3, 16, 2), 3
        x[:7], y[32:96], y[-3:] = 0, 0, 0
    of_x, of_y = two_way_search(x, y, k, short=short)
    for neighbours, one, other in ((of_x, x, y), (of_y, y, x)):
        ids, values = exact(one, other, k)
        assert torch.equal(neighbours.similarities, values)
        assert torch.equal(neighbours.ids, ids)


def test_bounds_hold_where_all_that_is_lost_points_one_way():
    """By hand: 0.49 / 127 becomes 0 in int8, and the product with a flat vector 0 for 0.03."""
    group, width = shortlist.GROUP, 64
    small = torch.full((1, width), 0.49 / 127)
    small[0, 0] = 1
    flat = torch.ones(1, width)
    flat[0, 0] = 0
    small, flat = (torch.nn.functional.normalize(vector, dim=1) for vector in (small, flat))
    far = -torch.eye(width)[:1]
    one_loses = far.repeat(6 * group, 1)
    one_loses[3 * group + 5] = small
    not_kept = far.repeat(60 * group, 1)
    not_kept[: 32 * group], not_kept[50 * group + 5] = torch.eye(width)[1], small
    for x, y in (
        (small.repeat(3, 1), flat.repeat(6 * group, 1)),
        (flat.repeat(3, 1), one_loses),
        (flat.repeat(3, 1), not_kept),
    ):
        shortlists = shortlist.shortlists(
            x, y, 1, memory=2**20, short=torch.int8, device=torch.device("cpu"), advance=lambda _: None
        )
        for candidates, one, other in zip(shortlists, (x, y), (y, x), strict=True):
            products = torch.nn.functional.pad(one @ other.T, (0, -len(other) % group), value=-torch.inf)
            largest = products.view(len(one), -1, group).amax(dim=2)
            bounds, rest = candidates.bounds(slice(None))
            kept = candidates.groups.long()
            assert (bounds >= largest.gather(1, kept)).all()
            assert (rest >= largest.scatter(1, kept, -torch.inf).amax(dim=1)).all()


def test_a_gpu_does_not_round_within_sums(monkeypatch):
    names = {"allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction"}
    matmul, real, allowed = torch.backends.cuda.matmul, shortlist._largest, []

    def largest(*given, **named):
        allowed.append({name for name in names if getattr(matmul, name)})
        return real(*given, **named)

    monkeypatch.setattr(shortlist, "_largest", largest)
    before = {name for name in names if getattr(matmul, name)}
    two_way_search(unit(600, 8, 1), unit(600, 8, 2), 1)
    assert allowed == [set()] * len(allowed) != []
    assert {name for name in names if getattr(matmul, name)} == before == names


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 250),
    columns=st.integers(1, 250),
    width=st.sampled_from([1, 2, 8, 48]),
    k=st.integers(1, 30),
    seed=st.integers(0, 2**31),
    copies=st.sampled_from([0, 40]),
    group=st.sampled_from([4, 32]),
    short=st.sampled_from(FORMATS),
)
def test_any_shape_with_many_equal_vectors(rows, columns, width, k, seed, copies, group, short):
    x, y = unit(rows, width, seed, copies), unit(columns, width, seed + 1, copies)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortlist, "GROUP", group)
        patch.setattr(shortlist, "TILE", (2 * group, 4 * group))
        of_x, of_y = two_way_search(x, y, k, memory=2**12, short=short)
    check(of_x, x, y, k)
    check(of_y, y, x, k)


@pytest.mark.parametrize("short", FORMATS)
def test_what_rounding_hides_is_found(short):
    """Similarities closer to each other than bfloat16 can tell, in more groups than are kept."""
    rows = 3000
    angle = torch.linspace(0, 1e-2, rows)
    y = torch.stack([angle.cos(), angle.sin()], dim=1)[
        torch.randperm(rows, generator=torch.Generator().manual_seed(1))
    ]
    x = torch.tensor([[1.0, 0.0]])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortlist, "GROUP", 32)
        patch.setattr(shortlist, "TILE", (32, 256))
        of_x, _ = two_way_search(x, y, 4, short=short)
    assert of_x.similarities[0].tolist() == pytest.approx([1.0] * 4, abs=1e-6)
    exact = (x.double() @ y.double().T)[0]
    assert set(of_x.ids[0].tolist()) <= set(
        (exact >= exact.sort(descending=True).values[3] - 1e-7).nonzero()[:, 0].tolist()
    )


def test_the_usual_case_needs_no_full_search(monkeypatch):
    monkeypatch.setattr(search, "_compute_all", None)
    x = unit(2000, 64, 1)
    y = torch.nn.functional.normalize(x + 0.1 * unit(2000, 64, 2), dim=1)
    of_x, of_y = two_way_search(x, y, 1)
    assert of_x.ids[:, 0].tolist() == of_y.ids[:, 0].tolist() == list(range(2000))


def adds(monkeypatch, name="add"):
    """Notes of what is found for how many vectors it comes together, and how many similarities."""
    added, real = [], getattr(search._Candidates, name)

    def add(self, rows, *neighbours):
        added.append((len(rows.unique()), neighbours[0].numel()))
        real(self, rows, *neighbours)

    monkeypatch.setattr(search._Candidates, name, add)
    return added


@pytest.mark.parametrize("k", [4, 16, 40])
def test_what_a_vector_finds_is_put_together_few_times_however_many_are_wanted(k, monkeypatch):
    monkeypatch.setattr(shortlist, "GROUP", 32)
    x, y = unit(6000, 16, 1), unit(6000, 16, 2)
    added = adds(monkeypatch)
    two_way_search(x, y, k)
    assert 0 < sum(rows for rows, _ in added) <= 2 * (len(x) + len(y))  # promising groups, then others


def test_what_is_held_at_once_fits_the_memory(monkeypatch):
    x, y = unit(3000, 16, 1), unit(3000, 16, 2)
    added = adds(monkeypatch)
    two_way_search(x, y, 4, memory=2**25)
    assert max(similarities for _, similarities in added) * search.HIT_BYTES <= 2**25 // 8
    assert len(added) > 4
    added.clear()
    two_way_search(x, y, 4, memory=2**30)
    assert len(added) <= 4


@pytest.mark.parametrize("copies", [0, 2000])
def test_looking_at_all_finds_the_same(copies, monkeypatch):
    x, y = unit(1500, 32, 1, copies), unit(1800, 32, 2, copies)
    results = []
    for many in (0, 1000):
        monkeypatch.setattr(search, "FULL_SEARCH_FACTOR", many)
        results.append(two_way_search(x, y, 4))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one.ids, other.ids)
        assert torch.equal(one.similarities, other.similarities)


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_of_few_vectors_too_the_first_of_many_equal_ones_are_found(rows):
    base = unit(40, 64, 1)
    x, y = base[:rows], base[torch.arange(3000) % 40]
    of_x, _ = two_way_search(x, y, 6)
    assert of_x.ids.tolist() == [[n + 40 * copy for copy in range(6)] for n in range(rows)]


def test_a_small_corpus_is_searched_in_parts_that_fit(monkeypatch):
    """Its few groups are wanted by all of the other side at once."""
    x, y = unit(40, 16, 1), unit(900, 16, 2)
    whole = two_way_search(x, y, 3)
    monkeypatch.setattr(search, "FULL_ROWS", 100)
    added = adds(monkeypatch, "add_all")
    parts = two_way_search(x, y, 3)
    assert max(rows for rows, _ in added) == 100
    for one, other in zip(whole, parts, strict=True):
        assert torch.equal(one.ids, other.ids)
        assert torch.equal(one.similarities, other.similarities)


def test_progress_and_refusals():
    heard = []
    two_way_search(unit(2100, 4, 1), unit(10, 4, 2), 2, memory=1, advance=heard.append)
    assert heard == [1024, 1024, 52]
    for x, y, k in (
        (torch.zeros(0, 3), torch.ones(1, 3), 1),
        (torch.ones(1, 3), torch.ones(1, 2), 1),
        (torch.ones(1, 3), torch.ones(1, 3), 0),
    ):
        with pytest.raises(ValueError, match="expected"):
            two_way_search(x, y, k)


@pytest.mark.parametrize("k", [1, 4, 9])
def test_searched_in_parts_on_any_number_of_threads_it_is_the_same(k):
    x, y = unit(900, 48, 1, copies=60), unit(1300, 48, 2, copies=60)
    whole_x, whole_y = two_way_search(x, y, k)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        parts = [two_way_search(x[i : i + 400], y, k) for i in range(0, 900, 400)]
    finally:
        torch.set_num_threads(threads)
    for number, (of_x, of_y) in enumerate(parts):
        of_y.ids.add_(400 * number)
        assert torch.equal(of_x.ids, whole_x.ids[400 * number : 400 * (number + 1)])
        assert torch.equal(of_x.similarities, whole_x.similarities[400 * number : 400 * (number + 1)])
    together = merged([of_y for _, of_y in parts], k)
    assert torch.equal(together.ids, whole_y.ids)
    assert torch.equal(together.similarities, whole_y.similarities)


@pytest.mark.parametrize("k", [1, 5])
def test_groups_copied_for_each_vector_hold_the_same_neighbours(k, monkeypatch):
    """What a GPU does after the shortlists, on the processor, with a last group that is not full."""

    def gathered(vectors, others, top, selected, groups, floor, neighbours, memory):
        search._compute_gathered(vectors, others, top, selected, groups, neighbours)

    monkeypatch.setattr(search, "_compute", gathered)
    monkeypatch.setattr(search, "CACHE_BYTES", 2**16)
    x, y = unit(700, 16, 1), unit(20 * shortlist.GROUP + 3, 16, 2)
    for neighbours, one, other in zip(two_way_search(x, y, k), (x, y), (y, x), strict=True):
        ids, values = exact(one, other, k)
        assert torch.equal(neighbours.similarities, values)
        assert torch.equal(neighbours.ids, ids)


@pytest.mark.parametrize("short", FORMATS)
def test_vectors_in_float16_are_found_as_their_float32_copies(short):
    x, y = unit(300, 32, 1, 40).half(), unit(700, 32, 2, 90).half()
    short_x, short_y = two_way_search(x, y, 3, short=short)
    long_x, long_y = two_way_search(x.float(), y.float(), 3, short=short)
    for neighbours, expected in ((short_x, long_x), (short_y, long_y)):
        assert torch.equal(neighbours.ids, expected.ids)
        assert torch.equal(neighbours.similarities, expected.similarities)
    assert torch.equal(nearest(x, y, 5).ids, nearest(x.float(), y.float(), 5).ids)
