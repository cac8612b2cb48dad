"""Reading sentences whose named entities people have tagged in the BIO scheme (Q10)."""

import json
import re
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pairsmith.core.errors import InputError
from pairsmith.core.paths import Place, data_suffix, display_name, is_folder, place, reaching, size_of
from pairsmith.data.lines import read_lines
from pairsmith.data.readers import at_least_one, pick_columns, refuse_half_characters, type_in_words
from pairsmith.data.sources import is_hub_data, load_hub_data, missing_source, open_parquet, open_source
from pairsmith.data.splits import folder_files, split_files, split_of

BIO_TAG = re.compile(r"O|[BI]-.+")
_BIO_PREFIXES = {"S": "B", "U": "B", "E": "I", "L": "I"}
"""What BIO writes for the prefixes of BIOES and BILOU that it does not have: single words and last words."""
_PREFIXES = {"B", "I", *_BIO_PREFIXES}
_PREFIXED = re.compile(r"\w-")
OUTSIDE = "O"
"""The tag of a word that is in no entity."""
_BIOES = re.compile(rf"^([{''.join(_BIO_PREFIXES)}])(-.+)")
_BLANKS = re.compile(r"[ \t]+")
_WORDS = ("tokens", "words")
_TAGS = ("ner_tags", "tags", "ner")
_ROWS = (".jsonl", ".json", ".parquet")


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """A sentence as words, and the BIO tag of each word."""

    words: tuple[str, ...]
    tags: tuple[str, ...]  # B- or I- and a type of entity, where B- begins an entity; or O outside entities


def read_tagged(source: str | Place) -> list[TaggedSentence]:
    """Read tagged sentences. Tags in the schemes IOB1, BIOES, BILOU and IO are converted to BIO.

    In IO, tags are O and types without a prefix, such as PERSON; neighbouring words of one type are one
    entity. A source is in IO if it has the tag O, and no tag with a prefix.

    ``source`` has one of these forms:

    - a file ``NAME.words`` with one sentence per line, beside a file ``NAME.ner`` with its tags;
    - a file in CoNLL's format: one word and its tag per line, possibly with columns between them, and blank
      lines between sentences;
    - rows with a sentence each, as lists in the columns tokens and ner_tags (also words and tags): JSON
      Lines, Parquet, a dataset folder, or a Hub data set ``org/name`` or ``org/name:split``. The tags of the
      last three may be class numbers, if the names of the classes are stored with them, as ``datasets`` does.
    """
    path = place(split_of(source)[0] if isinstance(source, str) else source)
    with reaching(path, InputError):
        is_file, folder = size_of(path) is not None, is_folder(path)
    hub = not is_file and not folder and is_hub_data(str(source))
    if hub or folder or data_suffix(path) in _ROWS:
        lines = _rows(source, hub)
    elif not is_file:
        raise missing_source(path)
    else:
        lines = _beside(path) if has_tags_beside(path) else _columns(path)
    tagged = list(at_least_one(lines, f"{path} holds no tagged sentences"))
    if _is_io({tag for _, _, tags in tagged for tag in tags}):
        tagged = [
            (where, words, [tag if tag == OUTSIDE else f"I-{tag}" for tag in tags])
            for where, words, tags in tagged
        ]
    return [checked_sentence(where, words, tags) for where, words, tags in tagged]


def _is_io(tags: Set[str]) -> bool:
    """Whether tags are O and types without a prefix; numbers and B or I alone are no types."""
    types = tags - {OUTSIDE}
    return (
        OUTSIDE in tags
        and types.isdisjoint(_PREFIXES)
        and all(any(map(str.isalpha, name)) and not _PREFIXED.match(name) for name in types)
    )


_ADVICE = "; types without B- and I- are read only if the data has the tag O and no tag with a prefix"
_Lines = Iterator[tuple[str, Sequence[str], Sequence[str]]]


def has_tags_beside(path: Place) -> bool:
    """Whether a file ``NAME.words`` has only the words of sentences, whose tags are in another file."""
    return display_name(path).endswith(".words")


def tags_beside(words: Place) -> Place:
    """The file with the tags for the words in ``NAME.words``."""
    name = words.name if isinstance(words, Path) else display_name(words)
    return words.parent / f"{name.removesuffix('.words')}.ner"


def _beside(path: Place) -> _Lines:
    name, other = display_name(path), tags_beside(path)
    if size_of(other) is None:
        raise InputError(
            f"{path} has only words; put their tags into {other}, or give a file in CoNLL's format"
        )
    words, tags = ([_fields(line) for _, line in read_lines(file)] for file in (path, other))
    if len(words) != len(tags):
        raise InputError(
            f"{path} has {len(words)} lines, and {display_name(other)} has {len(tags)}; each line of words "
            "needs a line of tags"
        )
    for number, (sentence, sentence_tags) in enumerate(zip(words, tags, strict=True), start=1):
        if sentence or sentence_tags:
            yield f"{name}:{number}", sentence, sentence_tags


def _rows(source: str | Place, hub: bool) -> _Lines:
    names: list[str] = []
    class_names: Sequence[str] | None = None
    for where, row in open_source(source).rows():
        if not names:
            names = pick_columns(row, (_WORDS, _TAGS), where)
            class_names = (_hub_class_names if hub else _parquet_class_names)(str(source), names[1])
        words, tags = (row.get(name) for name in names)
        if not isinstance(words, list) or not isinstance(tags, list):
            raise InputError(
                f"{where}: {names[0]} and {names[1]} have to be lists, of words and of their tags"
            )
        if words or tags:
            tag_names = [_tag_name(tag, class_names or ()) for tag in tags]
            yield where, _as_texts(words, names[0], where), _as_texts(tag_names, names[1], where)


def _tag_name(tag: Any, class_names: Sequence[str]) -> Any:
    """The name of the class with this number; other tags are unchanged."""
    return class_names[tag] if isinstance(tag, int) and 0 <= tag < len(class_names) else tag


def _as_texts(items: Sequence[Any], name: str, where: str) -> list[str]:
    """Words or tags, which may be numbers, as texts; an ``InputError`` if one is anything else."""
    for item in items:
        if not isinstance(item, str | int | float):
            raise InputError(f"{where}: {name} holds {type_in_words(item)} in place of a text")
        refuse_half_characters(str(item), name, where)
    return [str(item) for item in items]


def _parquet_class_names(source: str, column: str) -> Sequence[str] | None:
    """The names of the classes in a column of Parquet files that ``datasets`` wrote; None without names."""
    if split_of(source)[1]:
        files = split_files(source)
    elif is_folder(place(source)):
        files = folder_files(place(source))
    else:
        files = [place(source)] if data_suffix(place(source)) == ".parquet" else []
    if not files:
        return None
    with open_parquet(files[0]) as file:
        stored = (file.schema_arrow.metadata or {}).get(b"huggingface", b"{}")
    with suppress(ValueError, KeyError, TypeError):
        names: Sequence[str] = json.loads(stored)["info"]["features"][column]["feature"]["names"]
        return names
    return None


def _hub_class_names(source: str, column: str) -> Sequence[str] | None:
    """The names of the classes in a column of a Hub data set, by class number; None if it has no classes."""
    features = None
    with suppress(Exception):  # a data set that cannot be streamed is downloaded, as in ``sources``
        features = load_hub_data(source, streaming=True).features
    features = features or load_hub_data(source, streaming=False).features
    names: Sequence[str] | None = getattr(getattr(features[column], "feature", None), "names", None)
    return names


def _columns(path: Place) -> _Lines:
    name = display_name(path)
    words: list[str] = []
    tags: list[str] = []
    first = 0
    for number, line in chain(read_lines(path), [(0, "")]):
        fields = _fields(line)
        if fields and fields[0] != "-DOCSTART-":
            if len(fields) < 2:
                raise InputError(
                    f"{name}:{number}: a word and its tag are expected, found {line[:40]!r}; give a file in "
                    "CoNLL's format, or JSON Lines or Parquet with the lists tokens and ner_tags"
                )
            first = first or number
            words.append(fields[0])
            tags.append(fields[-1].strip())  # no tag ends with a no-break space, though a word may be one
        elif words:
            yield f"{name}:{first}", words, tags
            words, tags, first = [], [], 0


def _fields(line: str) -> list[str]:
    """The fields of a line, between spaces and tabs; a no-break space may be a word, or part of one."""
    return [field for field in _BLANKS.split(line) if field] if line.strip() else []


def checked_sentence(where: str, words: Sequence[str], tags: Sequence[str]) -> TaggedSentence:
    """A sentence with its tags in BIO; an ``InputError`` if a word has no tag, or one of no scheme."""
    if len(words) != len(tags):
        raise InputError(f"{where}: {len(words)} words and {len(tags)} tags; each word needs one tag")
    tags = [_BIOES.sub(lambda match: _BIO_PREFIXES[match[1]] + match[2], tag) for tag in tags]
    for tag in tags:
        if not BIO_TAG.fullmatch(tag):
            advice = "; write the names of tags in place of their numbers" if tag.isdecimal() else _ADVICE
            raise InputError(
                f"{where}: the tag {tag[:30]!r} is not a BIO tag such as O, B-PERSON or I-PERSON{advice}"
            )
    return TaggedSentence(tuple(words), tuple(as_bio(tags)))


def as_bio(tags: Sequence[str]) -> list[str]:
    """Convert IOB1 tags to BIO tags, in which B- begins every entity; BIO tags are unchanged.

    In IOB1, B- begins only an entity that directly follows another entity of the same type.
    """
    bio_tags = []
    before = "O"
    for tag in tags:
        starts = tag.startswith("I-") and before[2:] != tag[2:]
        bio_tags.append(f"B-{tag[2:]}" if starts else tag)
        before = tag
    return bio_tags
