"""One call at a time on a model: a decoding session keeps its state in the model's caches."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any
from weakref import WeakValueDictionary

_LOCKS: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""The lock of each model in use, by the model's ``id``; a lock lives as long as a call holds or awaits it."""
_GUARD = Lock()


@contextmanager
def locked(model: object) -> Iterator[None]:
    """Wait until no other thread uses ``model``, and let none use it in this context.

    The same thread may enter again.
    """
    with _GUARD:
        lock = _LOCKS.setdefault(id(model), RLock())
    with lock:
        yield
