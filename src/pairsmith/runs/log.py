"""The log of a run's folder, one JSON line per event: ``log.jsonl``, or in a store, parts in ``log/``.

The log is for people and their tools. No decision of pairsmith depends on it, so it is not synced to the
disk, and a failure to write it does not end the run.
"""

import atexit
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from upath import UPath

from pairsmith.core.errors import redacted_values
from pairsmith.core.paths import Place

LOG = "log.jsonl"
PARTS = "log"
_TAIL = 1 << 20
"""Number of bytes at the end of the log that ``recent_events`` reads."""
_PART_BYTES = 1 << 20
"""Size of a part in a store, in bytes, after which a new part is begun."""
_FLUSH_SECONDS = 10.0
"""In a store, the lines about finished shards are collected for at least this many seconds, then written."""


def log(folder: Place, event: str, **facts: Any) -> None:
    """Add a line with the time (UTC), the event's name and its facts, without passwords and tokens."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = json.dumps(redacted_values({"time": now, "event": event, **facts}), ensure_ascii=False) + "\n"
    if isinstance(folder, UPath):
        _parts.setdefault(str(folder), _Part(folder)).add(line, at_once=event != "shard")
        return
    # File names may have bytes that are not UTF-8; they are escaped as JSON does it.
    with suppress(OSError), (folder / LOG).open("a", encoding="utf-8", errors="backslashreplace") as file:
        file.write(line)


def flush(folder: Place) -> None:
    """Write pending log lines to a store, which cannot append."""
    part = _parts.pop(str(folder), None)
    if part is not None:
        part.put()


def recent_events(folder: Place) -> Iterator[dict[str, Any]]:
    """The events in the last megabyte of the log, oldest first; incomplete lines are left out."""
    try:
        data = _tail(folder)
    except Exception:  # there is no log, or its store cannot be reached: nothing depends on it
        return
    for line in data.splitlines():
        try:
            event = json.loads(line)
            datetime.fromisoformat(event["time"])
        except (ValueError, LookupError, TypeError):
            continue
        yield event


def working_seconds(folder: Place, created: str) -> float:
    """How many seconds a step worked: from each start to the last shard finished after it.

    The times of ranks of an array job, whose shares were copied into the folder, are added. Only the last
    megabyte of the log counts (``recent_events``), without events of a run that ``--fresh`` has replaced.
    ``created`` is when the folder was begun, as in its manifest.
    """
    total, mark = timedelta(), None
    of_ranks: dict[tuple[Any, Any], float] = {}  # the last time of each rank, which includes its earlier ones
    begun = datetime.fromisoformat(created).astimezone(UTC) if created else None
    for event in recent_events(folder):
        when = datetime.fromisoformat(event["time"]).astimezone(UTC)
        if begun and when < begun:
            continue
        name = event.get("event")
        if name == "start":
            mark = when
        elif name == "shard" and mark:
            total, mark = total + (when - mark), when
        elif name == "share" and isinstance(event.get("seconds"), int | float):
            of_ranks[event.get("rank"), event.get("begun")] = event["seconds"]
    return total.total_seconds() + sum(of_ranks.values())


def _tail(folder: Place) -> bytes:
    if isinstance(folder, Path):
        with (folder / LOG).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            return file.read()
    parts = sorted((folder / PARTS).iterdir(), key=lambda path: path.name)
    return b"".join(part.read_bytes() for part in parts[-2:])[-_TAIL:]


class _Part:
    """A part of the log of a folder in a store: one object, rewritten every few seconds with new lines."""

    def __init__(self, folder: UPath) -> None:
        self._folder = folder
        self._begin()

    def add(self, line: str, *, at_once: bool) -> None:
        """Add a line; write the part to the store if ``at_once``, if it is full, or after ten seconds."""
        self._text += line
        full = len(self._text) > _PART_BYTES
        if at_once or full or time.monotonic() - self._put_at > _FLUSH_SECONDS:
            self.put()
        if full:
            self._begin()

    def put(self) -> None:
        """Write the current part to the store."""
        self._put_at = time.monotonic()
        with suppress(Exception):  # see the module's docstring
            self._file.fs.pipe_file(self._file.path, self._text.encode("utf-8", "backslashreplace"))

    def _begin(self) -> None:
        self._file = self._folder / PARTS / f"{datetime.now(UTC):%Y%m%dT%H%M%S.%f}.jsonl"
        self._text = ""
        self._put_at = time.monotonic()


_parts: dict[str, _Part] = {}


@atexit.register
def _flush_all() -> None:
    """Write all parts at exit, also when a run was stopped or has failed."""
    for part in _parts.values():
        part.put()
