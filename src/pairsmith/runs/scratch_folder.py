"""A folder on this machine for the scratch files of runs that write into a store.

Each process has a folder of its own, and locks it. The system releases the lock when the process ends in any
way. So the next process on this machine recognises the folders of killed processes, and removes them. On
Windows, and on file systems without locks, they stay.
"""

import atexit
import os
import shutil
import socket
import tempfile
from functools import cache
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # Windows has none


@cache
def scratch_folder() -> Path:
    """The folder of this process, which is removed when the process ends."""
    # Machines that share their temporary folder may not see each other's locks.
    prefix = f"pairsmith-scratch-{socket.gethostname()}-"
    if fcntl is not None:
        for earlier in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
            _remove_unless_locked(earlier)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    while fcntl is not None and not _lock(folder):
        folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(_remove_own, folder, os.getpid())
    return folder


def _remove_own(folder: Path, owner: int) -> None:
    """Remove the folder of the process ``owner``; a process that was forked from it does nothing."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _lock(folder: Path) -> bool:
    """Lock a folder until this process ends; False if another process removed it before it was locked."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:  # a file system without locks, on which no process removes the folder
        return True
    return folder.exists()


def _remove_unless_locked(folder: Path) -> None:
    """Remove the folder of another process, unless that process is still running."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # another user's folder, or no folder
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    except OSError:  # the process is running, or the file system has no locks
        return
    finally:
        os.close(handle)
