"""Ctrl-C and SIGTERM where they must wait, as for the end of a training's step or of an import."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType


@contextmanager
def stop_signals(deferred: bool, message: str) -> Iterator[list[int]]:
    """Yield a list, at first empty, of the signals that asked the work inside the context to stop.

    The first signal stops the process when the context ends, a second one at once. Signals have their usual
    effect if not ``deferred``, outside the main thread, and if the process has no handler for them.
    ``message`` is written to standard error at the first signal.
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
            os.write(2, f"\n{message}\n".encode())  # as printing may be what the signal interrupted

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


def import_whole(*modules: str) -> None:
    """Import modules; Ctrl-C and a notebook's stop button wait for the end of the imports.

    Libraries such as torch and sympy cannot be imported again after half an import, so that the program or
    notebook would have to be restarted.
    """
    if not sys.modules.keys() >= {*modules}:
        with stop_signals(deferred=True, message="stopping when the libraries are imported"):
            for module in sorted(modules):
                import_module(module)
