import itertools
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.core.errors import InputError
from pairsmith.metrics.squad import exact_match, f1, mean_f1, normalized, squad_warning


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The  Eiffel\tTower!", "eiffel tower"),
        ("an apple, a pear and the rest", "apple pear and rest"),
        ("theatre", "theatre"),
        ("the-end", "theend"),
        ("$1,000.50", "100050"),
        ("Beyoncé’s", "beyoncé’s"),  # a typographic apostrophe is no ASCII punctuation
        ("a–b", "–b"),  # nor is a dash, which ends the word "a"
        ("A. the", ""),
        ("", ""),
    ],
)
def test_normalization(answer, expected):
    assert normalized(answer) == expected


def test_any_gold_answer_will_do():
    golds = ["in the year 1066", "1066"]
    assert exact_match("1066.", golds)
    assert not exact_match("year 1066", golds)
    # With the first: precision 2/2, recall 2/3 ("the" is gone); with the second: 1/2 and 1/1.
    assert f1("year 1066", golds) == pytest.approx(0.8)


def test_words_count_as_often_as_both_have_them():
    # Shared: x once, y once. Precision 2/4, recall 2/3.
    assert f1("x x x y", ["x y z"]) == pytest.approx(2 * (2 / 4) * (2 / 3) / (2 / 4 + 2 / 3))


def test_empty_answers_are_equal_without_a_shared_word():
    assert (exact_match("the", ["A!"]), f1("the", ["A!"])) == (True, 0.0)
    assert (exact_match("", ["x"]), f1("", ["x"]), f1("x", [""])) == (False, 0.0, 0.0)


def test_the_mean_over_questions_is_in_percent():
    predictions = ["Paris", "the red house", "", "seven days"]
    golds = [["paris", "Rome"], ["house", "red"], ["x"], ["days"]]
    # F1: 1; the best of "red house" with "house" 2/3; 0; 2/3.
    assert mean_f1(predictions, golds) == pytest.approx(100 * (1 + 2 / 3 + 2 / 3) / 4)
    assert mean_f1(["x y"] * 7, [["x y"]] * 7) == 100.0


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(InputError, match="question 2 of 2 has no gold answer"):
        mean_f1(["x", "y"], [["x"], []])
    for measure in (exact_match, f1):
        with pytest.raises(ValueError, match="one gold answer or more"):
            measure("x", [])


# The same again without regular expressions, translation tables and counters.


def plain_words(text):
    kept = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    runs = ("".join(run) for _, run in itertools.groupby(kept, key=str.isalnum))
    return "".join(" " if run in {"a", "an", "the"} else run for run in runs).split()


def plain_f1(prediction, gold):
    said, left = plain_words(prediction), plain_words(gold)
    total, same = len(said) + len(left), 0
    for word in said:
        if word in left:
            left.remove(word)
            same += 1
    return 2 * same / total if same else 0.0


pieces = st.sampled_from(
    ["a", "an", "the", "The", "x", "y", "red", " ", " ", "\n", ".", "-", "–", "_", "é", "٣"]
)
answers = st.one_of(st.lists(pieces, max_size=8).map("".join), st.text(max_size=12))


@given(prediction=answers, golds=st.lists(answers, min_size=1, max_size=3))
def test_every_figure_against_plain_loops(prediction, golds):
    assert normalized(prediction) == " ".join(plain_words(prediction))
    same = any(plain_words(prediction) == plain_words(gold) for gold in golds)
    assert exact_match(prediction, golds) is same
    assert f1(prediction, golds) == pytest.approx(max(plain_f1(prediction, gold) for gold in golds))


def test_answers_without_spaces_between_words():
    assert squad_warning([["Rome"]] * 20) == ""
    assert squad_warning([["Rome"]] * 20 + [["東京"]]) == ""
    assert squad_warning([["Rome"]] * 19 + [["東京"]]).startswith(
        "1 of 20 questions have answers in a script"
    )
