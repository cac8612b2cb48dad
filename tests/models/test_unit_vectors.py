"""Distinct texts and their vectors of length 1, with vectors worked out by hand."""

import numpy as np
import pytest
from tests.fixed_vectors import encode_fixed_vectors

from pairsmith.core.errors import InputError, ModelError
from pairsmith.models.unit_vectors import distinct_unit_vectors, first_not_finite


@pytest.fixture
def encoder(monkeypatch):
    return encode_fixed_vectors(monkeypatch)({"a": [3, 4], "b": [0, 0], "c": [0, 2], "d": [np.nan, 1]})


def test_each_text_comes_once_and_those_without_a_direction_are_left_out(encoder):
    texts, scaled = distinct_unit_vectors(encoder, iter(["c", "b", "a", "c"]), "query", "inputs")
    assert texts == ["c", "a"]
    assert scaled.tolist() == [[0, 1], pytest.approx([0.6, 0.8])]


@pytest.mark.parametrize("texts", [[], ["b"]])
def test_nothing_with_a_direction_is_refused(encoder, texts):
    with pytest.raises(InputError, match="inputs: there are no texts, or none with a nonzero vector"):
        distinct_unit_vectors(encoder, texts, "query", "inputs")


def test_a_vector_that_is_not_finite_is_refused(encoder):
    with pytest.raises(ModelError, match="not finite for 'd'"):
        distinct_unit_vectors(encoder, ["a", "d"], "query", "inputs")


def test_the_first_vector_that_is_not_finite_is_told():
    assert first_not_finite(np.ones((2, 2), np.float32)) is None
    assert first_not_finite(np.array([[1, 1], [np.inf, 1], [np.nan, 1]], np.float32)) == 1
