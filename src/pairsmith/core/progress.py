"""Shows the progress of a running step: the work done, its rate, and the time left."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TextIO

from pairsmith.core.errors import in_other_words, redacted

Say = Callable[[str], None]
"""Called with a message for the user."""

_WARM_SECONDS = 10.0
_WARM_UNITS = 3
_WARM_SHARE = 0.05
"""The time left is shown only after this many seconds, this many units, and this share of all units: until
then, loading distorts the rate."""


@dataclass
class ProgressTask:
    """A progress bar: ``done`` of ``total`` units."""

    label: str
    unit: str
    total: int
    done: int = 0
    note: str = ""  # text at the end of the line
    skipped: int = 0  # units that an earlier run did, which do not count in the rate
    started: float = field(default_factory=time.monotonic)
    # Shows the bar; set by its ``Progress``.
    draw: Callable[["ProgressTask"], None] = field(default=lambda _: None, repr=False)

    def advance(self, amount: int = 1, note: str | None = None) -> None:
        """Count ``amount`` more units as done; ``note`` replaces the note at the end of the line."""
        self.done += amount
        if note is not None:
            self.note = note
        self.draw(self)

    def skip(self, amount: int) -> None:
        """Count ``amount`` units as done by an earlier run; they do not count in the rate."""
        self.done += amount
        self.skipped += amount

    def line(self, now: float) -> str:
        """The bar as one line of text: count, share, rate, time left and the note."""
        seconds = max(now - self.started, 1e-9)
        rate = (self.done - self.skipped) / seconds
        parts = [f"{self.label}: {self.done:,}/{self.total:,} {self.unit}"]
        if self.total:
            parts.append(f"{100 * self.done / self.total:.0f} %")
        if rate:  # 0 until this run has done a unit: an earlier run may have done all units
            parts.append(f"{rate:,.1f}/s" if rate >= 1 else f"{60 * rate:,.1f} a minute")
        representative = self.done - self.skipped >= max(
            _WARM_UNITS, _WARM_SHARE * (self.total - self.skipped)
        )
        if rate and self.done < self.total and representative and seconds >= _WARM_SECONDS:
            parts.append(f"{clock((self.total - self.done) / rate)} left")
        if self.note:
            parts.append(self.note)
        return " · ".join(parts)


def clock(seconds: float) -> str:
    """``seconds`` as a readable duration: ``4 s``, ``3 min 20 s``, ``2 h 05 min``."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60} min {rounded % 60:02d} s"
    return f"{rounded // 3600} h {rounded % 3600 // 60:02d} min"


class Progress:
    """Writes messages and progress bars to ``stream``.

    On a terminal a bar is one line that is redrawn in place. In a file the first line of a bar is written at
    once, the second after ``every`` seconds, and each following one when the time since the bar began has
    grown by a quarter, so that a long run does not fill the file.
    """

    _live = False
    _bar_line = ""  # the bar's line on a terminal, while the cursor is at its end
    # The last line of a file: the id of its bar, the number of units done, and the note.
    _shown: tuple[int, int, str] | None = None

    def __init__(self, stream: TextIO | None = None, *, every: float = 10.0) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._every = 0.1 if self._live else every
        self._last = float("-inf")

    def say(self, text: str) -> None:
        """Write one line that no progress bar will overwrite; secrets in it are hidden."""
        self._write_line(redacted(text))

    def link(self, text: str) -> None:
        """Write the address of a page that was just started, including its token, which is not hidden.

        The line is written also with ``--quiet``, and also to a file if the output is redirected. This
        program made the token, which is valid only until the program ends. Do not pass other secrets, such as
        passwords in a path.
        """
        self._write_line(text)

    def coloured(self, text: str, number: int) -> str:
        """``text`` in the colour ``number`` modulo 6 on a terminal; unchanged elsewhere."""
        if not self._live or os.environ.get("NO_COLOR"):
            return text
        return f"\x1b[{(36, 33, 35, 32, 34, 31)[number % 6]}m{text}\x1b[0m"

    def result(self, text: str) -> None:
        """Write a result to standard output, also with ``--quiet``."""
        print(redacted(text), flush=True)

    @contextmanager
    def task(self, label: str, total: int, unit: str) -> Iterator[ProgressTask]:
        """A context with a bar of ``total`` units; its last state is written at the end.

        On a terminal, what pairsmith logs inside the context, such as a server's faults, is written on lines
        of its own above the bar, unless a program that uses pairsmith handles it.
        """
        bar = ProgressTask(label, unit, total, draw=self.draw)
        logger, handler = logging.getLogger("pairsmith"), _AboveBar(self._write_above_bar)
        if self._live and not logger.hasHandlers():
            logger.addHandler(handler)
        try:
            yield bar
        finally:
            logger.removeHandler(handler)
            if self._live or self._shown != (id(bar), bar.done, bar.note):
                self.say(bar.line(time.monotonic()))
            self._last, self._shown = float("-inf"), None

    def _write_line(self, line: str) -> None:
        erase = "\r\x1b[2K" if self._live else ""
        self._bar_line = ""
        self._stream.write(f"{erase}{line}\n")
        self._stream.flush()

    def _write_above_bar(self, line: str) -> None:
        self._stream.write(f"\r\x1b[2K{line}\n{self._bar_line}")
        self._stream.flush()

    def draw(self, bar: ProgressTask) -> None:
        """Show ``bar``, unless a bar was shown a short time ago."""
        now = time.monotonic()
        interval = self._every if self._live else max(self._every, (now - bar.started) / 5)
        if now - self._last < interval:
            return
        self._last = now
        if self._live:
            self._bar_line = bar.line(now)
            self._stream.write(f"\r\x1b[2K{self._bar_line}")
            self._stream.flush()
        else:
            self.say(bar.line(now))
            self._shown = (id(bar), bar.done, bar.note)


class _AboveBar(logging.Handler):
    """Writes what is logged above a bar."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; if the terminal is gone, the request that logs it goes on."""
        with suppress(OSError):
            self._write(redacted(self.format(record)))


class InOtherWords(Progress):
    """Passes messages on to another ``Progress``, with options renamed, such as to the keys of a recipe."""

    def __init__(self, progress: Progress, words: Mapping[str, str]) -> None:
        self._progress, self._words = progress, words

    def say(self, text: str) -> None:
        """Write the line ``in_other_words``."""
        self._progress.say(in_other_words(text, self._words))

    def link(self, text: str) -> None:
        """Write the address unchanged."""
        self._progress.link(text)

    def coloured(self, text: str, number: int) -> str:
        """``text`` as the other progress colours it."""
        return self._progress.coloured(text, number)

    def result(self, text: str) -> None:
        """Write the result unchanged."""
        self._progress.result(text)

    @contextmanager
    def task(self, label: str, total: int, unit: str) -> Iterator[ProgressTask]:
        """A context with a bar of the other progress."""
        with self._progress.task(label, total, unit) as bar:
            yield bar


class Quiet(Progress):
    """Writes only results and links, for ``--quiet``."""

    def say(self, text: str) -> None:
        """Drop the line."""

    def draw(self, bar: ProgressTask) -> None:
        """Drop the bar."""


class Silent(Quiet):
    """Writes nothing: for use as a library, and for tests."""

    def link(self, text: str) -> None:
        """Drop the link."""

    def result(self, text: str) -> None:
        """Drop the result."""
