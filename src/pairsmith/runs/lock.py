"""Locks, which let only one process write to a folder: a second one gets an error.

On a disk the folder itself is locked, so no lock file is left behind, and the system releases the lock when
the process ends in any way. On a network file system other machines do not see this lock, so a lease is
added; in a store, a lease takes the place of the lock. On Windows there is no protection.
"""

import errno
import os
import time
from pathlib import Path

from upath import UPath

from pairsmith.core.errors import BusyError, FolderError, StorageError
from pairsmith.core.paths import Place
from pairsmith.core.progress import Say
from pairsmith.runs.lease import Lease, has_live_writer
from pairsmith.runs.log import flush

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # Windows has none

_MOMENT = 0.2
"""Seconds after which a lock is tried a second time."""

_REMOVED = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
"""The error numbers of a path whose folder is gone; ESTALE: another machine removed the folder."""

_MOUNTS = Path("/proc/self/mountinfo")
NETWORK = {
    "9p", "afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "ocfs2",
    "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "virtiofs", "wekafs",
}  # fmt: skip
"""Linux's names of file systems that several machines can mount. FUSE file systems count as such, too."""

# A second run in the same process takes over the lock of the first one, so that a step that failed can be run
# again in a notebook or a test.
_held: dict[Path, int] = {}  # the file handles that hold the locks, by folder
_leases: dict[str, Lease] = {}  # leases by the URL or path of their folder


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
    if not isinstance(folder, UPath):
        folder = folder.resolve()
        locked = fcntl is None or _lock(folder)
        if locked and not on_network(folder):
            return
    own = _leases.get(str(folder))
    if own is not None and not own.holds():
        own.release()
        own = None
    if own is None:
        lease = Lease(folder)
        try:
            lease.take(say)
        except BaseException:
            release(folder)
            raise
        _leases[str(folder)] = lease


def _lock(folder: Path) -> bool:
    """Lock ``folder`` against other processes of this machine; False if its file system has no locks."""
    if _holds(folder):
        return True
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_MOMENT)  # another process may hold the lock only for an instant, in `is_held`
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise BusyError(f"another run is writing to {folder}; wait for it, or give another --out") from None
    except OSError:
        os.close(handle)
        return False
    _held[folder] = handle
    return True


def file_system(folder: Path) -> str:
    """Linux's name of the file system that ``folder`` is on, such as ``nfs4``; "" if it is not known."""
    try:
        device = folder.stat().st_dev
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # the folder does not exist, or this is no Linux
        return ""
    number = f"{os.major(device)}:{os.minor(device)}"
    kinds = (line.partition(" - ")[2].split()[0] for line in lines if line.split()[2] == number)
    return next(kinds, "")


def on_network(folder: Path) -> bool:
    """Whether ``folder`` is on a network file system, so that other machines may write to it."""
    kind = file_system(folder)
    return kind in NETWORK or kind == "fuse" or kind.startswith("fuse.")


def _holds(folder: Path) -> bool:
    """Whether this process has locked ``folder``; False if the locked folder was removed meanwhile."""
    if folder not in _held:
        return False
    if _is_there(folder):
        return True
    release(folder)
    return False


def _is_there(folder: Path) -> bool:
    """Whether the folder that this process has locked under the path ``folder`` is still there."""
    try:
        return os.path.samestat(os.fstat(_held[folder]), folder.stat())
    except OSError as error:
        if error.errno in _REMOVED:
            return False
        raise StorageError(f"{folder} cannot be read: {error.strerror}") from error


def check(folder: Place) -> None:
    """Raise ``FolderError`` if this process has lost its lease of ``folder``, or the folder was moved."""
    if not isinstance(folder, UPath):
        path = folder.resolve()
        if path in _held and not _is_there(path):
            raise FolderError(
                f"{folder} was moved or removed while this run wrote to it; finished work is in the moved "
                "folder: run the same command again with the new place of the --out folder"
            )
    lease = _leases.get(_key(folder))
    if lease is not None:
        lease.check()


def _key(folder: Place) -> str:
    """The key of a folder's lease."""
    return str(folder if isinstance(folder, UPath) else folder.resolve())


def is_held(folder: Place) -> bool:
    """Whether any process, which may be this one, has locked ``folder``.

    For a folder in a store or on a network file system, the processes of all machines count.
    """
    if isinstance(folder, UPath):
        return has_live_writer(folder)
    if fcntl is None or not folder.is_dir():
        return False
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return has_live_writer(folder)
    else:
        return on_network(folder) and has_live_writer(folder)
    finally:
        os.close(handle)


def release(folder: Place) -> None:
    """Unlock ``folder`` if this process has locked it."""
    if isinstance(folder, UPath):
        flush(folder)
    lease = _leases.pop(_key(folder), None)
    if lease is not None:
        lease.release()
    if not isinstance(folder, UPath):
        handle = _held.pop(folder.resolve(), None)
        if handle is not None:
            os.close(handle)
