"""Ctrl-C and SIGTERM during a training: it stops after the step that it is making, and keeps that step."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SAID = b"\nstopping after this step, which is kept; a second Ctrl-C stops at once\n"


@contextmanager
def stop_signals(deferred: bool) -> Iterator[list[int]]:
    """The numbers of the signals that asked the training inside the context to stop; at first there are none.

    The first one stops the process after the context, a second one at once. If not ``deferred``, or outside
    the main thread, signals do what they usually do; so do those that the process has no handler for.
    """
    received: list[int] = []
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}
    if deferred and threading.current_thread() is threading.main_thread():
        for stop in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(stop)):
                handlers[stop] = handler

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            handlers[number](number, frame)
        else:
            os.write(2, _SAID)  # as printing may be what the signal interrupted

    try:
        for number in handlers:
            signal.signal(number, receive)
        yield received
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received:
        handlers[received[0]](received[0], None)
        raise KeyboardInterrupt  # for a handler that returns
