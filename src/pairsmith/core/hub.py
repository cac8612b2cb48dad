"""Checks once whether the Hugging Face Hub can be reached, so that no library retries in vain.

Without a connection the Hub's clients retry for most of a minute. Inside ``hub_or_cache`` they look into
their caches at once if the Hub did not answer.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pairsmith.core.errors import first_line

HUB_SECONDS = 3.0
"""How long the Hub has to answer."""

_VALID = 60.0
"""For how many seconds an answer counts; a notebook may live longer than a lost connection."""

_ALONE = threading.RLock()

_answer: tuple[float, str] | None = None


def why_unreachable() -> str:
    """Why the Hub cannot be reached, in a few words; empty if it can."""
    global _answer
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    now = time.monotonic()
    if _answer is None or now - _answer[0] > _VALID:
        _answer = now, _ask(constants.ENDPOINT)
    return _answer[1]


def only_cache() -> str:
    """The part of a message which says that the Hub cannot be reached, and why; empty if it can."""
    why = why_unreachable()
    return f"; the Hub cannot be reached ({why}), so only what was fetched before can be used" if why else ""


def _ask(address: str) -> str:
    import huggingface_hub

    client: Any = huggingface_hub.get_session()
    try:
        client.head(address, timeout=HUB_SECONDS)  # any answer will do
    except Exception as error:  # the client's errors have no base class that its versions share
        return first_line(error)
    return ""


@contextmanager
def hub_or_cache() -> Iterator[None]:
    """Let the libraries of the Hub look into their caches only, inside the context, if it is unreachable."""
    if not why_unreachable():
        yield
        return
    import datasets
    from huggingface_hub import constants

    owners: list[Any] = [constants, getattr(datasets, "config", constants)]
    with _ALONE:  # or another thread would take over these values as the user's
        before = [owner.HF_HUB_OFFLINE for owner in owners]
        try:
            for owner in owners:
                owner.HF_HUB_OFFLINE = True
            yield
        finally:
            for owner, value in zip(owners, before, strict=True):
                owner.HF_HUB_OFFLINE = value
