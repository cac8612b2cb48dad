"""The waits before a request is sent again, and the warnings about them."""

import logging
import math
import threading
import time
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from pairsmith.core.errors import first_line, one_line, redacted
from pairsmith.core.progress import clock

LONGEST_WAIT = 24 * 3600.0
"""A request gives up if the server asks to wait longer than this many seconds."""
LONG_WAIT = 5.0
"""A wait of at least this many seconds is reported at once."""
SILENCE = 10.0
"""For this many seconds, a fault of the same kind is not reported again, whichever worker's request has it.

The time doubles with each report, up to ``LONGEST_SILENCE``.
"""
LONGEST_SILENCE = 600.0
"""A fault that lasts is reported again after this many seconds at the latest."""

_LOG = logging.getLogger(__name__)


class FaultFilter(logging.Filter):
    """Lets a line about a server's fault, of the kind ``record.fault``, pass once and then ever less often.

    A worker's lines pass the filter there and then that of the main process (``runs/executors.py``), where
    those of the other workers are known.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reported: dict[object, tuple[float, float]] = {}  # when, and the silence after it
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is shown."""
        kind, now = getattr(record, "fault", None), time.monotonic()
        with self._lock:
            last, silence = self._reported.get(kind, (-math.inf, 0.0))
            if now - last < silence:
                return False
            is_new = now - last >= 2 * LONGEST_SILENCE
            self._reported[kind] = now, SILENCE if is_new else min(2 * silence, LONGEST_SILENCE)
        return True


FAULTS = FaultFilter()
_LOG.addFilter(FAULTS)


def wait_to_retry(
    seconds: float, url: str, fault: str, *, report: bool, by_server: bool, stopped: threading.Event
) -> bool:
    """Wait before a request is sent again; returns whether ``stopped``, once it is set, ended the wait.

    Args:
        seconds: how long to wait.
        url: the URL of the request.
        fault: why the request waits; if it is the response's status, the text begins with the status.
        report: whether the wait is reported even if it is short.
        by_server: whether the server asked to wait this long.
        stopped: ends the waits of all requests to a server.
    """
    until = time.monotonic() + seconds
    while True:
        if report or seconds >= LONG_WAIT:
            _report(seconds, url, fault, by_server)
        if stopped.wait(min(seconds, LONGEST_SILENCE)):
            return True
        if (seconds := until - time.monotonic()) <= 0:
            return False


def _report(seconds: float, url: str, fault: str, by_server: bool) -> None:
    """Report why requests wait, once for all requests with the same fault."""
    kind = urlsplit(url).netloc, fault[:3], by_server and seconds >= LONG_WAIT  # a status has three digits
    what, why = redacted(one_line(fault[:100])), "as the server asks, " if by_server else ""
    line = "%s: %s; %strying again in %s"
    _LOG.warning(line, redacted(url), what, why, clock(seconds), extra={"fault": kind})


def seconds_asked(after: str) -> float:
    """The seconds that a Retry-After header asks to wait; the header holds their number or a date."""
    if after.isdecimal():
        return float(after)
    try:
        return max(0.0, parsedate_to_datetime(after).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0


def cause(error: BaseException) -> str:
    """Why no response came: the innermost error, as the libraries' messages around it name their objects."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return getattr(error, "strerror", None) or first_line(error)
