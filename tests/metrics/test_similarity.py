import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from pairsmith.metrics.similarity import cosine_similarity_rows, unit_rows


def test_cosines_worked_out_by_hand():
    a = np.array([[3.0, 4.0], [1.0, 0.0], [1.0, 2.0], [2.0, 0.0]])
    b = np.array([[4.0, 3.0], [0.0, 5.0], [-2.0, -4.0], [1.0, 1.0]])
    assert cosine_similarity_rows(a, b) == pytest.approx([24 / 25, 0.0, -1.0, np.sqrt(0.5)], abs=1e-15)


def test_a_zero_vector_is_similar_to_nothing():
    assert cosine_similarity_rows(np.zeros((1, 3)), np.ones((1, 3))).tolist() == [0.0]


def test_equal_directions_are_exact_ties():
    a = np.random.default_rng(0).normal(size=(200, 7))
    assert set(cosine_similarity_rows(a, a * np.linspace(0.1, 9, 200)[:, None]).tolist()) == {1.0}


def test_float32_input_is_computed_in_float64():
    a = np.array([[1.0, 1e-4]], dtype=np.float32)
    cosines = cosine_similarity_rows(a, np.array([[1.0, 0.0]], dtype=np.float32))
    assert cosines.dtype == np.float64
    assert cosines[0] < 1.0


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1e30, 1e200])
def test_very_small_and_very_large_vectors_keep_their_direction(size):
    assert unit_rows(np.array([[3.0, 4.0]]) * size)[0] == pytest.approx([0.6, 0.8], abs=1e-12)


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match=r"got \(2, 3\) and \(3, 3\)"):
        cosine_similarity_rows(np.ones((2, 3)), np.ones((3, 3)))
    with pytest.raises(ValueError, match=r"shape \(n, d\)"):
        cosine_similarity_rows(np.ones(3), np.ones(3))


def test_no_rows_give_no_cosines():
    assert cosine_similarity_rows(np.ones((0, 3)), np.ones((0, 3))).shape == (0,)


vectors = arrays(np.float64, (4, 3), elements=st.floats(-1e6, 1e6, allow_subnormal=False))


@given(vectors, vectors, st.floats(0.01, 100))
def test_cosine_is_symmetric_bounded_and_blind_to_length(a, b, scale):
    cosines = cosine_similarity_rows(a, b)
    assert np.abs(cosines).max() <= 1
    assert cosines == pytest.approx(cosine_similarity_rows(b, a), abs=1e-12)
    assert cosines == pytest.approx(cosine_similarity_rows(a * scale, b), abs=1e-9)
