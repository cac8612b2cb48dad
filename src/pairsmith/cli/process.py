"""The process of a command: error messages and exit codes, signals, and output that is closed."""

import errno
import gc
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from pairsmith.core.errors import PairsmithError, SettingsError, redacted

STOPPED = (
    "stopped; finished parts are kept, and a part that was begun will be done again; to continue, run the "
    "same command again without --fresh"
)

_CANNOT_WRITE = {
    errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EAGAIN, errno.ESTALE, errno.ENXIO,
}  # fmt: skip
"""The numbers of operating system errors that writing can cause."""


_REFUSED_SECONDS = 30.0
"""Seconds that the other processes of a refused command wait, so that the first one can report the error."""


@contextmanager
def errors_as_messages(stopped: str = STOPPED) -> Iterator[None]:
    """Turn pairsmith's errors into a message on stderr and an exit code; a bug keeps its traceback.

    ``stopped`` is the message after Ctrl-C or SIGTERM.
    """
    try:
        yield
    except PairsmithError as error:
        typer.echo(f"pairsmith: error: {redacted(str(error))}", err=True)
        raise SystemExit(error.exit_code) from None
    except KeyboardInterrupt as stop:
        typer.echo(stopped, err=True)
        gc.freeze()  # else Python searches the libraries' objects for garbage, which takes half a second
        raise SystemExit(143 if stop.args else 130) from None
    except BrokenPipeError:
        _write_nowhere(1, 2)
        raise SystemExit(141) from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG and error.filename:
            typer.echo(
                f"pairsmith: error: {redacted(str(error.filename))} is too long; most file systems allow 255 "
                "bytes for a name and 4,096 for a path: give a shorter one",
                err=True,
            )
            raise SystemExit(2) from None
        if error.filename is not None or error.errno not in _CANNOT_WRITE or not _output_fails(error.errno):
            raise  # a bug: code that opens a file turns its errors into a PairsmithError
        _write_nowhere(1)
        typer.echo(f"pairsmith: error: cannot write to standard output: {error.strerror}", err=True)
        raise SystemExit(2) from None


def is_first() -> bool:
    """Whether this is the only process of its command, or the first of the processes of a launcher."""
    return "LOCAL_RANK" not in os.environ or os.environ.get("RANK", "0") == "0"


def refuse_several(instead: str) -> None:
    """Refuse a command that torchrun or accelerate started several times: only one of them could write.

    ``instead`` is the advice in the error, which the first process raises. The other processes wait until the
    launcher ends them: if one of them failed first, the launcher would end the first process, too.
    """
    count = os.environ.get("WORLD_SIZE", "1")
    if "LOCAL_RANK" in os.environ and "MASTER_ADDR" in os.environ and count != "1":
        if not is_first():
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            time.sleep(_REFUSED_SECONDS)
            raise SystemExit(SettingsError.exit_code)
        raise SettingsError(
            f"a launcher such as torchrun started this command {count} times, but only trainings can be "
            f"shared by several processes; {instead}"
        )


def _output_fails(number: int) -> bool:
    """Whether writing an empty line to standard output causes the operating system error ``number``."""
    try:
        print(flush=True)
    except OSError as error:
        return error.errno == number
    return False


def _write_nowhere(*streams: int) -> None:
    """Discard what is still buffered for these file descriptors; writing it would fail when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream)


def prepare_output() -> None:
    """Make both output streams accept any text, also if they are closed or their encoding is not UTF-8.

    The processes of a launcher do not show torch's own warnings: in each of them DDP would warn of a flag
    that models with unused parameters need.
    """
    if "LOCAL_RANK" in os.environ:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    nowhere = Path(os.devnull)
    sys.stdout = sys.stdout or nowhere.open("w", encoding="utf-8")
    sys.stderr = sys.stderr or nowhere.open("w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def stop_on_sigterm() -> None:
    """End a run on SIGTERM as on Ctrl-C: end workers, and remove locks and half-written files."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _stop)


def stop_at_once() -> None:
    """From now on, end the process silently on one more Ctrl-C or SIGTERM.

    This function is called when a stopped command is over: otherwise a second signal would interrupt the end
    of Python, which would then print a traceback. The signal handlers of a program that called the command
    are kept.
    """
    if threading.current_thread() is threading.main_thread():
        for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, _stop)):
            if signal.getsignal(number) is handler:
                signal.signal(number, signal.SIG_DFL)


def _stop(number: int, _: object) -> None:
    raise KeyboardInterrupt(number)
