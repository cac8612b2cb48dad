import pytest

from pairsmith.data.text.spans import find_answer, stands_in

TEXT = "On 4 July, Barack Obama's U.S. trip cost $1,000 while he was playing in Paris."


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("Barack Obama", "Barack Obama"),
        ("barack obama ' s u. s. trip", "Barack Obama's U.S. trip"),
        ("$ 1, 000", "$1,000"),
        ("in", "in"),
        ("4 july", "4 July"),
        ("  paris ", "Paris"),
        ("play", None),  # half a word
        ("London", None),
        (" ", None),
        ("", None),
    ],
)
def test_an_answer_is_found_whatever_its_capitals_and_spaces(answer, found):
    place = find_answer(answer, TEXT)
    assert (TEXT[slice(*place)] if place else None) == found


@pytest.mark.parametrize(
    ("answer", "passage", "expected"),
    [
        ("東京", "彼は東京に住んでいる。", (2, 4)),
        ("กรุงเทพ", "เขาอยู่กรุงเทพมานาน", (7, 14)),
        ("서울", "나는 서울에 산다", (3, 5)),
        ("la la", "Oh Lola la la", (8, 13)),  # the first occurrence begins within a word
        ("राम", "रामायण में राम है", (11, 14)),  # a vowel sign goes on with the first word
        ("Cafe", "Das Cafe\u0301 ist zu", None),  # so does an accent
        ("Müller", "Herr Mu\u0308ller kam", (5, 12)),
        ("Mu\u0308ller", "Herr Müller kam", (5, 11)),
        ("b", "👩‍👩‍👧 a b", (8, 9)),  # characters, not bytes or units of UTF-16
    ],
)
def test_an_answer_in_other_scripts(answer, passage, expected):
    assert find_answer(answer, passage) == expected


def test_it_is_a_word_of_its_own():
    assert TEXT[: find_answer("in", TEXT)[0]].endswith("playing ")


@pytest.mark.parametrize(
    ("part", "whole", "stands"),
    [
        ("P", "complexity of P", True),
        ("P", "complexity of Paris", False),
        ("90", "in the 1990s", False),
        ("90", "1990 and 90 more", True),  # the second place is one
        ("at", "the cat sat at", True),
        ("Obama", "Obama's trip", True),
        ("U.S.", "the U.S. trip", True),
        ("$5", "it cost $5.", True),
        ("\u092c", "\u092c\u093f", False),  # Hindi: a vowel sign belongs to its letter
        ("\u6771\u4eac", "\u6771\u4eac\u90fd\u306f", True),  # Tokyo, in the middle of a Japanese text
        ("\uc11c\uc6b8", "\uc11c\uc6b8\uc740", True),  # Seoul, with a particle
        ("\u0e44\u0e17\u0e22", "\u0e04\u0e19\u0e44\u0e17\u0e22", True),  # Thai
        ("P", "P\u578b", True),
        ("Rome", "rome", False),
    ],
)
def test_word_for_word(part, whole, stands):
    assert stands_in(part, whole) == stands
