"""Checks whether the Hugging Face Hub can be reached, so that libraries do not retry without a connection.

Without a connection the Hub's clients retry for most of a minute. Inside the context ``hub_or_cache`` they
use only their caches if the Hub did not answer.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pairsmith.core.errors import first_line

HUB_SECONDS = 3.0
"""Seconds within which the Hub has to answer."""

_VALID = 60.0
"""Seconds after which the connection is checked again, as it may return while a notebook runs."""

_ALONE = threading.RLock()

_answer: tuple[float, str] | None = None


def why_unreachable() -> str:
    """The reason why the Hub cannot be reached, in a few words; empty if it can be reached."""
    global _answer
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    now = time.monotonic()
    if _answer is None or now - _answer[0] > _VALID:
        _answer = now, _ask(constants.ENDPOINT)
    return _answer[1]


def unreachable_hint() -> str:
    """A part of a message: that the Hub cannot be reached, and the reason; empty if it can be reached."""
    why = why_unreachable()
    return f"; the Hub cannot be reached ({why}), so only what was fetched before can be used" if why else ""


def _ask(address: str) -> str:
    import huggingface_hub

    client: Any = huggingface_hub.get_session()
    try:
        client.head(address, timeout=HUB_SECONDS)  # any answer shows that the Hub can be reached
    except Exception as error:  # the base class of the client's errors depends on its version
        return first_line(error)
    return ""


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """A context in which the Hub's libraries use only their caches if the Hub cannot be reached."""
    if not why_unreachable():
        yield
        return
    import datasets
    from huggingface_hub import constants

    owners: list[Any] = [constants, getattr(datasets, "config", constants)]
    with _ALONE:  # without the lock, another thread would save and restore these values as the user's
        before = [owner.HF_HUB_OFFLINE for owner in owners]
        try:
            for owner in owners:
                owner.HF_HUB_OFFLINE = True
            yield
        finally:
            for owner, value in zip(owners, before, strict=True):
                owner.HF_HUB_OFFLINE = value
