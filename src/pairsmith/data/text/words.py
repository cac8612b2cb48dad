"""Words in any script, as parts of regular expressions and as functions of a text.

``\\w`` alone divides words: in Hindi, Thai, Arabic with vowel signs, and letters that are written as a base
and an accent, it does not match the marks between the letters. And it joins words: Chinese, Japanese, Thai,
Lao, Khmer and Burmese write no spaces between them.
"""

import math
import re
import unicodedata
from collections.abc import Iterable
from itertools import pairwise

_IDEOGRAPHS = (
    "\u3040-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003ffff"
)
_SYLLABLES = "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
UNSPACED = _IDEOGRAPHS + _SYLLABLES
"""Letters of scripts without spaces between words, for a class in a regular expression: Chinese and Japanese;
Thai, Lao, Tibetan, Burmese and Khmer."""
JOINERS = "\u200c\u200d"
"""Zero-width joiners, which stand within words of Persian and of scripts of India, and within emoji."""


def _ranges(characters: Iterable[int]) -> str:
    """Code points in ascending order, for a class in a regular expression."""
    points = list(characters)
    starts = [points[0], *(after for before, after in pairwise(points) if after != before + 1)]
    ends = [*(before for before, after in pairwise(points) if after != before + 1), points[-1]]
    return "".join(f"{chr(start)}-{chr(end)}" for start, end in zip(starts, ends, strict=True))


# All marks are in these blocks; to look at all of Unicode would take 0.3 s.
_BLOCKS = (
    *((0x300, 0x3100), (0xA600, 0xAC00), (0xFB00, 0xFE30), (0x10100, 0x12000), (0x13440, 0x13460)),
    *((0x16A00, 0x17000), (0x1BC00, 0x1BD00), (0x1CF00, 0x1D300), (0x1DA00, 0x1EA00), (0xE0100, 0xE01F0)),
)
MARKS = JOINERS + _ranges(
    point
    for start, end in _BLOCKS
    for point in range(start, end)
    if unicodedata.category(chr(point))[0] == "M"
)
"""Marks on letters and ``JOINERS``, for a class in a regular expression."""
WORD = rf"[\w{MARKS}]+"
"""A regular expression of a word: letters with their marks, digits and underscores. Runs of ``UNSPACED``
letters count as one word."""

_IDEOGRAPHS_A_WORD, _SYLLABLES_A_WORD = 2, 4
UNSPACED_WORD = (
    rf"[{_IDEOGRAPHS}]{{1,{_IDEOGRAPHS_A_WORD}}}[^\w\s]*|[{_SYLLABLES}]{{1,{_SYLLABLES_A_WORD}}}[^\w\s]*"
)
"""A regular expression of as many ``UNSPACED`` letters as count as a word (``count_words``), with the signs
and marks after them."""

_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")
_IDEOGRAPH = re.compile(f"[{_IDEOGRAPHS}]")
_SYLLABLE = re.compile(f"[{_SYLLABLES}]")
_SPACED_WORD = rf"[^\W{UNSPACED}]+(?:[{MARKS}]+[^\W{UNSPACED}]*)*"
_TERM = re.compile(rf"(?:(?=[\w{MARKS}])[{UNSPACED}])+|{_SPACED_WORD}")
_SPAN = re.compile(
    rf"(?=[\w{MARKS}])[{UNSPACED}]"
    rf"|{_SPACED_WORD}(?:(?:[-.&@]|['’](?!s\b)|(?<=\d)[,:](?=\d)){_SPACED_WORD})*(?:\.(?=\s+[\w{MARKS}]))?"
    r"|['’]s\b|[^\w\s]"
)
_WORD_OR_LETTER = re.compile(rf"(?=[\w{MARKS}])[{UNSPACED}]|{_SPACED_WORD}")


def is_unspaced(character: str) -> bool:
    """Whether this is a letter of a script without spaces between words; false for no character."""
    return bool(_UNSPACED_LETTER.match(character))


def count_words(text: str) -> int:
    """The number of words in ``text``; words are separated by white space.

    In scripts without spaces between words the number is estimated: two letters of Chinese or Japanese and
    four of Thai, Lao, Tibetan, Burmese or Khmer count as a word. ``windows`` takes this function as
    ``length``, to cut a text by words.
    """
    runs = text.split()
    if text.isascii() or not _UNSPACED_LETTER.search(text):
        return len(runs)
    return sum(map(_words_of_run, runs))


def _words_of_run(run: str) -> int:
    ideographs, syllables = len(_IDEOGRAPH.findall(run)), len(_SYLLABLE.findall(run))
    return max(1, math.ceil(ideographs / _IDEOGRAPHS_A_WORD + syllables / _SYLLABLES_A_WORD))


def terms(text: str) -> list[str]:
    """The words of a text as it is, without punctuation, to be compared with those of other texts.

    In scripts without spaces between words each two neighbouring letters are a term, as in search engines.
    """
    parts: list[str] = []
    for run in _TERM.findall(text):
        if len(run) > 1 and is_unspaced(run):
            parts += [run[place : place + 2] for place in range(len(run) - 1)]
        else:
            parts.append(run)
    return parts


def words_or_letters(text: str) -> list[str]:
    """The words of a text in lower case and NFC, without punctuation, to be counted.

    In scripts without spaces between words each letter, and each mark, is a word.
    """
    return _WORD_OR_LETTER.findall(unicodedata.normalize("NFC", text.casefold()))


def word_spans(sentence: str) -> list[tuple[int, int]]:
    """The start and end of each word and each punctuation mark, as in tagged data such as CoNLL's.

    A mark between letters is a part of the word, as in "well-known", "O'Neill" and "a@b.org", and so is the
    full stop of an abbreviation, which stands before another word of the sentence, as in "Dr. Who". But "'s"
    is a word of its own. In scripts without spaces between words each letter is a word.
    """
    return [match.span() for match in _SPAN.finditer(sentence)]
