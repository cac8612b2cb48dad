import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pairsmith.runs.seeds import philox, stream_key, uniforms


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the generator's published test vectors
        ([0, 0, 0, 0], (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        (
            [0xFFFFFFFF] * 4,
            (0xFFFFFFFF, 0xFFFFFFFF),
            [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        ),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            (0xA4093822, 0x299F31D0),
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_gives_the_published_vectors(counter, key, expected):
    assert philox(np.array([counter], dtype=np.uint64), key).tolist() == [expected]


def test_draws_are_uniform_and_streams_independent():
    streams = np.array([stream_key("row", i) for i in range(200)], dtype=np.uint64)
    draws = np.stack([uniforms(7, streams, np.full(200, p)) for p in range(200)])
    assert draws.min() >= 0
    assert draws.max() < 1
    assert stats.kstest(draws.ravel(), "uniform").pvalue > 1e-4
    correlation = np.corrcoef(draws[:, :20], rowvar=False) - np.eye(20)
    assert np.abs(correlation).max() < 0.35


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20))
def test_a_draw_does_not_depend_on_its_neighbours(seed, names):
    streams = np.array(names, dtype=np.uint64)
    positions = np.arange(len(names))
    together = uniforms(seed, streams, positions)
    alone = [uniforms(seed, streams[i : i + 1], positions[i : i + 1])[0] for i in range(len(names))]
    assert together.tolist() == alone


def test_seed_and_position_matter():
    stream = np.array([1], dtype=np.uint64)
    values = {uniforms(seed, stream, np.array([p]))[0] for seed in (0, 1, 2**40) for p in (0, 1, 2**40)}
    assert len(values) == 9


def test_stream_key_separates_its_parts_and_is_stable():
    assert stream_key("ab", "c") != stream_key("a", "bc")
    assert stream_key("a", 1) == stream_key("a", "1")
    assert stream_key("pair", "0.5", 3) == 2**64 - 1 & stream_key("pair", "0.5", 3)
    assert stream_key() != stream_key("")
