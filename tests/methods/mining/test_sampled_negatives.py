"""Wrong outputs and samples."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.examples import Example, answer_in_passage
from pairsmith.data.text import entity_finder
from pairsmith.methods.mining.sampled_negatives import (
    answer_negatives,
    in_window,
    overlaps,
    random_negatives,
    reservoir_sample,
)

ONE = "Ann met Bob in Rome in 1990."
OTHER = "The harp of Cid is old."
EXAMPLES = [
    Example("Who met Bob?", answer_in_passage("Ann", ONE), ONE, "Ann", 0),
    Example("Whose is it?", answer_in_passage("Cid", OTHER), OTHER, "Cid", 12),
]


def test_wrong_answers_are_of_both_sorts():
    draw = answer_negatives(EXAMPLES, ["Nobody was there.", "Ann again."], entity_finder("rule"), 2)
    seen = Counter()
    for number in range(40):
        texts = draw(0, np.random.default_rng(number))
        in_passage = [text for text in texts if text.endswith(ONE)]
        there = [text for text in texts if not text.endswith(ONE)]
        assert len(in_passage) == 2
        assert all(not text.startswith("Ann: ") for text in in_passage)
        # The passage with another Ann is none, as the answer may be right there.
        assert set(there) == {f"Ann: {OTHER}", "Ann: Nobody was there."}
        seen.update(in_passage)
    assert len(seen) >= 3  # drawn anew each time


def test_there_are_at_most_twice_as_many_wrong_answers_as_asked_for():
    passages = ["Nobody was there.", "It rained.", "Snow fell."]
    draw = answer_negatives(EXAMPLES, passages, entity_finder("rule"), 1)
    assert {len(draw(0, np.random.default_rng(number))) for number in range(20)} == {2}


def test_a_part_of_the_answer_and_what_contains_it_are_no_wrong_answers():
    assert [overlaps(text, ["ann lee"]) for text in ("Ann", "Ann Lee of Rome", "Bob")] == [True, True, False]


def test_random_outputs_are_of_the_corpus():
    assert sorted(random_negatives(["a", "b"], 3)(0, np.random.default_rng(0))) == ["a", "b"]


@given(items=st.lists(st.integers()), count=st.integers(1, 8), seed=st.integers(0, 99))
def test_a_sample_is_of_the_stream_and_in_its_order(items, count, seed):
    numbered = list(enumerate(items))
    sample = reservoir_sample(iter(numbered), count, seed, "x")
    assert len(sample) == min(count, len(items))
    assert sample == sorted(set(sample), key=lambda pair: pair[0])
    assert set(sample) <= set(numbered)
    assert sample == reservoir_sample(iter(numbered), count, seed, "x")


def test_samples_of_two_streams_are_independent():
    one, other = (set(reservoir_sample(range(4000), 1000, 1, name)) for name in ("inputs", "outputs"))
    assert 200 < len(one & other) < 300  # a quarter


def test_every_item_is_as_likely():
    seen = Counter(item for seed in range(3000) for item in reservoir_sample(range(10), 3, seed, "x"))
    assert min(seen.values()) > 800
    assert max(seen.values()) < 1000


def test_a_long_passage_is_cut_to_the_window_of_the_answer():
    passage = "Ann is here. Bob is there. Cid is away."
    start = passage.index("Cid")
    shortened = in_window(Example("?", "-", passage, "Cid", start), 3)
    assert (shortened.context, shortened.answer_start) == ("Cid is away.", 0)
    assert shortened.output == "Cid: Cid is away."
    plain = Example("a", "b")
    assert in_window(plain, 3) == plain
    across = Example("?", "-", passage, "here. Bob", passage.index("here. Bob"))
    assert in_window(across, 3) == across


@pytest.mark.parametrize("words", [1, 5, 100])
def test_the_answer_stays_where_it_stands(words):
    for example in EXAMPLES:
        shortened = in_window(example, words)
        assert shortened.context.startswith(shortened.answer, shortened.answer_start)
