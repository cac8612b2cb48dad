"""What prompts share at their beginnings, so that it is computed once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.models.language.prefixes import LEAST, by_prefix, common_starts

PASSAGE = tuple(range(100, 160))
OTHER = tuple(range(300, 360))


def test_questions_about_a_passage_share_it_and_those_about_another_do_not():
    start = (1, 2, 3)
    about = [start + PASSAGE + rest for rest in ((7,), (7, 8), (9,))]
    other = [start + OTHER + rest for rest in ((7,), (9,))]
    alone = [(*start, 5, 6), start + tuple(range(500, 560))]
    found = by_prefix([*other, *about, *alone], start)
    assert {prefix: sorted(prompts) for prefix, prompts in found.items()} == {
        start + PASSAGE: about,
        start + OTHER: other,
        start: alone,
    }


def test_a_prefix_is_shorter_than_each_of_its_prompts():
    prompts = [PASSAGE, (*PASSAGE, 1)]
    assert by_prefix(prompts, ()) == {PASSAGE[:-1]: prompts}


def test_passages_are_starts_if_most_prompts_share_them_and_they_are_few():
    passages = [tuple(range(first, first + 60)) for first in range(100, 1_300, 100)]
    prompts = [passage + (question,) * 5 for passage in passages for question in (7, 8)]
    alone = tuple(range(5_000, 5_060))
    starts = {prompt: prompt[:-5] for prompt in prompts} | {alone: alone[:-1]}
    assert common_starts([*prompts, alone], 13) == starts
    nothing = dict.fromkeys([*prompts, alone], ())
    assert common_starts([*prompts, alone], 12) == nothing
    others = [tuple(range(first, first + 60)) for first in range(20_000, 22_000, 100)]
    assert set(common_starts([*prompts[:2], *others], 100).values()) == {()}


def test_passages_after_long_examples_are_no_starts():
    examples = tuple(range(10_000, 10_100))
    passages = [examples + tuple(range(first, first + 60)) for first in range(100, 1_300, 100)]
    prompts = [(*passage, question) for passage in passages for question in (7, 8)]
    assert common_starts(prompts, 100) == dict.fromkeys(sorted(prompts), examples)


@pytest.mark.parametrize(
    ("shared", "rest", "found"),
    [(LEAST, LEAST, True), (LEAST - 1, 1, False), (LEAST, LEAST + 1, False), (60, 60, True)],
)
def test_a_prefix_is_long_and_half_of_its_prompts(shared, rest, found):
    one, other = (PASSAGE[:shared] + (first,) * rest for first in (7, 8))
    assert by_prefix([one, other], ()) == ({PASSAGE[:shared]: [one, other]} if found else {(): [one, other]})


tokens = st.integers(0, 1)
prompts = st.lists(st.lists(tokens, min_size=1, max_size=80).map(tuple), max_size=12)


@given(begun=st.lists(st.lists(tokens, max_size=60).map(tuple), min_size=1, max_size=3), ends=prompts)
def test_every_prompt_stands_once_under_a_prefix_of_its_own(begun, ends):
    every = {start + end for start in begun for end in ends}
    starts = common_starts(every, 4)
    assert starts.keys() == every
    assert all(prompt[: len(start)] == start != prompt for prompt, start in starts.items())
    for start in {*starts.values(), ()}:
        some = [prompt for prompt in every if prompt[: len(start)] == start != prompt]
        found = by_prefix(some, start)
        assert sorted(prompt for under in found.values() for prompt in under) == sorted(some)
        for prefix, under in found.items():
            assert prefix == start or (len(prefix) >= len(start) + LEAST and len(under) > 1)
            assert all(prompt[: len(prefix)] == prefix != prompt for prompt in under)
