"""Reads YAML files safely and keeps the line of every key.

Only plain YAML is read (``yaml.SafeLoader``): no tag can create an object. A duplicate key in a mapping is a
fault, whereas PyYAML would silently keep the last one.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from pairsmith.core.errors import UserError, nearby
from pairsmith.core.validation import KeyPath, ValidationFault, dotted, shown_value

MAX_BYTES = 1_000_000
_HALF = re.compile("[\ud800-\udfff]")
"""Half of a character, which only an escape can write, and no file can hold."""


@dataclass(frozen=True, slots=True)
class YamlFile:
    """The content of a YAML file (``data``, a mapping), and the line of each part of it."""

    path: Path
    data: dict[object, object]
    duplicates: tuple[ValidationFault, ...]
    root: yaml.MappingNode

    def line(self, keys: KeyPath) -> int:
        """The line number, from 1, of the key at ``keys``, or of its nearest existing parent."""
        node: yaml.Node = self.root
        line = 1
        for part in keys:
            child = _child(node, part)
            if child is None:
                break
            line, node = child
        return line

    def report(self, faults: Iterable[ValidationFault], place_name: Callable[[KeyPath], str] = dotted) -> str:
        """``faults`` and the duplicate keys as text, one ``file:line: key: what`` a line, in file order.

        ``place_name`` gives the name of a place for the message.
        """
        lines = [
            (self.line(fault.where), place_name(fault.where), fault.text)
            for fault in (*self.duplicates, *faults)
        ]
        return "\n".join(
            f"{self.path}:{line}: {where + ': ' if where else ''}{text}"
            for line, where, text in sorted(dict.fromkeys(lines), key=lambda entry: entry[0])
        )


def read_yaml(path: Path, error: type[UserError]) -> YamlFile:
    """Read the file at ``path``, which must hold one YAML mapping."""
    text = _text(path, error)
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            raise error(f"{path}: the file is empty; expected keys and values")
        if not isinstance(root, yaml.MappingNode):
            kind = "list" if isinstance(root, yaml.SequenceNode) else "single value"
            raise error(f"{path}:1: expected keys and values, not a {kind}")
        inside = _inside_itself(root, set(), set())
        if inside is not None:
            line = inside.start_mark.line + 1
            raise error(f"{path}:{line}: an alias (*) here refers to a value that contains it; write it out")
        for scalar in _scalars(root, set()):
            # JSON writes a character beyond U+FFFF as its two halves, which PyYAML leaves apart.
            halves = scalar.value.encode("utf-16", "surrogatepass")
            scalar.value = halves.decode("utf-16", "surrogatepass")
            if half := _HALF.search(scalar.value):
                line = scalar.start_mark.line + 1
                raise error(
                    f"{path}:{line}: holds half of a character, {half[0]!r}; write the whole character"
                )
        duplicates = tuple(_duplicates(root, (), set()))
        data = loader.construct_document(root)
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        line = mark.line + 1 if mark else 1
        raise error(f"{path}:{line}: not valid YAML: {fault.problem or fault.context}") from None
    except yaml.reader.ReaderError as fault:
        line = text.count("\n", 0, fault.position) + 1
        character = text[fault.position]
        raise error(
            f"{path}:{line}: holds the character {character!r}, which YAML does not allow; remove it"
        ) from None
    except RecursionError:
        raise error(f"{path}: its lists or mappings are nested too deeply") from None
    except ValueError as fault:  # PyYAML passes these on, e.g. for the date 2021-13-41
        raise error(f"{path}: not valid YAML: {fault}; put quotation marks round the value") from None
    unmerged = yaml.compose(text, yaml.SafeLoader)  # for lines: constructing has moved merged keys
    assert isinstance(unmerged, yaml.MappingNode)
    return YamlFile(path, data, duplicates, unmerged)


def _text(path: Path, error: type[UserError]) -> str:
    """The text of the file, which is UTF-8 with or without a byte order mark."""
    try:
        if path.is_dir():
            raise error(f"{path} is a folder; expected a YAML file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise error(f"there is no file {path}{nearby(path)}") from None
    except OSError as fault:
        raise error(f"{path} cannot be read: {fault.strerror}") from None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise error(
            f"{path} is UTF-16 text; re-save it as UTF-8 (e.g. iconv -f utf-16 -t utf-8 {path.name} > new)"
        )
    if len(data) > MAX_BYTES:
        raise error(f"{path} is larger than {MAX_BYTES:,} bytes; expected a YAML file of a page or two")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise error(
            f"{path}:{line}: the file is not UTF-8; re-save it as UTF-8 (e.g. iconv -f latin1 -t utf-8)"
        ) from None


def _child(node: yaml.Node, part: str | int | float) -> tuple[int, yaml.Node] | None:
    """Line and node of the entry ``part`` (a key, or a position in a list) of ``node``."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if _key(key) == part:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item.start_mark.line + 1, item
    return None


def _inside_itself(node: yaml.Node, above: set[int], visited: set[int]) -> yaml.Node | None:
    """A node below ``node`` that contains itself, if any; ``visited`` are nodes checked before."""
    if id(node) in above:
        return node
    if id(node) in visited or isinstance(node, yaml.ScalarNode):
        return None
    parts = (
        node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
    )
    cycle = next(filter(None, (_inside_itself(part, above | {id(node)}, visited) for part in parts)), None)
    visited.add(id(node))
    return cycle


def _scalars(node: yaml.Node, seen: set[int]) -> Iterator[yaml.ScalarNode]:
    """The keys and values at and below ``node`` that are neither lists nor mappings; ``seen`` as below."""
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif id(node) not in seen:
        seen.add(id(node))
        for entry in node.value:
            for part in entry if isinstance(node, yaml.MappingNode) else (entry,):
                yield from _scalars(part, seen)


def _duplicates(node: yaml.Node, keys: KeyPath, seen: set[int]) -> Iterator[ValidationFault]:
    """Duplicate keys in the mappings below ``node``.

    ``seen`` keeps nodes that aliases share from being visited twice, or for ever.
    """
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for position, item in enumerate(node.value):
            yield from _duplicates(item, (*keys, position), seen)
    elif isinstance(node, yaml.MappingNode):
        first: dict[object, int] = {}
        for key, value in node.value:
            name, line = _key(key), key.start_mark.line + 1
            if name in first:
                text = (
                    f"{shown_value(name)} is given twice (lines {first[name]} and {line}); keep one of them"
                )
                yield ValidationFault((*keys, name), text)
            first.setdefault(name, line)
            yield from _duplicates(value, (*keys, name), seen)


def _key(node: yaml.Node) -> str | int | float:
    """The Python value of the key ``node``; its text if it is neither text nor number."""
    if not isinstance(node, yaml.ScalarNode):
        return repr(node.start_mark.index)
    if node.tag == "tag:yaml.org,2002:merge":
        return str(node.value)
    key = yaml.SafeLoader("").construct_object(node)
    return key if isinstance(key, str | int | float) else str(node.value)
