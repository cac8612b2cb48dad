"""One writer a folder: a second process that starts in the same folder is told so.

The lock is held on the folder itself, so no lock file is left behind, and the system drops it when
the process ends, however it ends. Where the system has no such locks (Windows, some network file
systems) there is no protection, and none is claimed.
"""

import os
import time
from pathlib import Path

from pairsmith.errors import FolderError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # Windows has none

_MOMENT = 0.2

# Within one process a second start takes over the first one's lock: that is how a step that failed
# is tried again in a notebook or a test.
_held: dict[Path, int] = {}


def acquire(folder: Path) -> None:
    """Lock ``folder`` for this process.

    Raises:
        FolderError: another process has it.
    """
    folder = folder.resolve()
    if fcntl is None or _holds(folder):
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_MOMENT)  # `taken` holds the lock for an instant
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise FolderError(f"another run is writing to {folder}; wait for it, or give another --out") from None
    except OSError:
        os.close(handle)  # a file system without locks
        return
    _held[folder] = handle


def _holds(folder: Path) -> bool:
    """Whether this process has the lock of the folder that is there now, not of one removed since."""
    if folder not in _held:
        return False
    if os.path.samestat(os.fstat(_held[folder]), folder.stat()):
        return True
    release(folder)
    return False


def taken(folder: Path) -> bool:
    """Whether a process, this one included, has ``folder``."""
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


def release(folder: Path) -> None:
    """Unlock ``folder``, if this process has it."""
    handle = _held.pop(folder.resolve(), None)
    if handle is not None:
        os.close(handle)
