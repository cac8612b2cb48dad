"""The width of texts in a terminal."""

import pytest

from pairsmith.core.columns import columns, cut_line, left, right

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
def test_wide_letters_and_marks_that_take_no_column(text, width):
    assert columns(text) == width
    assert left(text, 8) == text + " " * (8 - width)
    assert right(text, 8) == " " * (8 - width) + text


def test_a_text_that_is_too_wide_is_left_as_it_is():
    assert left("日本語", 5) == right("日本語", 5) == "日本語"


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [("abcd", 4, "abcd"), ("abcde", 4, "abc…"), ("角笛と太鼓", 10, "角笛と太鼓"), ("角笛と太鼓", 7, "角笛と…"),
     ("角笛と太鼓", 6, "角笛…"), ("e\u0301e\u0301", 2, "e\u0301e\u0301"), ("हिन्दी", 3, "हिन्दी")],
)  # fmt: skip
def test_lines_are_cut_to_a_width(line, width, expected):
    assert cut_line(line, width) == expected
