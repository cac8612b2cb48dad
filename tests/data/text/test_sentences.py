"""Sentences: what ends one, and where each stands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.text.windows import TextPart, split_sentences

# Pieces that matter to a splitter, so that random texts of them are hard ones.
PIECES = [
    "Mr. ",
    "U.S. ",
    "He ",
    "left",
    ". ",
    "? ",
    '"',
    "'",
    "…",
    "3.5",
    "\n",
    "\r\n",
    "\u2028",
    "\t",
    " ",
    "é",
    "。",
    "雨",
    "」",
    "(",
    ")",
    "no. ",
    "\x00",
]
HARD = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def texts(text):
    return [sentence.text for sentence in split_sentences(text)]


@pytest.mark.parametrize(
    "sentences",
    [
        ["The dog runs.", "It stops!", "Why?"],
        ["Mr. Smith met Dr. Jones of the U.S. Army on Jan. 5 at 3 p.m. in St. Louis.", "They talked."],
        ["J. K. Rowling wrote it.", "She lives in the U.K.", "He does not."],
        ["It costs $3.50, i.e. 5% more than e.g. bread, beer, etc. did.", "That is a lot."],
        ['"It is late," she said.', '"Go home!" he cried.', "They went."],
        ["He said: “We won.”", "Nobody believed him."],
        ["The firm (Apple Inc. of California) grew.", "Sales rose 2.4% to $11.1bn."],
    ],
)
def test_sentences_of_a_line(sentences):
    assert texts(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["東京で雨が降った。", "電車が止まった！", "本当？！", "夕方に再開した"],
        ["「はい。」と言った。", "彼は去った。"],
        ["5円。", "He left."],
    ],
)
def test_full_stops_of_chinese_and_japanese_need_no_space(sentences):
    """One before a closing bracket ends the words in the brackets, and not the sentence around them."""
    assert texts("".join(sentences)) == sentences


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\n\n", " \n\t", "\u2028", "\f"])
def test_a_line_break_ends_a_sentence_without_a_full_stop(end):
    assert texts(f"Heading of the day{end}and a line with Mr.{end}Smith") == [
        "Heading of the day",
        "and a line with Mr.",
        "Smith",
    ]


def test_where_each_stands():
    assert split_sentences("  One.  Two. \n\n Three") == [
        TextPart("One.", 2),
        TextPart("Two.", 8),
        TextPart("Three", 16),
    ]


@pytest.mark.parametrize("text", ["", " ", "\n \t\r\n"])
def test_white_space_has_none(text):
    assert split_sentences(text) == []


@given(st.one_of(HARD, st.text(), st.text(st.sampled_from("aA. ?\"'\n"))))
def test_sentences_stand_where_they_say_and_leave_out_only_white_space(text):
    end = 0
    for sentence in split_sentences(text):
        assert sentence.start >= end
        assert not text[end : sentence.start].strip()
        end = sentence.start + len(sentence.text)
        assert text[sentence.start : end] == sentence.text == sentence.text.strip() != ""
    assert not text[end:].strip()


@pytest.mark.parametrize(
    "sentences",
    [
        ["यह पहला वाक्य है।", "यह दूसरा है॥", "क्या यह तीसरा है?", "हाँ।"],  # Hindi
        ["هذه جملة أولى.", "هل هذه ثانية؟", "ماذا؟!", "قال: «لماذا؟» ثم ذهب."],  # Arabic
        ["یہ پہلا جملہ ہے۔", "یہ دوسرا ہے۔"],  # Urdu
        ["Սա առաջինն է։", "Սա երկրորդն է։"],  # Armenian
        ["ይህ መጀመሪያ ነው።", "ይህ ሁለተኛ ነው።"],  # Amharic
        ["ဒါကပထမ။", "ဒါကဒုတိယ။"],  # Burmese
        ["本当！?", "はい。"],
    ],
)
def test_marks_of_other_languages(sentences):
    assert texts(" ".join(sentences)) == sentences
