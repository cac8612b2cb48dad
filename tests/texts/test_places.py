import pytest

from pairsmith.texts.places import find_answer

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


def test_it_is_a_word_of_its_own():
    assert TEXT[: find_answer("in", TEXT)[0]].endswith("playing ")
