"""What a corpus is cut into, and which of it is paired, by hand."""

import numpy as np
import pytest

from pairsmith.data.text import Entity
from pairsmith.methods.mining.style import select_unit_vectors
from pairsmith.methods.mining.units import AnswerInPassage, answers_in_passages, sentences_of


def test_each_answer_stands_in_the_passage_around_it():
    def capitals(passages):
        for passage in passages:
            yield [Entity(word, passage.index(word)) for word in passage.split() if word.istitle()]

    first, second, third = answers_in_passages(
        ["by Rome and Paris. in Bonn so.", "", "none."], capitals, window=4
    )
    assert first == [
        AnswerInPassage("Rome", 3, "by Rome and Paris."),
        AnswerInPassage("Paris.", 12, "by Rome and Paris."),
        AnswerInPassage("Bonn", 3, "in Bonn so."),
    ]
    assert first[0].text == "Rome: by Rome and Paris."
    assert second == third == []


def test_sentences_are_single_ones():
    assert sentences_of("It rains. We run.") == ["It rains.", "We run."]


def test_texts_of_another_style_and_without_direction_are_left_out():
    vectors = np.array([[3, 4], [0, 0], [0, 2], [1, 0]], np.float32)
    unstyled = select_unit_vectors(vectors)
    assert unstyled.kept.tolist() == [True, False, True, True]
    assert unstyled.vectors.dtype == np.float32
    assert unstyled.vectors.tolist() == [pytest.approx([0.6, 0.8]), [0, 1], [1, 0]]
    styled = select_unit_vectors(vectors, np.array([0.5, 0.1, 0.4, 0.9], np.float32), 0.5)
    assert styled.zero.tolist() == [False, True, False, False]
    assert styled.other_style.tolist() == [False, False, True, False]
    assert styled.vectors.tolist() == [pytest.approx([0.6, 0.8]), [1, 0]]
