import string

from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.text.folding import folded


@given(st.text(string.printable, min_size=1).filter(lambda text: any(map(str.isalnum, text))))
def test_a_letter_beyond_ascii_changes_nothing_else(text):
    """Texts in ASCII are folded by a pattern, others letter by letter."""
    assert folded(f"é{text}") == f"é{folded(text)}"


def test_punctuation_between_digits_is_kept():
    assert folded("Ça coûte 1.5 m, non 15.") == "çacoûte1.5mnon15"
