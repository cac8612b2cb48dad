"""Windows of whole sentences (Q1): by hand, against plain loops, and what holds for every text."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.text.windows import TextPart, is_within, split_sentences, windows, with_full_stop
from pairsmith.data.text.words import count_words

#       4 words          3 words          2 words    1 word  6 words
TEXT = "One two three four. Five six seven.\nEight nine. Stop. A b c d e f."

WORDS = st.text("abC", min_size=1, max_size=4)
SENTENCES = st.lists(WORDS, min_size=1, max_size=9).map(lambda words: f"Z{' '.join(words)}. ")
PARAGRAPHS = st.one_of(st.lists(SENTENCES, max_size=8).map("".join), st.text(), st.text("aA. \n"))
LENGTHS = st.sampled_from([count_words, len])


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (100, [TEXT]),
        (10, ["One two three four. Five six seven.\nEight nine. Stop.", "A b c d e f."]),
        (7, ["One two three four. Five six seven.", "Eight nine. Stop.", "A b c d e f."]),
        (6, ["One two three four.", "Five six seven.\nEight nine. Stop.", "A b c d e f."]),
        (4, ["One two three four.", "Five six seven.", "Eight nine. Stop.", "A b c d", "e f."]),
        (2, ["One two", "three four.", "Five six", "seven.", "Eight nine.", "Stop.", "A b", "c d", "e f."]),
    ],
)
def test_windows_by_hand(limit, expected):
    pieces = windows(TEXT, limit, count_words)
    assert [window.text for window in pieces] == expected
    assert [window.start for window in pieces] == [TEXT.index(text) for text in expected]


def test_a_word_above_the_limit_is_a_window_of_its_own():
    assert windows("I saw antidisestablishmentarianism there.", 6, len) == [
        TextPart("I saw", 0),
        TextPart("antidisestablishmentarianism", 6),
        TextPart("there.", 35),
    ]


@pytest.mark.parametrize("text", ["", " \n "])
def test_white_space_has_no_windows(text):
    assert windows(text, 5, count_words) == []


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one(limit):
    with pytest.raises(ValueError, match=f"limit of 1 or more, got {limit}"):
        windows("One.", limit, count_words)


@pytest.mark.parametrize(("text", "count"), [("", 0), (" a\tb\n c ", 3), ("well-known, isn't it?", 3)])
def test_words_are_counted(text, count):
    assert count_words(text) == count


def joined_greedily(text, spans, limit, length):
    """The longest runs, by trying each next span in turn."""
    runs = []
    for start, end in spans:
        if runs and length(text[runs[-1][0] : end]) <= limit:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((start, end))
    return runs


def by_plain_loops(text, limit, length):
    parts, run = [], []
    for sentence in split_sentences(text):
        span = (sentence.start, sentence.start + len(sentence.text))
        if length(sentence.text) <= limit:
            run.append(span)
            continue
        words = [
            (span[0] + word.start(), span[0] + word.end()) for word in re.finditer(r"\S+", sentence.text)
        ]
        parts += [run, words]
        run = []
    return [window for part in [*parts, run] for window in joined_greedily(text, part, limit, length)]


def padded(text):
    """As a tokenizer that puts a special token at both ends of each text, and cuts words in two."""
    return 2 + sum(-(-len(word) // 2) for word in text.split())


@given(text=PARAGRAPHS, limit=st.integers(1, 30), length=st.sampled_from([count_words, len, padded]))
def test_windows_against_plain_loops(text, limit, length):
    spans = [(window.start, window.start + len(window.text)) for window in windows(text, limit, length)]
    assert spans == by_plain_loops(text, limit, length)


@given(text=PARAGRAPHS, limit=st.integers(1, 30), length=LENGTHS)
def test_windows_stand_in_the_text_in_order_and_leave_out_only_white_space(text, limit, length):
    end = 0
    for window in windows(text, limit, length):
        assert not text[end : window.start].strip()
        end = window.start + len(window.text)
        assert text[window.start : end] == window.text == window.text.strip()
        assert length(window.text) <= limit or count_words(window.text) == 1
    assert not text[end:].strip()


def test_the_tokenizer_is_asked_a_few_times_a_sentence():
    texts = []

    def length(text):
        texts.append(text)
        return len(text)

    text = "Some words in a row. " * 400
    assert len(windows(text, 400, length)) == 22  # 19 sentences of 20 characters and the spaces between: 398
    assert len(texts) < 400 + 3 * 22


@pytest.mark.parametrize("text", ["x" * 100_000, "some words " * 9_000, "x" * 5_000 + " Some words." * 8_000])
def test_the_tokenizer_never_sees_a_text_of_megabytes(text):
    asked = []

    def length(part):
        asked.append(len(part))
        return len(part) // 3

    pieces = windows(text, 10, length)
    assert max(asked) <= 1_000
    assert [is_within(piece.text, 10, length) for piece in pieces] == [length(p.text) <= 10 for p in pieces]
    assert "".join(piece.text for piece in pieces).replace(" ", "") == text.replace(" ", "")


def test_white_space_does_not_count_against_what_follows_it():
    assert is_within("a" + " " * 5_000 + "b", 2, count_words)
    assert not is_within("a" + " " * 5_000 + "b", 1, count_words)


def test_a_long_word_is_not_taken_for_many_tokens():
    """WordPiece makes one token of a word of more than 100 letters, and many of its beginning."""

    def length(text):
        return sum(1 if len(word) > 100 else -(-len(word) // 4) for word in text.split())

    text = " ".join(["word", "x" * 120, *["word"] * 5, "y" * 300, "end"])
    found = windows(text, 8, length)
    assert [window.text for window in found] == [" ".join(text.split()[:8]), "end"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  Pairs of questions\n", "Pairs of questions."),
        ("Pairs of questions (in English)", "Pairs of questions (in English)."),
        ("Do they ask the same?", "Do they ask the same?"),
        ("They `ask`", "They `ask`."),
        ("(Pairs of questions.)", "(Pairs of questions.)"),
        ("He said “no!”", "He said “no!”"),
        ("質問の対。", "質問の対。"),
        ("", ""),
        ("  ", ""),
    ],
)
def test_a_full_stop_is_added_unless_a_text_ends_a_sentence(text, expected):
    assert with_full_stop(text) == expected
