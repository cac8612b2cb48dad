"""What the documents hold: fenced blocks, the commands in them, and what a command would do."""

import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import typer

from pairsmith import cli
from pairsmith.cli import make_app
from pairsmith.infuse.settings import CLOZE
from pairsmith.options import option_kind
from pairsmith.steps import STEPS, Step

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"]
PAGES += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
SHELLS = ("sh", "bash", "shell", "console")

MODELS = {"model", "base", "encoder"}
"""The settings that name a model."""
SOURCES = {
    *("data", "inputs", "outputs", "seeds", "validation", "mined", "pairs", "added"),
    *("judgements", "train", "against", "questions"),
}  # fmt: skip
"""The settings that name files or folders of rows."""
WORDS = {
    *("task", "column", "input_column", "output_column", "group_column", "device", "ray_address", "answers"),
    *("index", "marker", "instruction", "separator", "suites", "item", "annotator", "labels"),
    *("tasks", "benchmark", "repo", "revision"),
}  # fmt: skip
"""The other settings that take any text."""


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
    found = []
    for match in re.finditer(r"^```(\S*)[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        found.append(Block(match[1], match[2], text.count("\n", 0, match.start()) + 1))
    return found


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def commands(block: Block) -> Iterator[Command]:
    """The commands of a shell block; of a ``console`` one the lines behind a ``$``, the others are output."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language == "console":
            if not line.startswith("$ "):
                continue
            line = line[2:]
        words = shlex.split(line, comments=True)
        if ">" in words:
            at = words.index(">")
            yield Command(tuple(words[:at]), words[at + 1])
        elif words:
            yield Command(tuple(words))


def run(command: Command) -> str:
    """Run a ``pairsmith`` command in this process, in the current folder; what it printed."""
    printed = StringIO()
    with redirect_stdout(printed):
        _main(command)
    if command.into:
        Path(command.into).write_text(printed.getvalue())
    return printed.getvalue()


def _main(command: Command, app: Any = make_app) -> None:
    """``pairsmith.cli.main``; AssertionError unless it ends well."""
    assert command.words[0] == "pairsmith"
    said = StringIO()
    code: object = 0
    with patch.object(cli, "make_app", app), patch("sys.stderr", said):
        try:
            cli.main(command.words[1:])
        except SystemExit as end:
            code = end.code
    assert not code, f"{shlex.join(command.words)} ends with {code}: {said.getvalue()}"


@dataclass(frozen=True)
class Parsed:
    """What a command would do: a step with its settings, or one of the others with nothing more to say."""

    step: str = ""
    settings: Any = None


def parsed(command: Command) -> Parsed:
    """What the command would do, all but the doing: options, values, settings, checks, recipes.

    Raises:
        AssertionError: it cannot be given so.
    """
    seen: list[Parsed] = []

    def recorder(name: str, step: Step[Any]) -> Step[Any]:
        def record(settings: Any, run: Any) -> None:
            for key, check in step.checks.items():
                if isinstance(value := getattr(settings, key), str):
                    check(value)
            seen.append(Parsed(name, settings))

        return replace(step, run=record)

    steps = {name: recorder(name, step) for name, step in STEPS.items()}
    with (
        patch("pairsmith.running.run_recipe", lambda *given, **options: {}),
        patch("pairsmith.running.results_table", lambda *given: ""),
        patch("pairsmith.planning.plan_recipe", lambda *given: {}),
        patch("pairsmith.planning.plan_table", lambda *given: ""),
        patch("pairsmith.runs.status.status_lines", lambda *given: []),
        patch("pairsmith.compare.route.compare", lambda *given, **options: ([], {})),
        redirect_stdout(StringIO()),
    ):
        _main(command, lambda: make_app(steps))
    return seen[0] if seen else Parsed()


def why_not_run(command: Command, found: Parsed) -> str:
    """Why a command is checked only and not run; empty where nothing speaks against it."""
    words = command.words[1:]
    if any("://" in word for word in words):
        return "names a URL"
    if any(re.fullmatch(r"[A-Z][A-Z:]+", word) for word in words):
        return "holds a placeholder"
    if words[0] in ("run", "plan", "compare"):
        return "is a whole recipe"
    if found.step == "audit" and not found.settings.finish:
        return "waits for a person"
    if found.step == "push" and not found.settings.dry_run:
        return "sends something"
    if found.step == "evaluate-mteb" and not found.settings.data:
        return "names data that have to be fetched"
    if words[0] == "status" and not Path(words[1]).exists():
        return "reads what is not there"
    for key in type(found.settings).model_fields if found.settings else ():
        value = getattr(found.settings, key)
        values = [value] if isinstance(value, str) else value if isinstance(value, list | tuple) else []
        if key in MODELS and not all(map(_is_here, values)):
            return "names a model that has to be fetched"
        if key in SOURCES and not all(Path(each).exists() for each in values):
            return "reads what is not there"
    return ""


def _is_here(model: str) -> bool:
    bundled = ("pairsmith:", "embedded:", "lead:")
    return model == CLOZE or model.startswith(bundled) or Path(model).is_dir()


def free_text_settings() -> set[str]:
    """The settings of all steps that take any text."""
    return {
        key
        for step in STEPS.values()
        for key, field in step.settings.model_fields.items()
        if option_kind(field.annotation)[1] == "text"
    }


def unknown_in(words: list[str]) -> str:
    """What of a command that is only mentioned, ``pairsmith generate --decay 0``, does not exist; else empty."""
    command: Any = typer.main.get_command(make_app())
    rest = list(words)
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        if rest[0] not in command.commands:
            return rest[0]
        command = command.commands[rest.pop(0)]
    known = {"--help", *(name for each in command.params for name in (*each.opts, *each.secondary_opts))}
    return next((word for word in rest if word.startswith("-") and word not in known), "")
