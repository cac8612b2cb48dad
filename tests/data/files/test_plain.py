import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.files.parsed import Unreadable
from pairsmith.data.files.plain import NARROWEST, decode, unwrapped

TEXT = "Grüße, 你好"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        codecs.BOM_UTF8 + TEXT.encode(),
        TEXT.encode("utf-16"),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-32"),
    ],
)
def test_a_byte_order_mark_says_the_encoding(data):
    assert decode(data) == TEXT


def test_line_ends_of_all_systems():
    assert decode(b"a\r\nb\rc\nd") == "a\nb\nc\nd"


@pytest.mark.parametrize(
    ("data", "reason", "details"),
    [
        (b"one\ncaf\xe9 two", "not UTF-8: byte 0xe9", {"byte": 8, "line": 2}),
        (codecs.BOM_UTF8 + b"\xff", "not UTF-8: byte 0xff", {"byte": 4, "line": 1}),
        (codecs.BOM_UTF16_LE + b"a\x00\x00\xdc", "not UTF-16-LE: byte 0x00", {"byte": 5, "line": 1}),
        ("a".encode("utf-16-le"), "byte 0x00: a binary file, or UTF-16 without a byte order mark",
         {"byte": 2, "line": 1}),
    ],
)  # fmt: skip
def test_what_is_no_text_names_the_byte(data, reason, details):
    with pytest.raises(Unreadable) as caught:
        decode(data)
    fault = caught.value.fault
    assert (fault.filter, fault.reason, fault.details) == ("encoding", reason, details)


def test_lines_broken_to_fit_a_page_are_joined():
    text = (
        "It was the best of times, it was the worst\n"
        "of times, it was the age of surprising\n"
        "wisdom.\n"
        "\n"
        "It was the epoch of belief, it was the\n"
        "season of Light."
    )
    assert unwrapped(text) == (
        "It was the best of times, it was the worst of times, it was the age of surprising wisdom.\n"
        "\n"
        "It was the epoch of belief, it was the season of Light."
    )


def test_lines_that_end_on_purpose_stay():
    text = "Flour\nTwo eggs\nA little more butter than you would think\nSalt\nMilk"
    assert unwrapped(text) == text
    long = "A sentence with many words. " * 8 + "\n" + "Another one of that kind. " * 8
    assert unwrapped(long) == long
    assert unwrapped("") == ""


@pytest.mark.parametrize(
    "text",
    [
        "E1001 disk full\nE1002 disk gone\nE1003 disk slow\nE1004 no disks",
        "Tyger Tyger, burning bright,\nIn the forests of the night;\nWhat immortal hand or eye,\nCould frame thy",
        "def f(x):\n    return x+1",
    ],
)
def test_short_lines_stay_however_even_they_are(text):
    assert unwrapped(text) == text


@given(st.lists(st.text("abc ", max_size=NARROWEST - 1), max_size=8))
def test_no_line_is_joined_where_none_is_as_wide_as_a_page(lines):
    text = "\n".join(lines)
    assert unwrapped(text) == text


def test_lines_of_japanese_are_joined_without_a_space():
    lines = [
        "吾輩は猫である名前はまだ無いどこで生れたかとんと",
        "見当がつかぬ何でも薄暗いじめじめした所でニャーと",
        "泣いて。",
    ]
    assert unwrapped("\n".join([*lines, "次の段落。"])) == f"{''.join(lines)}\n次の段落。"


def test_a_line_of_japanese_that_ends_early_for_a_mark_is_joined():
    line = "吾輩は猫である名前はまだ無いどこで生れたかとんと"
    early = [line, line, line[:-1], "と。" + line[2:], line[:-1], "「" + line[1:], line]
    assert unwrapped("\n".join(early)) == "".join(early)


def test_lines_of_thai_that_are_broken_between_words_are_joined():
    words = ["ภาษาไทย", "เป็น", "ภาษาที่", "มี", "ระดับเสียง", "ของคำ", "แน่นอน", "หรือ", "วรรณยุกต์"]
    paragraph = [words[start % 9] for start in range(0, 140, 4)]
    lines = [""]
    for word in paragraph:
        if len(lines[-1] + word) > 60:
            lines.append("")
        lines[-1] += word
    text = "\n".join([*lines, "ต่อไป", *lines])
    assert len(lines) > 3
    assert unwrapped(text) == f"{''.join(paragraph)}\nต่อไป\n{''.join(paragraph)}"
