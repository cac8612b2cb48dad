"""One writer per folder: a second process that starts in the same folder gets an error.

On a disk the lock is held on the folder itself, so no lock file is left behind, and the system drops
it when the process ends, however it ends. Where the system has no such locks (Windows, some network
file systems) there is no protection. In a store a lease replaces the lock.
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

# Within one process a second start takes over the first one's lock, so that a failed step can be
# tried again in a notebook or a test.
_held: dict[Path, int] = {}
_leases: dict[str, Lease] = {}


def _close_in_child() -> None:
    """A forked process, such as a loader's worker, does not keep its parent's locks if that is killed."""
    while _held:
        os.close(_held.popitem()[1])


if hasattr(os, "register_at_fork"):  # Windows does not fork
    os.register_at_fork(after_in_child=_close_in_child)


def acquire(folder: Place, say: Say = lambda _: None) -> None:
    """Lock ``folder`` for this process; ``say`` is called with a message where that means waiting."""
    if isinstance(folder, UPath):
        held = _leases.get(str(folder))
        if held is not None and not held.holds():
            held.release()
            held = None
        if held is None:
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
            time.sleep(_MOMENT)  # `is_held` holds the lock for an instant
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise BusyError(f"another run is writing to {folder}; wait for it, or give another --out") from None
    except OSError:
        os.close(handle)  # a file system without locks
        return
    _held[folder] = handle


def _holds(folder: Path) -> bool:
    """Whether this process holds the lock of the folder that exists now, not of one removed since."""
    if folder not in _held:
        return False
    if os.path.samestat(os.fstat(_held[folder]), folder.stat()):
        return True
    release(folder)
    return False


def check(folder: Place) -> None:
    """Check that this process still holds ``folder``; a lock on a disk cannot be lost."""
    if str(folder) in _leases:
        _leases[str(folder)].check()


def is_held(folder: Place) -> bool:
    """Whether a process, this one included, holds ``folder``."""
    if isinstance(folder, UPath):
        return live(folder)
    if fcntl is None or not folder.is_dir():
        return False
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)  # else a file system without locks
    else:
        return False
    finally:
        os.close(handle)


def release(folder: Place) -> None:
    """Unlock ``folder``, if this process holds it."""
    if isinstance(folder, UPath):
        flush(folder)
        lease = _leases.pop(str(folder), None)
        if lease is not None:
            lease.release()
        return
    handle = _held.pop(folder.resolve(), None)
    if handle is not None:
        os.close(handle)
