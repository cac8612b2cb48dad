"""A lease, which lets only one process write to a folder in a store: stores have no locks.

The file ``lease.json`` names the process that writes, its owner, which rewrites the file every few seconds
with a higher count. A second process that wants to write reads the count every second, so the clocks of
machines do not matter. If the count stays the same for ``STALE_SECONDS``, the lease is stale and is removed.
An owner on the same machine that has ended is detected at once.
"""

import atexit
import json
import math
import os
import socket
import threading
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pairsmith.core.errors import BusyError, FolderError, StorageError
from pairsmith.core.paths import Place, reaching
from pairsmith.core.progress import Say
from pairsmith.runs.storage import create_atomic, scratch_file

LEASE = "lease.json"
RENEW_SECONDS = 10.0
"""Seconds between two renewals of a lease."""
STALE_SECONDS = 35.0
"""A lease that was not renewed for this long is stale."""
_LOOK_SECONDS = 1.0
"""Seconds between two reads of another process's lease."""
_SETTLE_SECONDS = 2.0
"""Seconds to wait until another process's write or removal is visible, and its own check is done."""
_RELEASE_SECONDS = 2.0
"""Seconds to wait at the end for a renewal that is under way."""

_owners: set[str] = set()
"""The owner ids of this process's leases."""


class Lease:
    """This process's claim to a folder, renewed by a thread until it is released."""

    def __init__(self, folder: Place) -> None:
        self._file = folder / LEASE
        self._owner = uuid.uuid4().hex
        self._count = 0
        self._lost = False
        self._ended = threading.Event()
        self._guard = threading.Lock()
        _owners.add(self._owner)

    def take(self, say: Say) -> None:
        """Claim the folder if no running process holds it; ``say`` is called with a message before a wait.

        Raises:
            BusyError: another process holds the folder and renews its lease.
        """
        with reaching(self._file.parent, StorageError):
            while _read(self._file).get("owner") != self._owner:
                _wait_until_free(self._file, say)
                self._create()
        threading.Thread(target=self._renew_often, daemon=True, name="pairsmith-lease").start()
        atexit.register(self.release)

    def holds(self) -> bool:
        """Whether this process still holds the folder; the lease is read, as the machine may have slept."""
        # Not during a renewal: a store that writes files piece by piece could return half of the lease.
        with self._guard, reaching(self._file.parent, StorageError):
            self._lost = self._lost or _read(self._file).get("owner") != self._owner
        return not self._lost

    def check(self) -> None:
        """Raise ``FolderError`` if this process no longer holds the folder."""
        if not self.holds():
            raise FolderError(
                f"another run has taken over {self._file.parent}, as this one did not renew its lease for "
                f"{STALE_SECONDS:.0f} s; finished work is kept; run the same command again when the other "
                "run has ended"
            )

    def release(self) -> None:
        """Release the folder; a lease that cannot be removed becomes stale."""
        self._ended.set()
        _owners.discard(self._owner)
        atexit.unregister(self.release)
        if not self._guard.acquire(timeout=_RELEASE_SECONDS):
            return  # a renewal is waiting for a store that does not answer
        try:
            if not self._lost and _read(self._file).get("owner") == self._owner:
                self._file.unlink(missing_ok=True)
        except Exception:  # the store cannot be reached; nothing more can be done
            self._lost = True
        finally:
            self._guard.release()

    def _create(self) -> None:
        """Create the lease if there is none.

        If two processes create it at the same time, one of them fails in file systems with hard links and in
        stores with exclusive creation. In others the later write counts, and the process that then reads the
        other's lease has lost.
        """
        try:
            create_atomic(self._file, self._content())
        except FileExistsError:
            return
        except Exception:
            if _read(self._file):
                return
            self._write()
            time.sleep(_SETTLE_SECONDS)

    def _renew_often(self) -> None:
        while not self._ended.wait(RENEW_SECONDS) and not self._lost:
            with suppress(Exception):  # the store may answer the next time; if not, `check` raises an error
                self._renew()

    def _renew(self) -> None:
        with self._guard:
            self._lost = self._lost or _read(self._file).get("owner") != self._owner
            if not self._lost:
                self._count += 1
                self._write()

    def _content(self) -> bytes:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"owner": self._owner, "count": self._count, "time": now, **_this_process()}
        return json.dumps(about).encode()

    def _write(self) -> None:
        if not isinstance(self._file, Path):
            self._file.fs.pipe_file(self._file.path, self._content())
            return
        with scratch_file(self._file.parent, f"{self._owner}-{LEASE}") as scratch:
            scratch.write_bytes(self._content())
            scratch.replace(self._file)


def has_live_writer(folder: Place) -> bool:
    """Whether a process is probably writing to ``folder``, for status reports.

    The time in the lease is compared with this machine's clock, so clocks that differ by more than
    ``STALE_SECONDS`` give a wrong answer: a lease with a time in the future counts as stale, as otherwise the
    lease of a killed process could count as live for hours.
    """
    try:
        about = json.loads((folder / LEASE).read_bytes())
        age = (datetime.now(UTC) - datetime.fromisoformat(about["time"])).total_seconds()
    except Exception:  # no lease, or one that cannot be read
        return False
    return not _gone(about) and abs(age) < STALE_SECONDS


def _wait_until_free(file: Place, say: Say) -> None:
    """Wait until the lease in ``file`` is gone or stale, and remove it then."""
    first = _read(file)
    if first and not _gone(first):
        name = f"process {first.get('pid', '?')} on {first.get('host', 'another machine')}"
        say(
            f"{name} was writing to {file.parent}; "
            f"waiting up to {STALE_SECONDS:.0f} s to see whether it is still running"
        )
        # Reads are counted, not seconds: while the file system does not answer, the owner cannot renew
        # either.
        for _ in range(math.ceil(STALE_SECONDS / _LOOK_SECONDS)):
            time.sleep(_LOOK_SECONDS)
            now = _read(file)
            if now and now != first:
                raise BusyError(
                    f"another run is writing to {file.parent} ({name}); wait for it, or give another --out"
                )
            if not now:
                return
    if first and _read(file) == first:
        file.unlink(missing_ok=True)
        time.sleep(_SETTLE_SECONDS)  # so that others who remove it do so before a new lease is created


def _this_process() -> dict[str, Any]:
    return {"host": socket.gethostname(), "boot": _boot(), "pid": os.getpid()}


def _boot() -> str:
    """An identifier of this boot of this machine or container; "" if the system has none.

    The identifier distinguishes machines and containers with the same host name.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _gone(about: dict[str, Any]) -> bool:
    """Whether the owner of a lease with the content ``about`` is a process of this machine that has ended."""
    machine = _this_process()
    if not machine["boot"] or any(about.get(key) != machine[key] for key in ("host", "boot")):
        return False
    if about.get("pid") == os.getpid():
        return about.get("owner") not in _owners  # else the owner was an earlier process with this id
    try:
        os.kill(int(about["pid"]), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, KeyError):
        return False
    return False


def _read(file: Place) -> dict[str, Any]:
    """The content of a lease; empty without a lease, ``{"unreadable": …}`` if it is no JSON object."""
    try:
        data = file.read_bytes() if isinstance(file, Path) else bytes(file.fs.cat_file(file.path))
    except FileNotFoundError:
        return {}
    with suppress(ValueError):
        about = json.loads(data)
        if about and isinstance(about, dict):
            return about
    return {"unreadable": data}
