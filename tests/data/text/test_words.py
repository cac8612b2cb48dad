"""Words in scripts other than Latin."""

import re
import sys
import unicodedata

import pytest

from pairsmith.data.text.words import JOINERS, MARKS, WORD, count_words, is_unspaced, terms, word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Two  words.", 2),
        ("Die Straße", 2),
        ("हिन्दी भाषा", 2),
        ("나는 서울에", 2),
        ("東京タワーの高さ", 4),  # eight letters
        ("東京タワーは 333m です。", 5),  # six letters, a word, two letters
        ("猫", 1),
        ("กรุงเทพ", 2),  # seven letters and marks
        ("。", 1),
        ("", 0),
    ],
)
def test_the_number_of_words(text, words):
    assert count_words(text) == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The dog's 2nd bone.", ["The", "dog", "s", "2nd", "bone"]),
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा"]),
        ("كِتَاب", ["كِتَاب"]),  # vowel signs
        ("Mu\u0308ller", ["Mu\u0308ller"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("東京は333mだ", ["東京", "京は", "333m", "だ"]),
        ("アン・リー", ["アン", "リー"]),
        ("猫", ["猫"]),
    ],
)
def test_terms(text, expected):
    assert terms(text) == expected


def test_every_mark_of_unicode_is_one():
    matches = re.compile(f"[{MARKS}]").fullmatch
    for point in range(sys.maxunicode + 1):
        character = chr(point)
        wanted = unicodedata.category(character)[0] == "M" or character in JOINERS
        assert bool(matches(character)) == wanted, hex(point)
    assert re.findall(WORD, "हिन्दी, größer") == ["हिन्दी", "größer"]
    assert [is_unspaced(character) for character in ("東", "ก", "한", "a", "")] == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Dr. O'Neill's e-mail, a.b@c.de (Bonn)!", "Dr. O'Neill 's e-mail , a.b@c.de ( Bonn ) !"),
        ("It costs 1,000.50 at 10:30, in the U.S.", "It costs 1,000.50 at 10:30 , in the U.S ."),
        ("Jazz & Rock at AT&T won’t end ...", "Jazz & Rock at AT&T won’t end . . ."),
        ("東京に行く。", "東 京 に 行 く 。"),
        ("देहरादून में", "देहरादून में"),
        (" \t", ""),
    ],
)
def test_words_and_marks_of_a_sentence(sentence, expected):
    assert [sentence[start:end] for start, end in word_spans(sentence)] == expected.split()
