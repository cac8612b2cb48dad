"""The width of texts in a terminal."""

import pytest

from pairsmith.core.text_width import cut_line, left_aligned, right_aligned, text_width

WIDTHS = [
    ("abc", 3),
    ("", 0),
    ("größer", 6),
    ("日本語", 6),
    ("e\u0301", 1),
    ("हिन्दी", 3),
    ("👍", 2),
    ("ﾊﾝｶｸ", 4),
]


@pytest.mark.parametrize(("text", "width"), WIDTHS)
def test_wide_letters_take_two_columns_and_accents_none(text, width):
    assert text_width(text) == width
    assert left_aligned(text, 8) == text + " " * (8 - width)
    assert right_aligned(text, 8) == " " * (8 - width) + text


def test_a_text_wider_than_the_column_is_not_cut():
    assert left_aligned("日本語", 5) == right_aligned("日本語", 5) == "日本語"


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [("abcd", 4, "abcd"), ("abcde", 4, "abc…"), ("角笛と太鼓", 10, "角笛と太鼓"), ("角笛と太鼓", 7, "角笛と…"),
     ("角笛と太鼓", 6, "角笛…"), ("e\u0301e\u0301", 2, "e\u0301e\u0301"), ("हिन्दी", 3, "हिन्दी")],
)  # fmt: skip
def test_long_lines_are_shortened_to_the_width(line, width, expected):
    assert cut_line(line, width) == expected
