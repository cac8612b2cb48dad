"""What prompts share at their beginnings, so that it is computed once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.models.language.prefixes import LEAST_SHARED, by_prefix, common_starts

PASSAGE = tuple(range(100, 160))
OTHER = tuple(range(300, 360))


def test_questions_about_a_passage_share_it_and_those_about_another_do_not():
    start = (1, 2, 3)
    about = [start + PASSAGE + rest for rest in ((7,), (7, 8), (9,))]
    other = [start + OTHER + rest for rest in ((7,), (9,))]
    alone = [(*start, 5, 6), start + tuple(range(500, 560))]
    groups = by_prefix([*other, *about, *alone], start)
    assert {prefix: sorted(prompts) for prefix, prompts in groups.items()} == {
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
    ("shared", "rest", "is_prefix"),
    [
        (LEAST_SHARED, LEAST_SHARED, True),
        (LEAST_SHARED - 1, 1, False),
        (LEAST_SHARED, LEAST_SHARED + 1, False),
        (60, 60, True),
    ],
)
def test_a_prefix_is_long_and_half_of_its_prompts(shared, rest, is_prefix):
    one, other = (PASSAGE[:shared] + (first,) * rest for first in (7, 8))
    assert by_prefix([one, other], ()) == (
        {PASSAGE[:shared]: [one, other]} if is_prefix else {(): [one, other]}
    )


def test_a_prefix_is_shared_only_if_that_saves_enough_tokens():
    three, two = ([(*passage, end) for end in range(count)] for passage, count in ((PASSAGE, 3), (OTHER, 2)))
    assert by_prefix([*three, *two], (), 60) == {PASSAGE: three, OTHER: two}
    assert by_prefix([*three, *two], (), 61) == {PASSAGE: three, (): two}
    assert by_prefix([*three, *two], (), 121) == {(): [*three, *two]}
    many = [(*range(first, first + 60), end) for first in range(1_000, 3_000, 100) for end in (7, 8)]
    assert len(set(common_starts(many, 20, 60).values())) == 20
    assert set(common_starts(many, 20, 61).values()) == {()}


def test_one_that_shares_little_ends_a_run_and_all_that_share_nothing_stand_together():
    longer = [PASSAGE + (7,) * 5, PASSAGE + (8,) * 5]
    shorter = PASSAGE[:34] + (9,) * 20  # the 34 tokens that it shares are half of its own, but not of theirs
    far = PASSAGE[:40] + (9,) * 50
    alone = [(1, 2), (3, 4), (5_000, 1)]
    groups = by_prefix([*longer, shorter, far, *alone], ())
    assert groups == {PASSAGE: longer, (): [alone[0], alone[1], shorter, far, alone[2]]}


def test_few_passages_that_many_prompts_begin_with_are_starts_beside_rarer_ones():
    often = [PASSAGE + (question,) * 4 for question in range(12)]
    rare = [(*range(first, first + 60), end) for first in range(1_000, 3_000, 100) for end in (7, 8)]
    starts = common_starts([*often, *rare], 30)
    assert {starts[prompt] for prompt in often} == {PASSAGE}
    assert all(starts[prompt] == prompt[:-1] for prompt in rare)


@st.composite
def families(draw):
    """Prompts of which many share a beginning of some 40 tokens, some also a longer one."""
    tokens = st.integers(0, 2)
    begin = st.lists(tokens, min_size=36, max_size=48).map(tuple)
    first = draw(st.sampled_from([(), (1, 2, 0) * 4]))
    prompts = []
    for passage in draw(st.lists(begin, min_size=1, max_size=4)):
        ends = draw(st.lists(st.lists(tokens, min_size=1, max_size=20).map(tuple), min_size=1, max_size=5))
        prompts += [first + passage + end for end in ends]
    return prompts + draw(st.lists(st.lists(tokens, min_size=1, max_size=90).map(tuple), max_size=4))


@given(prompts=families(), most=st.sampled_from([0, 4, 100]))
def test_every_prompt_stands_once_under_a_prefix_of_its_own(prompts, most):
    every = set(prompts)
    starts = common_starts(every, most)
    assert starts.keys() == every
    assert all(prompt[: len(start)] == start != prompt for prompt, start in starts.items())
    for start in {*starts.values(), ()}:
        some = [prompt for prompt in every if prompt[: len(start)] == start != prompt]
        groups = by_prefix(some, start)
        assert sorted(prompt for under in groups.values() for prompt in under) == sorted(some)
        for prefix, under in groups.items():
            assert all(prompt[: len(prefix)] == prefix != prompt for prompt in under)
            if prefix != start:
                longest = max(map(len, under)) - len(start)
                assert len(prefix) - len(start) >= max(LEAST_SHARED, longest / 2)
                assert len(under) > 1
