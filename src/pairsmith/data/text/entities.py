"""Finds the candidate answers in a passage (M7): names, numbers, dates and terms.

The mining paper uses the named entities that spaCy finds, as does the finder ``spacy:MODEL``. The built-in
rule needs no model: regular expressions recognise candidates in English text by capital letters, digits,
number words and quotation marks. They take linear time on any text, because every repetition is bounded or
does not backtrack: ``++`` after a character, and ``(?>…)`` around a group, as ``++`` after a group matches
wrongly before Python 3.11.5.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import Any

from pairsmith.core.errors import MissingExtra, ModelError, SettingsError, first_line, known_names_hint
from pairsmith.core.model_files import hash_files
from pairsmith.data.text.words import UNSPACED

RULE = "rule"
SPACY = "spacy:"

Span = tuple[int, int]
_PASSAGES = 64
"""Number of passages in a batch of spaCy."""
LONGEST_ANSWER = 100
"""Length in characters of the rule's longest candidates; longer texts are no plausible answers."""
_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")


@dataclass(frozen=True, slots=True)
class Entity:
    """A candidate answer, and the offset of its first character in the passage, in characters."""

    text: str
    start: int


def entity_finder(name: str) -> Callable[[str], list[Entity]]:
    """The function with this name that finds the candidate answers in a passage.

    ``rule`` is the built-in rule. ``spacy:MODEL`` returns the named entities of a spaCy model, which is
    installed (``spacy:en_core_web_sm``) or in a folder. The function returns each distinct text once, at its
    first occurrence, sorted by start and then by length; ``passage[start : start + len(entity.text)]`` is the
    candidate.
    """
    if name == RULE:
        return find_entities
    find = entities_of_texts(name)
    return lambda text: next(find([text]))


def entities_of_texts(name: str) -> Callable[[Iterable[str]], Iterator[list[Entity]]]:
    """As ``entity_finder``, for many passages, which spaCy reads in batches.

    The function yields one list of candidates per passage, in the order of the passages.
    """
    if name == RULE:
        return partial(map, find_entities)
    model = name.removeprefix(SPACY)
    if model == name or not model:
        hint = known_names_hint(name, [RULE, f"{SPACY}MODEL"])
        raise SettingsError(f"no answer finder is called {name!r}; {hint}")
    return _spacy_finder(model)


def finder_revision(name: str) -> dict[str, str]:
    """The revision of the spaCy model under the key ``answers``, for the manifest; empty for the rule.

    It is the version of an installed model, or a hash of the files in the model's folder. The result is empty
    if the model is missing, which is reported when it is loaded.
    """
    model = name.removeprefix(SPACY)
    if model == name:
        return {}
    folder = Path(model)
    if folder.is_dir():
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        return {"answers": hash_files(folder, files)}
    with suppress(PackageNotFoundError):
        return {"answers": version(model)}
    return {}


def _spacy_finder(model: str) -> Callable[[Iterable[str]], Iterator[list[Entity]]]:
    try:
        import spacy
    except ImportError:
        raise MissingExtra("spacy", "spacy") from None
    try:
        pipeline: Any = spacy.load(model, exclude=["parser", "lemmatizer"])  # slow and not used for entities
    except (ImportError, OSError, ValueError) as error:
        raise ModelError(
            f"spaCy model {model} cannot be loaded ({first_line(error)}); "
            f"give a folder, or install it with: python -m spacy download {model}"
        ) from error
    if not {"ner", "entity_ruler", "span_ruler"} & set(pipeline.pipe_names):
        parts = ", ".join(pipeline.pipe_names) or "none"
        raise ModelError(
            f"spaCy model {model} finds no entities, as it has no component ner; its components: {parts}"
        )

    def find(texts: Iterable[str]) -> Iterator[list[Entity]]:
        for document in pipeline.pipe(texts, batch_size=_PASSAGES):
            yield _distinct(document.text, ((entity.start_char, entity.end_char) for entity in document.ents))

    return find


def find_entities(text: str) -> list[Entity]:
    """The candidates of the built-in rule, in the order of ``entity_finder``.

    Names are runs of capitalised words (``Bank of England``, ``J. K. Rowling``, ``Levi's Stadium``), also
    followed by a noun (``Tesla coil``) or joined (``Sui and Tang``). A function word at the beginning of a
    sentence (``The``, ``However``) is not a name. Numbers, in digits or words, are candidates with and
    without their units and bounds (``over $2.5 million``, ``15 km``, ``1368–1644``, ``early 1990s``). Other
    candidates are dates, texts in quotation marks or brackets, hyphenated words, terms after ``called`` or
    ``known as``, and long words, which are mostly technical terms. On the development set of SQuAD 1.1 a
    passage has 24 candidates on average, and 60 % of the questions have an answer among them. In Chinese,
    Japanese and other texts without spaces the candidates are numbers and words in Latin letters.
    """
    # Letters of scripts without spaces would go on with the name or number before them, as in "Sharkが".
    masked = text if text.isascii() else _UNSPACED_LETTER.sub("、", text)
    spans = [span for kind in _KINDS for span in kind(masked)]
    return _distinct(text, (span for span in spans if span[1] - span[0] <= LONGEST_ANSWER))


def _distinct(text: str, spans: Iterable[Span]) -> list[Entity]:
    """Each distinct text of the spans once, at its first occurrence."""
    first_start: dict[str, int] = {}
    for start, end in sorted(spans):
        first_start.setdefault(text[start:end], start)
    return [Entity(surface, start) for surface, start in first_start.items()]


def _any_of(words: str) -> str:
    """A pattern that matches any of these words, grouped by first letter so that it fails faster."""
    groups = groupby(sorted(set(words.split())), key=lambda word: word[0])
    branches = (f"{letter}(?:{'|'.join(word[1:] for word in group)})" for letter, group in groups)
    return f"(?:{'|'.join(branches)})"


# Names

_FUNCTION_WORDS = """
    a about according additionally after against all also although among an and another any around as at
    be because been before being between both but by can could currently despite did do does due during
    each earlier either even eventually every few finally following for from furthermore generally given
    had has have he hence her here his how however i if in initially instead into is it its just later let
    like many meanwhile might more moreover most much must my neither no nor not now of often on once only
    onto or originally other others our over recently several shall she should since so some sometimes
    still such than that the their then there therefore these they this those though through throughout
    thus to today under unlike until upon using usually was we were what when where which while who whom
    whose why will with within without would yes yet you your
"""
_VERBS = """
    became began built came found held last led left lost made may said says took used went won wrote
"""
_NO_NOUNS = frozenset(f"{_FUNCTION_WORDS}{_VERBS}".split())
_ERA = "(?:BC|AD|BCE|CE)"
_NO_NAMES = _any_of(" ".join(word.capitalize() for word in _FUNCTION_WORDS.split() if len(word) > 1))
_UPPER = "".join(
    letter
    for block in (range(0x41, 0x250), range(0x370, 0x530), range(0x1E00, 0x2000))  # Latin, Greek, Cyrillic
    for letter in map(chr, block)
    if letter.isupper()
)
_ABBREVIATED = r"(?:St|Mt|Ft|Dr|Mr|Mrs|Ms|Prof|Gen|Sgt|Capt|Lt|Col|Rev|Jr|Sr)\."
_CAPITALISED = rf"(?!{_NO_NAMES}\b)[{_UPPER}]\w*+(?>(?:[-–]\w++|['’](?!s\b)\w++)*)"
# A full stop after I ends a sentence more often than it marks an initial.
_WORD = rf"(?:{_ABBREVIATED}|(?>(?:(?!I\.)[{_UPPER}]\.)+)|{_CAPITALISED})"
_OF = "of|de|del|della|di|da|do|dos|du|des|la|le|les|van|von|der|den|zu|al|el|bin|ibn|aan|&"
_IN = "in|on|for|at|to|upon|the"
# A and I begin no name, but end some (Serie A, World War I).
_NAME = (
    rf"(?!(?:[AI]|{_ERA})(?![\w-])){_WORD}"
    rf"(?>(?:(?:['’]s)? (?:(?:(?:{_OF}|{_IN})(?: the| la)? )?{_WORD}|\d++(?![.,]?\d)\b)){{0,9}})"
)
_AND = r"(?:,? and|,)(?: the)? "
_NAMES = re.compile(rf"(?<!\w){_NAME}(?>(?:{_AND}{_NAME}){{0,5}})")
_BETWEEN_NAMES = re.compile(_AND)
_BETWEEN_PARTS = re.compile(rf" (?:{_IN})(?: the| la)? ")
_NOUN_BEHIND = re.compile(r"(?:['’]s)? ([a-z]{3,}+(?>(?:-[a-z]++)?))\b(?<!ed)(?<!ly)")
_ROLE = re.compile(
    r"(?:President|Prime Minister|Minister|Commissioner|King|Queen|Prince|Princess|Emperor|Sir|Lord|Lady|"
    r"General|Colonel|Captain|Major|Admiral|Governor|Mayor|Senator|Professor|Pope|Bishop|Archbishop|"
    r"Secretary|Director|Judge|Justice|Duke|Chief|Coach|Dr\.?|Mr\.?|Mrs\.?|Ms\.?|Prof\.|Gen\.|Rev\.) (?=\w)"
)


def _names(text: str) -> Iterator[Span]:
    for match in _NAMES.finditer(text):
        if " and " in match[0]:
            yield match.span()
        for start, end in _divided(_BETWEEN_NAMES, text, *match.span()):
            yield start, end
            if role := _ROLE.match(text, start, end):
                yield role.end(), end
            noun = _NOUN_BEHIND.match(text, end)
            if noun and noun[1] not in _NO_NOUNS:
                yield start, noun.end()
            yield from _divided(_BETWEEN_PARTS, text, start, end)


def _divided(by: re.Pattern[str], text: str, start: int, end: int) -> Iterator[Span]:
    """The spans before, between and after the matches of ``by``."""
    for match in by.finditer(text, start, end):
        yield start, match.start()
        start = match.end()
    yield start, end


# Numbers and dates

_MONTH = (
    "(?:January|February|March|April|May|June|July|August|September|October|November|December|"
    r"(?:Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)\.?)"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_YEAR = r"\d{4}\b"
_DATE = rf"\b(?:{_DAY} {_MONTH}(?:,? {_YEAR})?|{_MONTH} {_DAY}\b(?:,? {_YEAR})?|{_MONTH},? {_YEAR})"
_NUMBER = (
    r"(?:(?:US|A|C|HK)?[$£€¥])?\d++(?>(?:[.,:/]\d++){0,9})(?>[a-z]{0,3})(?!\w)"  # also 1990s, 5th, 80m, 12:30
    r"(?: ?%| percent\b| per cent\b|(?>(?: (?:hundred|thousand|million|billion|trillion)\b){1,3}))?"
    rf"(?: {_ERA}\b)?"
)
_TO = r"(?: ?[–-] ?| to | and )"
_NUMBERS = re.compile(
    rf"(?<![\w.,:/])(?P<number>{_NUMBER})(?P<range>{_TO}(?P<last>{_NUMBER}))?"
    rf"(?:[ -](?P<unit>[a-zµ°]\w*+)(?P<more> (?:[a-z]++|{_ERA}\b))?)?"
)
_BOUND = re.compile(
    r"\b(?:over|about|around|nearly|approximately|almost|more than|less than|at least|up to|some|roughly|"
    r"early|mid|late|circa|AD)[ -]$"
)
_LONGEST_BOUND = len("approximately ")


def _numbers(text: str) -> Iterator[Span]:
    for match in _NUMBERS.finditer(text):
        start = match.start()
        ends = [match.end("number")]
        if match["range"]:
            yield match.span("last")
            ends.append(match.end("range"))
        if match["unit"] and match["unit"] not in _NO_NOUNS:
            ends.append(match.end("unit"))
            if match["more"] and match["more"][1:] not in _NO_NOUNS:
                ends.append(match.end("more"))
        bound = _BOUND.search(text, max(0, start - _LONGEST_BOUND), start)
        for end in ends:
            yield start, end
            if bound:
                yield bound.start(), end


_NUMBER_WORD = _any_of(
    """
    one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
    seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand
    million billion trillion dozen half quarter thirds fifths first second third fourth fifth sixth
    seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth
    eighteenth nineteenth twentieth
    """
)
_NUMBER_WORDS = re.compile(
    rf"(?<![\w-])(?<!\d )({_NUMBER_WORD}\b(?>(?:[ -]{_NUMBER_WORD}\b){{0,7}}))(?! of\b)(?: ([a-z]++))?",
    re.IGNORECASE,
)


def _number_words(text: str) -> Iterator[Span]:
    for match in _NUMBER_WORDS.finditer(text):
        yield match.span(1)
        if match[2] and match[2].lower() not in _NO_NOUNS:
            yield match.span()


# Terms


def _matches(pattern: str) -> Callable[[str], Iterator[Span]]:
    """A function that yields the spans of a kind of candidates: the last group of each match of ``pattern``.

    If the pattern has no group, the span is that of the whole match.
    """
    compiled = re.compile(pattern)
    return lambda text: (match.span(compiled.groups) for match in compiled.finditer(text))


_KINDS = (
    _names,
    _numbers,
    _number_words,
    _matches(_DATE),
    _matches(r"(?<=[\"“])(?=[^\s.,])[^\"“”\n]{2,60}(?<!\s)(?=[\"”])"),
    _matches(r"(?<=\()[^()\n]{2,40}(?=\))"),
    _matches(r"(?<![\w-])[a-z]++(?>(?:-[a-z]++)+)(?![\w-])"),
    _matches(r"\b(?:called|known as|termed|named) (?:the |an? )?([a-z][\w-]*+(?: [a-z][\w-]*+)?)"),
    _matches(r"\b[a-z]{12,}+\b(?<!ly)"),
)
