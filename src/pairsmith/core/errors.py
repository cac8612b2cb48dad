"""The errors of pairsmith, as a tree.

    PairsmithError
    ├── UserError          a mistake in what the user gave; exit code 2
    │   ├── InputError     a file, or its content
    │   ├── TaskError      a task description
    │   ├── SettingsError  an option, or a recipe
    │   ├── ModelError     a model folder or id
    │   ├── FolderError    an output folder with other content (OtherWorkError: work of the same
    │   │                  step; BusyError: another process writes to it; DamagedError: a file
    │   │                  that pairsmith wrote was changed)
    │   └── MissingExtra   an optional dependency that is not installed
    ├── StorageError       the disk is full, read-only or not available; exit code 2
    ├── RemoteError        a model's server failed; exit code 1
    └── WorkerError        a worker process failed; exit code 1

A message says what was given, what was expected and what to do, in one or two lines.
Any other error that reaches the user as a traceback is a bug in pairsmith.
"""

import errno
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from glob import glob
from pathlib import Path
from typing import Any

# Keys are matched by prefix, characters and length: by the prefix alone, a name such as hf_sentences_mix
# would match. No ordinary name has as many consecutive letters and digits as are required here. Repetitions
# are bounded, so that the time is linear in the length of the text.
_SECRETS = re.compile(
    r"""(?x)
    # user:password in a URL, but not HOST:PORT/, whatever follows it
    (?<=://)(?!(?:\[[^\]\s]*\]|[^\s/"'@:]*):\d{1,5}/)(?:[^\s/"'@]{0,999}:[^\s"']{0,999}|[^\s/"'@]{1,999})(?=@)
    # parameters with the name of a secret, in the query of a URL or after its #
    | (?:(?<=[?&\#])|(?<=&amp;))
      ((?i:[\w-]*(?:token|key|secret|sig|signature|passw(?:or)?d|pwd|credential|auth))=)[^&\s"']+
    | (?:hf|api_org)_[A-Za-z0-9]{30,}                              # Hugging Face
    | (?<![\w-])sk-(?:[\w-]{0,30}[_-])?[A-Za-z0-9]{32,}[\w-]*      # OpenAI, and servers like it
    | (?<![\w-])sk-(?:ant|proj|svcacct|admin)-                     # Anthropic, and newer ones of OpenAI
      (?=[\w-]*(?:[A-Z]|[A-Za-z0-9]{20}))[\w-]{40,}
    | gh[oprsu]_[A-Za-z0-9]{36,} | github_pat_\w{50,}              # GitHub
    | glpat-[\w-]{20,}                                             # GitLab
    | (?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])     # Amazon
    | (?<![A-Za-z0-9])AIza[\w-]{35}(?![\w-])                       # Google
    | (?<![A-Za-z0-9])xox[a-z]-\d[A-Za-z0-9-]{20,}                 # Slack
    """
)

_COMMAND_OR_OPTION = re.compile(r"\bpairsmith [a-z][^;\n]*|(?<![\w-])--([a-z][a-z0-9-]*[a-z0-9]|[a-z])")
"""Matches a whole command, whose options stay as they are, or an option outside of a command."""

_LONGEST_NAME, _MOST_NAMES = 100, 100
"""The number of characters of a name, and the number of names, that a message shows."""

_SINGULAR_VERBS = {"are": "is", "have": "has", "were": "was", "prove": "proves", "repeat": "repeats"}

_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/\d+")


def redacted(text: str) -> str:
    """``text`` with passwords, tokens and keys replaced by ``***``, for files, logs and messages."""
    return _SECRETS.sub(lambda match: (match[1] or "") + "***", text)


def redacted_values(value: Any) -> Any:
    """A JSON-like value in which every text is ``redacted``."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        return {key: redacted_values(inner) for key, inner in value.items()}
    return [redacted_values(inner) for inner in value] if isinstance(value, list | tuple) else value


class PairsmithError(Exception):
    """Base class of all errors whose messages are written for the user."""

    exit_code = 2


class UserError(PairsmithError):
    """The user gave something that is wrong; the message says how to correct it."""


class InputError(UserError):
    """An input file is missing, cannot be read, or has unexpected content."""


class TaskError(UserError):
    """A task description has a fault."""


class SettingsError(UserError):
    """An option or a recipe has a fault."""


class ModelError(UserError):
    """A model cannot be found or loaded, or is not of the required kind."""


class FolderError(UserError):
    """An output folder contains something other than this run's work."""


class OtherWorkError(FolderError):
    """An output folder contains work of this step with other settings or inputs.

    ``changed`` names what differs.
    """

    def __init__(self, message: str, changed: str = "settings or inputs") -> None:
        super().__init__(message)
        self.changed = changed


class BusyError(FolderError):
    """Another process is writing to an output folder."""


class DamagedError(FolderError):
    """A file in a folder was changed after pairsmith had written it."""


class MissingExtra(UserError):  # noqa: N818 - named for what is missing, as people say it
    """An optional dependency is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package}, which is not installed; "
            f"install it with: pip install 'pairsmith[{extra}]'"
        )
        self._arguments = package, extra

    def __reduce__(self) -> tuple[type["MissingExtra"], tuple[str, str]]:
        """Pickle the two arguments; by default the message would be passed as the only argument."""
        return type(self), self._arguments


class StorageError(PairsmithError):
    """A file could not be written; the shards that were finished before are kept."""


class RemoteError(PairsmithError):
    """A model's server failed, after many attempts; the shards that were finished before are kept."""

    exit_code = 1


class WorkerError(PairsmithError):
    """A worker process failed; the shards that were finished before are kept."""

    exit_code = 1


def in_other_words(text: str, words: Mapping[str, str]) -> str:
    """``text`` with options of the command line in the words of a recipe or of Python.

    ``words`` maps the name of a setting (``top_p`` for ``--top-p``) to the replacement of its option. Other
    options, and the options of whole commands in the text, stay as they are.
    """

    def word(match: re.Match[str]) -> str:
        name = (match[1] or "").replace("-", "_")
        if name.startswith("no_") and name[3:] in words:
            return f"{words[name[3:]]} false"
        return words.get(name, match[0])

    return _COMMAND_OR_OPTION.sub(word, text)


@contextmanager
def errors_in_other_words(words: Mapping[str, str]) -> Iterator[None]:
    """Put messages of pairsmith's errors ``in_other_words``; the errors stay the same objects."""
    try:
        yield
    except PairsmithError as error:
        error.args = (in_other_words(str(error), words), *error.args[1:])
        raise


def one_line(text: str) -> str:
    """``text`` on one line, with a space instead of each character that is not printable.

    Without this, texts and labels of a data set could change a terminal's colours or break a table.
    """
    return "".join(character if character.isprintable() else " " for character in " ".join(text.split()))


def times(count: int) -> str:
    """A number of repetitions in words: ``once``, ``twice``, ``3 times``."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def counted(count: int, phrase: str) -> str:
    """A number before a phrase in the plural, which becomes the singular after 1: ``1 row``, ``1 query is``.

    ``phrase`` ends with a noun, or with a verb of ``_SINGULAR_VERBS`` after it.
    """
    if count != 1:
        return f"{count:,} {phrase}"
    *nouns, last = phrase.split()
    verb = _SINGULAR_VERBS.get(last)
    words = nouns if verb else [*nouns, last]
    if words:
        words[-1] = re.sub("(?<=ss)es$|s$", "", re.sub("ies$", "y", words[-1]))
    return " ".join(["1", *words, *([verb] if verb else [])])


def verb_for(count: int, verb: str) -> str:
    """A verb in the plural, one of ``_SINGULAR_VERBS``, which becomes the singular if ``count`` is 1."""
    return _SINGULAR_VERBS[verb] if count == 1 else verb


def size_text(size: int) -> str:
    """A number of bytes with its unit, a power of 1,000: ``12 B``, ``3.4 kB``, ``1,234.5 GB``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor - factor // 20_000:  # below this, it is less than 1,000.0 of the smaller unit
            return f"{size / factor:,.1f} {unit}"
    return f"{size} B"


def known_names_hint(name: str, options: Iterable[str]) -> str:
    """The end of a message about an unknown name: the most similar known name, and all known names."""
    names = sorted(options)
    nearest = did_you_mean(name, names)
    return f"{nearest}{' ' if nearest else ''}known: {joined_names(names)}"


def joined_names(names: Iterable[str]) -> str:
    """Names with commas between them, for a message.

    Long names are cut, and names after the first hundred left out: without a header, they may be texts.
    """
    shown = [name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…" for name in names]
    more = f", … ({len(shown):,} in all)" if len(shown) > _MOST_NAMES else ""
    return ", ".join(shown[:_MOST_NAMES]) + more


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """A question, for a message, with the most similar known name; empty if none is similar."""
    nearest = get_close_matches(name, options, n=1)
    return f"did you mean {nearest[0]!r}?" if nearest else ""


def near_names(name: str, options: Iterable[str]) -> list[str]:
    """At most three known names that are similar to ``name`` or contain it, the most similar first."""
    names = list(dict.fromkeys(options))
    similar = get_close_matches(name, names)
    containing = [
        option for option in names if len(name) > 3 and len(option) <= _LONGEST_NAME and name in option
    ]
    return list(dict.fromkeys([*similar, *containing]))[:3]


def nearby(path: Path) -> str:
    """The end of a message about a missing file: the probable mistake, or the most similar name there.

    It is empty if there is neither.
    """
    if path.is_symlink():
        try:
            path.stat()
        except OSError as error:
            if error.errno == errno.ELOOP:
                return "; it is a link that leads back to itself"
        return f"; it is a link to {path.readlink()}, which does not exist"
    if _DESCRIPTOR.fullmatch(str(path)):
        return "; the shell makes such a file, as for <(COMMAND), only for the command in which it is written"
    if count := len(glob(str(path))):  # noqa: PTH207 - Path.glob takes no absolute patterns
        which = "the name" if count == 1 else f"each of the {count:,} names"
        return f"; it is a pattern, and patterns are not expanded: give {which} that it matches"
    if not path.parent.is_dir():
        return f"; there is no folder {path.parent} either"
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:  # a folder that may not be listed
        return ""
    nearest = get_close_matches(path.name, names, n=1)
    return f"; did you mean {path.parent / nearest[0]}?" if nearest else ""


def first_line(error: BaseException) -> str:
    """The first line of an error's text, cut to 200 characters; the error's type if the text is empty."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if len(lines[0]) <= 200 else f"{lines[0][:199]}…"
