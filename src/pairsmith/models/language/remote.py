"""A language model behind a server of completions (``servers.py`` has the forms it may speak), by its URL.

``http://HOST:PORT/v1#NAME``: the part after ``#`` is the model's name on the server. An API key is taken
from the environment variable ``PAIRSMITH_API_KEY``. Responses are kept in a cache, so that an interrupted
run repeats no request.
"""

import hashlib
import json
import logging
import os
import random
import re
import sqlite3
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

from pairsmith.core.errors import MissingExtra, ModelError, RemoteError, first_line, redacted
from pairsmith.models.language.protocols import Prompt
from pairsmith.models.language.servers import server_of

RemoteDecoding = Literal["plain", "certified", "reranked"]

KEY = "PAIRSMITH_API_KEY"
MOST_ATTEMPTS = 8
"""The most times that a request is sent."""
WAIT = 0.5
"""Seconds before a retry, randomly lengthened and doubled each time; a longer Retry-After is respected."""
BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
"""Status codes of responses after which a request is retried."""
RESPONSE_SECONDS = 120.0
"""How many seconds a response may take."""

_LOG = logging.getLogger(__name__)
_SPECIAL = re.compile(r"<[^<>\s]+>|\[EOS\]|")


def is_remote(name: str) -> bool:
    """Whether a model's name is the URL of a server."""
    return name.startswith(("http://", "https://"))


def remote_revision(name: str) -> str:
    """The revision of a server's model: only its name is known."""
    return f"remote:{redacted(name)}"


class RemoteModel:
    """A model on a server.

    Args:
        name: its URL, as in the module's docstring.
        cache: a file that keeps responses, if any.
        way: how texts are steered (see ``remote_decoder``). ``certified`` needs prompts in the model's own
            tokens (``/tokenize`` and ``/detokenize``, as vLLM and llama.cpp's server have them).
        at_once: groups to decode at the same time.
        listed: how many likeliest tokens to request, for ``certified``.
    """

    def __init__(
        self,
        name: str,
        cache: str | None = None,
        *,
        way: RemoteDecoding = "certified",
        at_once: int = 16,
        listed: int = 20,
    ) -> None:
        try:
            import requests
            from requests.adapters import HTTPAdapter
        except ImportError:
            raise MissingExtra("requests", "remote") from None
        self.name = name
        self.revision = remote_revision(name)
        self._base, _, self._served = name.partition("#")
        if not self._served or not urlsplit(self._base).hostname:
            raise ModelError(
                f"model {redacted(name)}: add the server's name for the model, as in http://HOST:PORT/v1#NAME"
            )
        self._base = self._base.rstrip("/")
        self._errors = requests.RequestException
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, HTTPAdapter(pool_maxsize=at_once))
        self._stopped = threading.Event()
        self.used = Used()
        if key := os.environ.get(KEY):
            self._session.headers["Authorization"] = f"Bearer {key}"
        self._cache = _Cache(cache) if cache else None
        self.way, self.at_once, self.listed = way, at_once, listed
        self._server = server_of(self.ask, self._properties(), by_tokens=way == "certified")
        self.form = self._server.form
        self.context = self._server.context
        self.text_of = lru_cache(maxsize=65536)(lambda token: self.decode([token]))

    def _properties(self) -> Any:
        """What the server says of itself at ``/props``, as llama.cpp's does; None where nothing.

        So it is also found at once whether there is a server.
        """
        try:
            self._session.get(f"{self._base}/models", timeout=min(RESPONSE_SECONDS, 10))
            answer = self._session.get(
                f"{self._base.removesuffix('/v1')}/props", timeout=min(RESPONSE_SECONDS, 10)
            )
        except self._errors as error:
            self._session.close()
            reason = first_line(error)
            raise RemoteError(
                f"{redacted(self._base)}: no server answers there ({redacted(reason)})"
            ) from error
        try:
            return answer.json() if answer.ok else None
        except ValueError:
            return None

    def close(self) -> None:
        """Close the connections and the cache."""
        self._session.close()
        if self._cache:
            self._cache.close()

    def encode(self, text: str) -> list[int]:
        """The tokens of a prompt."""
        return self._server.encode(text)

    def encode_chat(self, message: str, answer: str) -> list[int]:
        """The tokens of a chat in the server's template, ending with the given beginning of the answer."""
        return self._server.encode_chat(message, answer)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self._server.decode(tokens)

    def ends(self, token: int) -> bool:
        """Whether a token looks like a special token, which ends the text."""
        return _SPECIAL.fullmatch(self.text_of(token)) is not None

    def likeliest(self, prompts: Sequence[Prompt], count: int) -> list[dict[int, float]]:
        """The likeliest next tokens of prompts and their log-probabilities, up to ``count`` each."""
        return self._server.likeliest(prompts, count)

    def log_probabilities(self, prompts: Sequence[Prompt], text: str) -> list[float]:
        """The log-probability of ``text`` after each prompt."""
        return self._server.log_probabilities(prompts, text)

    def continued(
        self, prompt: Prompt, seed: int, top_k: int, top_p: float, tokens: int, stop: str
    ) -> tuple[str, Literal["stop", "end", "length"]]:
        """A text drawn by the server, and how it ended."""
        drawn = {"seed": seed, "temperature": 1.0, "top_p": top_p, "max_tokens": tokens, "stop": [stop]}
        body = {**self._server.drawing(prompt, top_k), **drawn}
        choice = self.ask("v1/completions", body)["choices"][0]
        ended: Literal["stop", "end", "length"] = "stop" if choice["finish_reason"] == "stop" else "length"
        if ended == "stop" and choice.get("stop_reason", stop) is None:
            ended = "end"  # some servers report which stop string matched, if any
        return str(choice["text"]).partition(stop)[0], ended

    def ask(self, path: str, body: dict[str, Any]) -> Any:
        """Send a request, with retries where they may help; a cached response is returned without asking."""
        base = self._base if path.startswith("v1/") else self._base.removesuffix("/v1")
        url = f"{base}/{path.removeprefix('v1/')}"
        body = {"model": self._served, **body}
        name = hashlib.sha256(json.dumps([url, body], sort_keys=True).encode()).hexdigest()
        if self._cache and (kept := self._cache.get(name)) is not None:
            return json.loads(kept)
        for number in range(MOST_ATTEMPTS):
            text, pause = self._answer(url, path, body)
            if pause is None:
                if self._cache:
                    self._cache.put(name, text)
                answer = json.loads(text)
                self.used.count(answer.get("usage"))
                return answer
            # A random factor keeps many clients from retrying in step.
            pause = max(pause, WAIT * 2**number * (1 + random.random()))
            if number == MOST_ATTEMPTS - 1 or self._stopped.is_set():
                break
            if number >= 2:  # faults that pass quickly are not reported
                _LOG.warning("%s: %s; trying again in %.0f s", redacted(url), redacted(text[:100]), pause)
            self._stopped.wait(pause)
        raise RemoteError(
            f"{redacted(url)}: no usable answer after {number + 1} tries ({redacted(text[:200])}); "
            "finished work is saved: run the same command again to continue"
        )

    def _answer(self, url: str, path: str, body: dict[str, Any]) -> tuple[str, float | None]:
        """The response to one request and None, or what went wrong and the least time to wait."""
        try:
            response = self._session.post(url, json=body, timeout=RESPONSE_SECONDS)
        except self._errors as error:
            return first_line(error), 0.0
        if response.status_code in BUSY:
            delay = response.headers.get("Retry-After", "")
            return f"{response.status_code} {response.text}", float(delay) if delay.isdigit() else 0.0
        if response.status_code >= 400:
            said = redacted(response.text[:300])
            raise ModelError(f"{redacted(url)} refuses the request: {response.status_code} {said}")
        try:
            answer = json.loads(response.text)
        except ValueError:
            return f"not JSON: {response.text}", 0.0
        if not isinstance(answer, dict) or (path.endswith("completions") and not answer.get("choices")):
            return f"no choices: {response.text}", 0.0
        return response.text, None

    def stop(self) -> None:
        """Make requests that wait for a retry give up."""
        self._stopped.set()


class Used:
    """The tokens that a server says it has read and written for us; both are 0 where it says nothing."""

    def __init__(self) -> None:
        self.read = self.written = 0
        self._lock = threading.Lock()

    def count(self, usage: Any) -> None:
        """Add what one response says under ``usage``."""
        if isinstance(usage, dict):
            with self._lock:
                self.read += int(usage.get("prompt_tokens") or 0)
                self.written += int(usage.get("completion_tokens") or 0)


class _Cache:
    """Responses by the hash of their request, in a file that several threads and processes share."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("CREATE TABLE IF NOT EXISTS answers (name TEXT PRIMARY KEY, answer TEXT)")

    def get(self, name: str) -> str | None:
        with self._lock:
            row = self._database.execute("SELECT answer FROM answers WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, name: str, answer: str) -> None:
        with self._lock:
            self._database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (name, answer))

    def close(self) -> None:
        with self._lock:
            self._database.close()
