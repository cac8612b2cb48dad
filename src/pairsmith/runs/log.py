"""``log.jsonl``: what happened in a run's folder, a line of JSON an event.

For people and their tools; nothing is decided by it, so it is not synced, and a disk that cannot
take it does not end the run.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pairsmith.errors import redacted_values

LOG = "log.jsonl"
_TAIL = 1 << 20


def log(folder: Path, event: str, **facts: Any) -> None:
    """Add a line: the time (UTC), the event, and its facts, without secrets."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    line = json.dumps(redacted_values({"time": now, "event": event, **facts}), ensure_ascii=False)
    with suppress(OSError), (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def recent(folder: Path) -> Iterator[dict[str, Any]]:
    """The events of the last megabyte, oldest first; lines that are not whole are left out."""
    try:
        with (folder / LOG).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _TAIL))
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and isinstance(event.get("time"), str):
            yield event
