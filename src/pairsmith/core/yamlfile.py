"""Reads YAML files safely, and records the line of every key for messages.

Only plain YAML is read (``yaml.SafeLoader``), so that no tag can create an object. A duplicate key in a
mapping is a fault; PyYAML would use the last value without a warning.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from pairsmith.core.errors import UserError, missing_file_hint
from pairsmith.core.validation import KeyPath, ValidationFault, dotted, shown_value

MAX_BYTES = 1_000_000
_HALF = re.compile("[\ud800-\udfff]")
"""An unpaired surrogate: only an escape sequence can write it, and it cannot be encoded in a file."""

_ADVICE = {
    "mapping values are not allowed": "; a value with a colon needs quotation marks, or a block after |-",
    "'\\t'": "; indent with spaces, not tabs",
}
"""Advice on PyYAML's most frequent errors, by a part of the error's message."""


@dataclass(frozen=True, slots=True)
class YamlFile:
    """The content of a YAML file, which is a mapping, and the lines of its parts."""

    path: Path
    data: dict[object, object]
    duplicates: tuple[ValidationFault, ...]  # a fault for each duplicate key
    root: yaml.MappingNode  # the parsed nodes of the file, which have the lines

    def line(self, keys: KeyPath) -> int:
        """The line number, from 1, of the key at ``keys`` or, if it does not exist, of its nearest parent."""
        node: yaml.Node = self.root
        line = 1
        for part in keys:
            child = _child(node, part)
            if child is None:
                break
            line, node = child
        return line

    def report(self, faults: Iterable[ValidationFault], place_name: Callable[[KeyPath], str] = dotted) -> str:
        """A message with ``faults`` and the duplicate keys, in the order of the file.

        Each line has the form ``file:line: key: description``. ``place_name`` returns the name of a location.
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
    """Read the file at ``path``, which has to contain one YAML mapping; ``error`` is raised for any fault."""
    text = _text(path, error)
    with _yaml_faults(path, text, error):
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            raise error(f"{path}: the file is empty; expected keys and values")
        if not isinstance(root, yaml.MappingNode):
            kind = "list" if isinstance(root, yaml.SequenceNode) else "single value"
            raise error(f"{path}:1: expected keys and values, not a {kind}")
        if fault := _fault_of_nodes(root):
            node, why = fault
            raise error(f"{path}:{node.start_mark.line + 1}: {why}")
        duplicates = tuple(_duplicates(root, (), set()))
        data = loader.construct_document(root)
    # Constructing the data has moved merged keys, so the nodes with the lines are parsed again.
    unmerged = yaml.compose(text, yaml.SafeLoader)
    assert isinstance(unmerged, yaml.MappingNode)
    return YamlFile(path, data, duplicates, unmerged)


@contextmanager
def _yaml_faults(path: Path, text: str, error: type[UserError]) -> Iterator[None]:
    """Raise ``error`` in place of PyYAML's errors, with advice and the line in ``text``, the file's text."""
    try:
        yield
    except yaml.MarkedYAMLError as fault:
        mark = fault.problem_mark or fault.context_mark
        line = mark.line + 1 if mark else 1
        problem = fault.problem or fault.context or ""
        advice = next((text for part, text in _ADVICE.items() if part in problem), "")
        raise error(f"{path}:{line}: not valid YAML: {problem}{advice}") from None
    except yaml.reader.ReaderError as fault:
        line = text.count("\n", 0, fault.position) + 1
        character = text[fault.position]
        raise error(
            f"{path}:{line}: holds the character {character!r}, which YAML does not allow; remove it"
        ) from None
    except RecursionError:
        raise error(f"{path}: its lists or mappings are nested too deeply; nest them less") from None
    except ValueError as fault:  # PyYAML lets some errors pass, e.g. for the date 2021-13-41
        raise error(f"{path}: not valid YAML: {fault}; put quotation marks round the value") from None


def _text(path: Path, error: type[UserError]) -> str:
    """The text of the file, in UTF-8 with or without a byte order mark; ``error`` is raised for any fault."""
    try:
        if path.is_dir():
            raise error(f"{path} is a folder; expected a YAML file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise error(f"there is no file {path}{missing_file_hint(path)}") from None
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
    """The line and the node of the entry ``part``, a key or an index, of ``node``, or None."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if _key(key) == part:
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        item = node.value[part]
        return item.start_mark.line + 1, item
    return None


def _fault_of_nodes(root: yaml.Node) -> tuple[yaml.Node, str] | None:
    """The first node that contains itself or half of a character, and its fault; None if there is none.

    JSON writes a character beyond U+FFFF as a surrogate pair. PyYAML does not combine such pairs; this
    function does.
    """
    nodes: dict[int, yaml.Node] = {}
    if cyclic := _collect(root, (), nodes):
        return cyclic, "an alias (*) here refers to a value that contains it; write it out"
    for node in nodes.values():
        if isinstance(node, yaml.ScalarNode):
            node.value = node.value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            if half := _HALF.search(node.value):
                return node, f"holds half of a character, {half[0]!r}; write the whole character"
    return None


def _collect(node: yaml.Node, above: tuple[int, ...], nodes: dict[int, yaml.Node]) -> yaml.Node | None:
    """Add the nodes at and below ``node`` to ``nodes``, by their ids; returns a node that contains itself.

    ``above`` has the ids of the nodes that contain ``node``. A node with several aliases is visited once.
    """
    if id(node) in above:
        return node
    if id(node) in nodes:
        return None
    nodes[id(node)] = node
    entries = node.value if isinstance(node, yaml.CollectionNode) else ()
    parts = (part for entry in entries for part in (entry if isinstance(entry, tuple) else (entry,)))
    return next(filter(None, (_collect(part, (*above, id(node)), nodes) for part in parts)), None)


def _duplicates(node: yaml.Node, keys: KeyPath, seen: set[int]) -> Iterator[ValidationFault]:
    """A fault for each duplicate key in the mappings at and below ``node``, which is at ``keys``.

    ``seen`` has the ids of the nodes already visited.
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
