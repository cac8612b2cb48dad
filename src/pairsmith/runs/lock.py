"""Locks, which let only one process write to a folder: a second one gets an error.

On a disk the folder itself is locked, so no lock file is left behind, and the system releases the lock when
the process ends in any way. Systems without such locks (Windows, some network file systems) have no
protection. In a store, a lease takes the place of the lock.
"""

import os
import time
from pathlib import Path

from upath import UPath

from pairsmith.core.errors import BusyError
from pairsmith.core.paths import Place
from pairsmith.runs.lease import Lease, Say, live
from pairsmith.runs.log import flush

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # Windows has none

_MOMENT = 0.2
"""Seconds after which a lock is tried a second time."""

# A second run in the same process takes over the lock of the first one, so that a step that failed can be run
# again in a notebook or a test.
_held: dict[Path, int] = {}  # the file handles that hold the locks, by folder
_leases: dict[str, Lease] = {}  # the leases of folders in stores, by URL


def _close_in_child() -> None:
    """Release all locks in a forked process, which would keep them if its parent is killed."""
    while _held:
        os.close(_held.popitem()[1])


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_close_in_child)


def acquire(folder: Place, say: Say = lambda _: None) -> None:
    """Lock ``folder`` for this process; ``say`` is called with a message before it has to wait.

    Raises:
        BusyError: another process has locked the folder.
    """
    if isinstance(folder, UPath):
        own = _leases.get(str(folder))
        if own is not None and not own.holds():
            own.release()
            own = None
        if own is None:
            lease = Lease(folder)
            lease.take(say)
            _leases[str(folder)] = lease
        return
    folder = folder.resolve()
    if fcntl is None or _holds(folder):
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_MOMENT)  # another process may hold the lock for an instant only, in `is_held`
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise BusyError(f"another run is writing to {folder}; wait for it, or give another --out") from None
    except OSError:
        os.close(handle)  # a file system without locks
        return
    _held[folder] = handle


def _holds(folder: Path) -> bool:
    """Whether this process holds the lock of ``folder``, and not of a folder that was removed meanwhile."""
    if folder not in _held:
        return False
    if os.path.samestat(os.fstat(_held[folder]), folder.stat()):
        return True
    release(folder)
    return False


def check(folder: Place) -> None:
    """Raise ``FolderError`` if this process has lost its lease of ``folder``; disk locks are never lost."""
    if str(folder) in _leases:
        _leases[str(folder)].check()


def is_held(folder: Place) -> bool:
    """Whether any process, which may be this one, has locked ``folder``."""
    if isinstance(folder, UPath):
        return live(folder)
    if fcntl is None or not folder.is_dir():
        return False
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)  # any other error means a file system without locks
    else:
        return False
    finally:
        os.close(handle)


def release(folder: Place) -> None:
    """Unlock ``folder`` if this process has locked it."""
    if isinstance(folder, UPath):
        flush(folder)
        lease = _leases.pop(str(folder), None)
        if lease is not None:
            lease.release()
        return
    handle = _held.pop(folder.resolve(), None)
    if handle is not None:
        os.close(handle)
