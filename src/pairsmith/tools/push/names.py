"""Replace paths by names, so that uploads say what a file is called, but not where it lies on a machine."""

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pairsmith.core.errors import redacted
from pairsmith.runs import model_display_name

_PLACE = re.compile(r"(?:/|~/|[A-Za-z]:[\\/]|(?!https?:|hf:)[a-z][a-z0-9+.-]*://)[^\n]+")
_WEB = re.compile(r"(https?://[^\s`'\"|()<>\[\]\\#,;]*)")
_REST = r"(?:/[^\s`'\"|()<>\[\]\\]*)?"


class PathReplacer:
    """Replaces paths on this machine, and URLs in a store, by the names of the files or folders there.

    Two sorts of paths are replaced: the strings in ``record`` that are nothing but a path or a store's URL,
    and all paths below the home folder, the working folder, the temporary folder and the parent of
    ``folder``. Web addresses stay, as anybody can open them; only passwords in them are removed.
    """

    def __init__(self, folder: Path, record: Any) -> None:
        self._known = {text: model_display_name(text) for text in _texts(record) if _is_place(text)}
        roots = {Path.home(), Path.cwd(), Path(tempfile.gettempdir()), folder.parent}
        roots |= {root.resolve() for root in roots}
        long = sorted((str(root) for root in roots if len(root.parts) > 1), key=len, reverse=True)
        self._below = re.compile("(?:" + "|".join(map(re.escape, long)) + r")(?![\w.-])" + _REST)

    def text(self, text: str) -> str:
        """``text`` with paths replaced by names, and without passwords and tokens."""
        parts = _WEB.split(text)
        parts[::2] = map(self._named, parts[::2])  # the parts between web addresses
        return redacted("".join(parts))

    def _named(self, text: str) -> str:
        for path in sorted(self._known, key=len, reverse=True):
            for spelled in (path, re.sub(r"([\\|`*\[\]<])", r"\\\1", path)):
                text = text.replace(spelled, self._known[path])
        return self._below.sub(lambda match: model_display_name(match[0]), text)

    def values(self, value: Any) -> Any:
        """A JSON value with the paths in all its strings and keys replaced."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self.values(inner) for key, inner in value.items()}
        return [self.values(inner) for inner in value] if isinstance(value, list) else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _is_place(text: str) -> bool:
    """Whether ``text`` is a path or a store's URL, and not prose that begins like one."""
    return len(text) < 1000 and len(re.findall(r"[/\\]", text)) > 1 and _PLACE.fullmatch(text) is not None
