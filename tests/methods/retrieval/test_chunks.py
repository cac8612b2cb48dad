"""Chunks of documents: by hand, and what holds for every text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.data.files.parsed import Section
from pairsmith.methods.retrieval import chunks
from pairsmith.methods.retrieval.chunks import LONGEST_WORD, Chunk, cut_sections


def cut(text: str, words: int, overlap: int = 0) -> list[str]:
    return [chunk.text for chunk in cut_sections([Section("", text)], words=words, overlap=overlap)]


def sentence(first: int, last: int) -> str:
    """One sentence of the numbers from first to last, each a word."""
    return " ".join(["Word", *(f"w{number}" for number in range(first + 1, last + 1))]) + "."


def test_sentences_are_packed_as_evenly_as_possible():
    # Four sentences of three words: at most seven make two and two, not two, one and so on.
    text = "One two three. Four five six. Seven eight nine. Ten eleven twelve."
    assert cut(text, 7) == ["One two three. Four five six.", "Seven eight nine. Ten eleven twelve."]
    # At most eleven words would leave three for the last; six each is as few chunks, and more even.
    assert cut(text, 11) == ["One two three. Four five six.", "Seven eight nine. Ten eleven twelve."]
    assert cut(text, 12) == [text]


def test_a_sentence_above_the_limit_is_cut_every_so_many_words():
    assert cut(sentence(1, 7), 3) == ["Word w2 w3", "w4 w5 w6", "w7."]


def test_texts_without_spaces_are_cut_without_dividing_letters():
    # Two Japanese letters, or four of Thai, count as a word.
    assert cut("東京は日本の首都。大阪は西の都。", 4) == ["東京は日本の首都。", "大阪は西の都。"]
    assert cut("東京は日本の首都。大阪は西の都。", 8) == ["東京は日本の首都。大阪は西の都。"]
    assert cut("กรุงเทพมานาน", 1) == ["กรุง", "เทพม", "านาน"]
    assert cut("a" * 30 + "\u0301b", 1) == ["a" * 30 + "\u0301", "b"]


def test_the_end_of_a_long_sentence_shares_a_chunk_with_what_follows():
    assert cut(sentence(1, 4) + " And so.", 3) == ["Word w2 w3", "w4. And so."]


def test_overlap_repeats_sentences_that_fit():
    text = "One two. Three four. Five six. Seven eight."
    assert cut(text, 4, overlap=1) == [
        "One two. Three four.",
        "Three four. Five six.",
        "Five six. Seven eight.",
    ]
    # The sentence before does not fit beside one of four words.
    assert cut("One two. Three four. Five six seven eight.", 4, overlap=1) == [
        "One two. Three four.",
        "Five six seven eight.",
    ]


def test_an_overlap_longer_than_the_chunk_before_does_not_repeat_all_of_it():
    assert cut("One. Two two. Three. Four.", 2, overlap=5) == ["One.", "Two two.", "Three. Four."]


def test_no_chunk_crosses_a_section_and_titles_stay():
    sections = [Section("A", "One two."), Section("B", ""), Section("C", "Three.\nFour.")]
    assert list(cut_sections(sections, words=50)) == [Chunk("A", "One two."), Chunk("C", "Three.\nFour.")]


def test_a_text_without_spaces_is_cut_too():
    text = "x" * (3 * LONGEST_WORD + 5)
    assert [len(part) for part in cut(text, 2)] == [2 * LONGEST_WORD, LONGEST_WORD + 5]


def test_a_huge_line_is_cut_in_stretches(monkeypatch):
    monkeypatch.setattr(chunks, "STRETCH", 50)
    text = " ".join(f"w{number}" for number in range(200))
    parts = cut(text, 5)
    assert " ".join(parts) == text
    assert max(len(part.split()) for part in parts) == 5


@pytest.mark.parametrize(("words", "overlap"), [(0, 0), (3, -1)])
def test_impossible_limits_are_refused(words, overlap):
    with pytest.raises(ValueError, match="expected at least one word"):
        cut("One.", words, overlap)


_ANY = st.text(st.sampled_from("ab cD.!?\n\t\u2028é1"), max_size=400)
_NUMBERED = st.lists(st.sampled_from([" ", ". ", ", ", "! ", "\n", "\n\n"]), max_size=80).map(
    lambda ends: "".join(f"Word{number}:{end}" for number, end in enumerate(ends))
)
"""Texts in which no word occurs twice."""


@given(_ANY, st.integers(1, 20))
def test_all_of_a_text_is_in_the_chunks_in_order(text, words):
    parts = cut(text, words)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(1 <= len(part.split()) <= words for part in parts)


@given(_NUMBERED, st.integers(1, 20))
def test_every_word_is_whole_and_in_one_chunk(text, words):
    assert [word for part in cut(text, words) for word in part.split()] == text.split()


@given(_NUMBERED, st.integers(1, 20), st.integers(0, 4))
def test_with_an_overlap_every_chunk_brings_something_new(text, words, overlap):
    end = last = -1
    for part in cut(text, words, overlap):
        start = text.index(part)
        assert start > last, "it begins behind the beginning of the one before"
        assert start + len(part) > end, "it ends behind the end of the one before"
        assert not text[max(end, 0) : start].strip(), "nothing is lost between two"
        assert len(part.split()) <= words
        last, end = start, start + len(part)
    assert not text[max(end, 0) :].strip()
