"""Reading test sets of sentence similarity: STS benchmark, SemEval STS 2012-2016 and SICK (D11).

Supported layouts, each also with ``.gz``:

- STS benchmark: ``sts-test.csv`` as it was released: tab-separated, no header, the score in the fifth
  column, the sentences in the sixth and seventh, quotation marks unescaped.
- SICK: ``SICK_test_annotated.txt`` (the SemEval 2014 release), or ``SICK.txt``, of which only the rows with
  ``SemEval_set`` TEST are read.
- SemEval: one folder per year (``2012``, ``sts12``, ``STS12-en-test``, ``sts2016-english-with-gs-v1.0``, …)
  with ``SUBSET.test.tsv`` (score, sentence, sentence), or with the released ``STS.input.SUBSET.txt`` and
  ``STS.gs.SUBSET.txt`` side by side. A blank line among the scores stands for a pair without gold score.

Quotation marks are ordinary characters in all layouts. Only the test parts are read, and pairs without gold
score are skipped.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pairsmith.core.errors import InputError, known_names_hint
from pairsmith.core.paths import (
    Place,
    data_suffix,
    inside,
    is_folder,
    place,
    printable_name,
    reaching,
    size_of,
)
from pairsmith.data.lines import read_lines
from pairsmith.data.readers import parse_score, read_pairs
from pairsmith.data.schemas import GradedPair
from pairsmith.data.sources import TABLES, missing_source, plain_or_gzip

STS_SUITES = ("stsb", "sts12", "sts13", "sts14", "sts15", "sts16", "sick")

# STS 2013 had a fourth subset, SMT, whose texts are not public; published figures leave it out, so
# it is left out here even where a folder has it.
SUBSETS: Mapping[str, tuple[str, ...]] = {
    "sts12": ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    "sts13": ("FNWN", "headlines", "OnWN"),
    "sts14": ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    "sts15": ("answers-forums", "answers-students", "belief", "headlines", "images"),
    "sts16": ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
_STSB_TEST = "sts-test.csv"
_SICK_TEST = ("SICK_test_annotated.txt", "SICK.txt")
_YEAR = re.compile(r"(?<!\d)(?:20)?(1[2-6])(?!\d)")
_STSB_FILE = re.compile(r"sts-(train|dev|test)\.(csv|tsv)(\.gz)?")
_SICK_FILE = re.compile(r"SICK(_\w+)?\.txt(\.gz)?")


@dataclass(frozen=True)
class StsSuite:
    """A test set: its name, and the pairs of each of its subsets, with scores on the source's own scale."""

    name: str
    subsets: Mapping[str, tuple[GradedPair, ...]]

    @property
    def pairs(self) -> tuple[GradedPair, ...]:
        """All pairs, subset after subset."""
        return tuple(pair for pairs in self.subsets.values() for pair in pairs)


def read_sts(data: str | Place, names: Sequence[str] | None = None) -> list[StsSuite]:
    """Read test sets of sentence similarity, in the order of ``STS_SUITES`` or of ``names``.

    Args:
        data: a folder of one test set; a folder that contains such folders (also one level deeper, as
            ``sts12-16/2012``); or a file of graded pairs with the header sentence1, sentence2, score.
        names: the test sets of ``STS_SUITES`` to read; by default all that exist. The test set in a single
            file is named by the file's stem.
    """
    data = place(data)
    with reaching(data, InputError):
        folder = is_folder(data)
        if not folder and size_of(data) is None:
            raise missing_source(data)
    suites = _suites_below(data) if folder else _single(data)
    if not suites:
        raise InputError(
            f"{data} holds none of {', '.join(STS_SUITES)}; expected folders such as stsb/ with "
            f"{_STSB_TEST}, sick/ with {_SICK_TEST[0]}, sts12-16/2012/ with MSRpar.test.tsv …, "
            "or a file with the columns sentence1, sentence2, score"
        )
    for name in names or ():
        if name not in suites:
            is_suite = name in STS_SUITES
            raise InputError(
                f"{data} has no {name!r}; it has: {', '.join(suites)}"
                if is_suite
                else f"no test set is called {name!r}; {known_names_hint(name, {*STS_SUITES, *suites})}"
            )
    return [StsSuite(name, suites[name]()) for name in dict.fromkeys(names or suites)]


def is_released(data: Place) -> bool:
    """Whether ``data`` has a layout of the released test sets, rather than rows with named columns."""
    with reaching(data, InputError):
        if is_folder(data):
            return bool(_suites_below(data))
        return bool(_STSB_FILE.fullmatch(data.name) or _SICK_FILE.fullmatch(data.name))


_Subsets = Mapping[str, tuple[GradedPair, ...]]


def _single(file: Place) -> dict[str, Callable[[], _Subsets]]:
    """The test set in ``file``: a mapping from the file's stem to a function that reads the subsets."""
    name = printable_name(file.name)
    stem = name.lstrip(".").partition(".")[0] or name
    if _STSB_FILE.fullmatch(file.name):
        return {stem: lambda: {stem: tuple(_stsb(file))}}
    if _SICK_FILE.fullmatch(file.name):
        return {stem: lambda: {stem: tuple(_sick(file))}}
    if data_suffix(file) not in TABLES:
        raise InputError(f"{file} is not a file of graded pairs; expected one of {', '.join(TABLES)}")
    return {stem: lambda: {stem: tuple(read_pairs(file))}}


def _suites_below(data: Place) -> dict[str, Callable[[], _Subsets]]:
    """The test sets in ``data``, its folders and their folders: functions that read them, by name.

    Of several folders with the same test set, the first is used.
    """
    suites: dict[str, Callable[[], _Subsets]] = {}
    folders = [data, *_folders(data), *(inner for folder in _folders(data) for inner in _folders(folder))]
    for folder in folders:
        for name, load in _in_folder(folder):
            suites.setdefault(name, load)
    return {name: suites[name] for name in STS_SUITES if name in suites}


def _folders(folder: Place) -> list[Place]:
    with reaching(folder, InputError):
        return sorted((entry for entry in inside(folder) if is_folder(entry)), key=lambda entry: entry.name)


def _in_folder(folder: Place) -> Iterator[tuple[str, Callable[[], _Subsets]]]:
    """The test sets whose files are directly in ``folder``: names, and functions that read them."""
    if stsb := plain_or_gzip(folder, _STSB_TEST):
        yield "stsb", lambda: {"stsb": tuple(_stsb(stsb))}
    if sick := [file for name in _SICK_TEST if (file := plain_or_gzip(folder, name))]:
        yield "sick", lambda: {"sick": tuple(_sick(sick[0]))}
    year = _YEAR.search(folder.resolve().name)
    if year is None:
        return
    name = f"sts{year[1]}"
    loads = {subset: _subset(folder, subset) for subset in SUBSETS[name]}
    if any(loads.values()):
        yield name, lambda: _semeval(folder, name, loads)


def _subset(folder: Place, subset: str) -> Callable[[], tuple[GradedPair, ...]] | None:
    """A function that reads ``subset`` from ``folder``; None if it does not exist."""
    if table := plain_or_gzip(folder, f"{subset}.test.tsv"):
        return lambda: tuple(
            pair
            for where, fields in _fields(table, 3, "; expected score, text, text")
            for pair in _pair(fields[0], fields[1], fields[2], where)
        )
    inputs = plain_or_gzip(folder, f"STS.input.{subset}.txt")
    gold = plain_or_gzip(folder, f"STS.gs.{subset}.txt")
    if inputs and gold:
        return lambda: tuple(_released(inputs, gold))
    return None


def _semeval(
    folder: Place, name: str, loads: Mapping[str, Callable[[], tuple[GradedPair, ...]] | None]
) -> _Subsets:
    lacking = [subset for subset, load in loads.items() if load is None]
    if lacking:
        first = lacking[0]
        raise InputError(
            f"{folder} lacks {', '.join(lacking)} of {name}; without them the score cannot be compared. "
            f"Expected {first}.test.tsv, or STS.input.{first}.txt with STS.gs.{first}.txt"
        )
    return {subset: load() for subset, load in loads.items() if load}


def _fields(file: Place, least: int = 0, expected: str = "") -> Iterator[tuple[str, list[str]]]:
    """The location and the fields, separated by tabs, of each line that is not blank."""
    for number, line in read_lines(file):
        if line.strip():
            fields, where = line.split("\t"), f"{file.name}:{number}"
            _check_count(fields, least, where, expected)
            yield where, fields


def _check_count(fields: Sequence[str], least: int, where: str, expected: str) -> None:
    if len(fields) < least:
        raise InputError(f"{where}: {len(fields)} columns separated by tabs{expected}")


def _stsb(file: Place) -> Iterator[GradedPair]:
    """The pairs of an STS benchmark file; some of its lines have two more columns, which name the source."""
    for where, fields in _fields(file, 7, ", an STS benchmark line has at least 7"):
        yield from _pair(fields[4], fields[5], fields[6], where)


def _released(inputs: Place, gold: Place) -> Iterator[GradedPair]:
    """The pairs of a SemEval release, in which line n of ``gold`` is the score of line n of ``inputs``."""
    pairs = [line for _, line in read_lines(inputs)]
    scores = [line for _, line in read_lines(gold)]
    while len(scores) > len(pairs) and not scores[-1].strip():
        scores.pop()
    if len(scores) != len(pairs):
        raise InputError(
            f"{gold} has {len(scores)} lines, {inputs.name} has {len(pairs)}; they do not belong together"
        )
    for number, (line, score) in enumerate(zip(pairs, scores, strict=True), start=1):
        if not score.strip():
            continue
        fields, where = line.split("\t"), f"{inputs.name}:{number}"
        if len(fields) < 2:
            raise InputError(f"{where}: no tab between two texts, though {gold.name}:{number} has a score")
        yield from _pair(score, fields[0], fields[1], where)


def _sick(file: Place) -> Iterator[GradedPair]:
    header: list[str] = []
    for where, fields in _fields(file):
        if not header:
            header = fields
            if lacking := {"sentence_A", "sentence_B", "relatedness_score"} - set(header):
                raise InputError(f"{where}: not a SICK header, as it lacks {', '.join(sorted(lacking))}")
            continue
        _check_count(fields, len(header), where, f", the header has {len(header)}")
        row = dict(zip(header, fields, strict=False))
        if row.get("SemEval_set", "TEST").strip() == "TEST":
            yield from _pair(row["relatedness_score"], row["sentence_A"], row["sentence_B"], where)


def _pair(score: str, first: str, second: str, where: str) -> Iterator[GradedPair]:
    """Yield the pair, or nothing if it has no gold score."""
    if not score.strip():
        return
    number = parse_score(score, where)
    first, second = first.strip(), second.strip()
    if not first or not second:
        raise InputError(f"{where}: a text is blank; a graded pair needs two")
    yield GradedPair(first, second, number)
