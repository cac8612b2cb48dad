"""Distinct texts and their vectors of length 1, with vectors worked out by hand."""

import numpy as np
import pytest

from pairsmith.core.errors import InputError, ModelError
from pairsmith.models import unit_vectors
from pairsmith.models.unit_vectors import distinct_unit_vectors, first_not_finite


@pytest.fixture
def vectors(monkeypatch):
    """The vectors that an encoder gives: they may be set."""
    of_texts = {"a": [3, 4], "b": [0, 0], "c": [0, 2]}
    monkeypatch.setattr(
        unit_vectors,
        "encode_texts",
        lambda _, texts, side: np.array([of_texts[text] for text in texts], np.float32),
    )
    return of_texts


def test_each_text_comes_once_and_those_without_a_direction_are_left_out(vectors):
    texts, scaled = distinct_unit_vectors(None, iter(["c", "b", "a", "c"]), "query", "inputs")
    assert texts == ["c", "a"]
    assert scaled.tolist() == [[0, 1], pytest.approx([0.6, 0.8])]


@pytest.mark.parametrize("texts", [[], ["b"]])
def test_nothing_with_a_direction_is_refused(vectors, texts):
    with pytest.raises(InputError, match="inputs: there are no texts, or none with a nonzero vector"):
        distinct_unit_vectors(None, texts, "query", "inputs")


def test_a_single_text_is_no_list_of_texts(vectors):
    with pytest.raises(InputError, match="inputs must be a list of texts, not a single text"):
        distinct_unit_vectors(None, "abc", "query", "inputs")


def test_a_vector_that_is_not_finite_is_refused(vectors):
    vectors["c"] = [np.nan, 1]
    with pytest.raises(ModelError, match="not finite for 'c'"):
        distinct_unit_vectors(None, ["a", "c"], "query", "inputs")


def test_the_first_vector_that_is_not_finite_is_told():
    assert first_not_finite(np.ones((2, 2), np.float32)) is None
    assert first_not_finite(np.array([[1, 1], [np.inf, 1], [np.nan, 1]], np.float32)) == 1
