"""The waits before requests are sent again, and what is said about them."""

import logging
import math
import threading
import time
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from pairsmith.core.errors import first_line, one_line, redacted
from pairsmith.core.progress import clock

LONGEST_WAIT = 24 * 3600.0
"""A server that asks to wait for more seconds is given up."""
LONG_WAIT = 5.0
"""A wait of so many seconds is told at once."""
TOLD_EVERY = 10.0
"""Seconds for which a fault of one kind is not told again, whichever request of whichever worker has it.

They double each time that it is told, up to ``REMINDED_EVERY``.
"""
REMINDED_EVERY = 600.0
"""Seconds after which what lasts is told again."""

_LOG = logging.getLogger(__name__)


class FaultFilter(logging.Filter):
    """Lets a line about a server's fault, of the kind ``record.fault``, pass once and then ever less often.

    A worker's lines pass the filter there and then that of the main process (``runs/executors.py``), where
    those of the other workers are known.
    """

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[object, tuple[float, float]] = {}  # when, and how long it is not told again
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is shown."""
        kind, now = getattr(record, "fault", None), time.monotonic()
        with self._lock:
            last, silence = self._told.get(kind, (-math.inf, 0.0))
            if now - last < silence:
                return False
            is_new = now - last >= 2 * REMINDED_EVERY
            self._told[kind] = now, TOLD_EVERY if is_new else min(2 * silence, REMINDED_EVERY)
        return True


FAULTS = FaultFilter()
_LOG.addFilter(FAULTS)


class Waits:
    """The waits of all requests to a server."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether ``stop`` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """End all waits."""
        self._stopped.set()

    def wait(self, seconds: float, url: str, fault: str, *, told: bool, asked: bool) -> bool:
        """Wait before a request is sent again; whether ``stop`` ended the wait.

        Args:
            seconds: how long.
            url: where the request goes.
            fault: why it waits; begins with the response's status, if that is why.
            told: whether a short wait is told, too.
            asked: whether the server asks to wait so long.
        """
        until = time.monotonic() + seconds
        while True:
            if told or seconds >= LONG_WAIT:
                _tell(seconds, url, fault, asked)
            if self._stopped.wait(min(seconds, REMINDED_EVERY)):
                return True
            if (seconds := until - time.monotonic()) <= 0:
                return False


def _tell(seconds: float, url: str, fault: str, asked: bool) -> None:
    """Say why requests wait, once for all that have the same fault."""
    kind = urlsplit(url).netloc, fault[:3], asked and seconds >= LONG_WAIT  # a status has three digits
    what, why = redacted(one_line(fault[:100])), "as the server asks, " if asked else ""
    line = "%s: %s; %strying again in %s"
    _LOG.warning(line, redacted(url), what, why, clock(seconds), extra={"fault": kind})


def seconds_asked(after: str) -> float:
    """The seconds that a header Retry-After asks to wait, which holds their number or a date."""
    if after.isdecimal():
        return float(after)
    try:
        return max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def cause(error: BaseException) -> str:
    """Why no response came, in the system's words: the libraries in between name their objects."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return getattr(error, "strerror", None) or first_line(error)
