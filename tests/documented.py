"""What the documents hold: fenced blocks, the commands in them and in sentences, and how one is run."""

import os
import re
import shlex
import signal
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from pairsmith.cli.app import main, make_app

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"]
PAGES += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
SHELLS = ("sh", "bash", "shell", "console")


@dataclass(frozen=True)
class Block:
    """A fenced block: what language it says it is in, its text, and the line where it begins."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """A command as its words, and the file that its output goes to, if it says so."""

    words: tuple[str, ...]
    into: str | None = None


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    fences = []
    for match in re.finditer(r"^```(\S*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        fences.append(Block(match[1], match[2], text.count("\n", 0, match.start()) + 1))
    return fences


def prose(text: str) -> str:
    """A page without its fenced blocks; its lines keep their numbers."""
    return re.sub(
        r"^```.*?^```$", lambda match: "\n" * match[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL
    )


def in_sentences(text: str) -> list[Block]:
    """The ``pairsmith`` commands in a page's sentences, each as a block."""
    rest = prose(text)
    return [
        Block("sh", " ".join(match[1].split()), rest.count("\n", 0, match.start()) + 1)
        for match in re.finditer(r"`(pairsmith\s[^`]+)`", rest)
    ]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a shell block; of a ``console`` one the lines behind a ``$``, the others are output."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language == "console":
            if not line.startswith("$ "):
                continue
            line = line[2:]
        words = [os.path.expandvars(word) for word in shlex.split(line, comments=True)]
        if ">" in words:
            at = words.index(">")
            yield Command(tuple(words[:at]), words[at + 1])
        elif words:
            yield Command(tuple(words))


def run(command: Command) -> None:
    """Run a ``pairsmith`` command in this process, in the current folder.

    Raises:
        AssertionError: it does not end well.
    """
    assert command.words[0] == "pairsmith"
    printed, said = StringIO(), StringIO()
    code: object = 0
    stopping = signal.getsignal(signal.SIGTERM)  # the command takes it over
    with redirect_stdout(printed), patch("sys.stderr", said):
        try:
            main(command.words[1:])
        except SystemExit as end:
            code = end.code
        finally:
            signal.signal(signal.SIGTERM, stopping)
    assert not code, f"{shlex.join(command.words)} ends with {code}: {said.getvalue()}"
    if command.into:
        Path(command.into).write_text(printed.getvalue())


@cache
def _whole() -> Any:
    return typer.main.get_command(make_app())


def name_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that ``evaluate sts --model m`` gives, and the words behind its name."""
    command: Any = _whole()
    rest = list(words)
    while rest and rest[0] in getattr(command, "commands", ()):
        command = command.commands[rest.pop(0)]
    return command, rest


def is_whole(text: str) -> bool:
    """Whether a command in a sentence can be given as it stands.

    It is more than a name (``pairsmith mine``), and no word in capitals stands for another (``pairsmith status DIR``).
    """
    _, rest = name_of(text.split()[1:])
    return bool(rest) and not re.search(r"\b[A-Z]+\b", text)


def unknown_in(words: list[str]) -> str:
    """What of a command that is only mentioned, ``pairsmith generate --decay 0``, does not exist; else empty."""
    command, rest = name_of(words)
    if rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        return rest[0]
    known = {"--help", *(name for param in command.params for name in (*param.opts, *param.secondary_opts))}
    return next((word for word in rest if word.startswith("-") and word not in known), "")
