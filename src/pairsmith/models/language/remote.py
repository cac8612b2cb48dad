"""A language model behind an HTTP server of completions (``servers.py`` has the protocols), by its URL.

In ``http://HOST:PORT/v1#NAME``, the part after ``#`` is the model's name on the server. An API key is read
from the environment variable ``PAIRSMITH_API_KEY``. Responses are kept in a cache, so that a run that was
interrupted sends no request twice.
"""

import hashlib
import json
import os
import random
import re
import sqlite3
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Literal
from urllib.parse import urlsplit

from pairsmith.core.errors import MissingExtra, ModelError, RemoteError, counted, one_line, redacted
from pairsmith.core.progress import clock
from pairsmith.models.language.answers import InvalidAnswer, choices, parsed, string
from pairsmith.models.language.protocols import Prompt
from pairsmith.models.language.servers import T, server_of
from pairsmith.models.language.waits import LONGEST_WAIT, cause, seconds_asked, wait_to_retry

RemoteDecoding = Literal["plain", "certified", "reranked"]

KEY = "PAIRSMITH_API_KEY"
MOST_ATTEMPTS = 8
"""Largest number of times that a request is sent."""
WAIT = 0.5
"""Seconds before a retry, randomly lengthened and doubled each time; a longer Retry-After is respected."""
BUSY = (408, 409, 425, 429, 500, 502, 503, 504)
"""Status codes of responses after which a request is retried."""
RESPONSE_SECONDS = 120.0
"""Timeout of a response in seconds."""
_TOO_LONG = re.compile(
    r"context[ _]?(length|size|window)|maximum (model|allowed) length|max_new_tokens.{0,20} must be",
    re.IGNORECASE,
)
"""Matches the messages of servers that refuse a prompt because it is too long for the model."""

_SPECIAL = re.compile(r"<[^<>\s]+>|\[EOS\]|")
_HALF_CHARACTERS = re.compile("[\ud800-\udfff]")


def is_remote(name: str) -> bool:
    """Whether a model's name is the URL of a server."""
    return name.startswith(("http://", "https://"))


def remote_revision(name: str) -> str:
    """The revision of a server's model: only its name is known."""
    return f"remote:{redacted(name)}"


class RemoteModel:
    """A model on a server.

    Args:
        name: the URL of the server and the model, as in the module's docstring.
        cache: a file in which responses are kept; None: they are not kept.
        way: how texts are steered (see ``remote_decoder``). ``certified`` needs a server that takes
            prompts as tokens and has ``/tokenize`` and ``/detokenize``, such as vLLM and llama.cpp's.
        at_once: number of groups that are decoded at the same time.
        listed: number of likeliest tokens to request, for ``certified``.

    While the event ``stopped`` is set, no requests are sent, and those that wait for a retry give up.
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
        self.stopped = threading.Event()
        self._valid: set[tuple[str, ...]] = set()  # the kinds of requests that had a valid answer
        self.used = Used()
        if key := os.environ.get(KEY):
            self._session.headers["Authorization"] = f"Bearer {key}"
        self._cache = _Cache(cache) if cache else None
        self.way, self.at_once, self.listed = way, at_once, listed
        self.server = server_of(self.ask, self._properties(), by_tokens=way == "certified")
        self.context = self.server.context
        # The methods that ``SteerableModel`` also has.
        self.encode, self.encode_chat = self.server.encode, self.server.encode_chat
        self.decode = self.server.decode
        self.text_of = lru_cache(maxsize=65536)(lambda token: self.decode([token]))

    def __repr__(self) -> str:
        """The model's name, without secrets in its address, and how texts are steered."""
        return f"{type(self).__name__}({redacted(self.name)!r}, way={self.way!r})"

    def _properties(self) -> Any:
        """The server's answer to ``/props``, which llama.cpp's server gives; None without one.

        Raises a ``RemoteError`` if there is no server at all.
        """
        try:
            self._session.get(f"{self._base}/models", timeout=min(RESPONSE_SECONDS, 10))
            answer = self._session.get(
                f"{self._base.removesuffix('/v1')}/props", timeout=min(RESPONSE_SECONDS, 10)
            )
        except self._errors as error:
            self._session.close()
            reason = redacted(cause(error))
            raise RemoteError(f"{redacted(self._base)}: no server answers there ({reason})") from error
        try:
            return answer.json() if answer.ok else None
        except ValueError:
            return None

    def close(self) -> None:
        """Close the connections and the cache."""
        self._session.close()
        if self._cache:
            self._cache.close()

    def ends(self, token: int) -> bool:
        """Whether a token looks like a special token, which ends the text."""
        # Some tokenizers drop a space at a text's beginning, so that the token of a space alone has no text.
        text = self.text_of(token) or self.decode([token, token])
        return _SPECIAL.fullmatch(text) is not None

    def continued(
        self, prompt: Prompt, seed: int, top_k: int, top_p: float, tokens: int, stop: str
    ) -> tuple[str, Literal["stop", "end", "length"]]:
        """A text drawn by the server, and how it ended."""
        drawn = {"seed": seed, "temperature": 1.0, "top_p": top_p, "max_tokens": tokens, "stop": [stop]}
        body = {**self.server.drawing(prompt, top_k), **drawn}

        def read(answer: dict[str, Any]) -> tuple[str, Literal["stop", "end", "length"]]:
            (choice,) = choices(answer, 1)
            text = _HALF_CHARACTERS.sub("\ufffd", string(choice, "text")).partition(stop)[0]
            if string(choice, "finish_reason") != "stop":
                return text, "length"
            # Some servers report which stop string matched, if any.
            return text, "end" if choice.get("stop_reason", stop) is None else "stop"

        return self.ask("v1/completions", body, read)

    def ask(self, path: str, body: dict[str, Any], read: Callable[[dict[str, Any]], T]) -> T:
        """Send a request until ``read`` accepts an answer, and return what ``read`` returns.

        ``read`` raises ``InvalidAnswer`` if the answer lacks something, or ``ModelError`` if no answer of
        this server will have it. Only accepted answers are cached. If there is one in the cache, nothing is
        sent.
        """
        base = self._base if path.startswith("v1/") else self._base.removesuffix("/v1")
        url = f"{base}/{path.removeprefix('v1/')}"
        body = {"model": self._served, **body}
        name = hashlib.sha256(json.dumps([url, body], sort_keys=True).encode()).hexdigest()
        kind = (path, *sorted(body))
        if self._cache and (kept := self._cache.get(name)) is not None:
            with suppress(InvalidAnswer, ModelError):  # older versions kept any answer
                value = read(parsed(kept))
                self._valid.add(kind)
                return value
        fault = "stopped"
        for tries in range(1, MOST_ATTEMPTS + 1):
            if self.stopped.is_set():
                break
            least_wait = 0.0  # seconds
            try:
                response = self._response(url, body)
                return self._accepted(response, read, kind, name)
            except _Unanswered as unanswered:
                fault, least_wait = str(unanswered), unanswered.least_wait
            except InvalidAnswer as invalid:
                if invalid.advice and tries >= invalid.tries and kind not in self._valid:
                    raise ModelError(
                        f"{redacted(self._base)}: the server gives {invalid}, which "
                        f"--steering {self.way} needs; {invalid.advice}"
                    ) from None
                fault = f"{invalid}: {response}"
            if least_wait > LONGEST_WAIT:
                fault = f"it asks to wait {clock(least_wait)}: {fault}"
                break
            # A random factor keeps many clients from retrying in step.
            pause = max(least_wait, WAIT * 2 ** (tries - 1) * (1 + random.random()))
            if tries == MOST_ATTEMPTS:
                break
            # The first faults are not reported, as they may pass quickly.
            report, by_server = tries > 2, 0 < least_wait == pause
            if wait_to_retry(pause, url, fault, report=report, by_server=by_server, stopped=self.stopped):
                break
        raise RemoteError(
            f"{redacted(url)}: no usable answer after {counted(tries, 'tries')} "
            f"({redacted(one_line(fault[:200]))}); "
            "finished work is saved: run the same command again to continue"
        )

    def _accepted(
        self, response: str, read: Callable[[dict[str, Any]], T], kind: tuple[str, ...], name: str
    ) -> T:
        """What ``read`` returns for a response; if it raises nothing, the response is cached and counted."""
        answer = parsed(response)
        value = read(answer)
        self._valid.add(kind)
        if self._cache:
            self._cache.put(name, response)
        self.used.count(answer.get("usage"))
        return value

    def _response(self, url: str, body: dict[str, Any]) -> str:
        """The text of the response to a request; raises ``_Unanswered`` if the request has to be repeated."""
        try:
            response = self._session.post(url, json=body, timeout=RESPONSE_SECONDS)
        except self._errors as error:
            raise _Unanswered(cause(error)) from error
        response.encoding = "utf-8"  # the encoding of JSON; without a header it would be guessed
        if response.status_code in BUSY:
            least_wait = seconds_asked(response.headers.get("Retry-After", ""))
            raise _Unanswered(f"{response.status_code} {response.text}", least_wait)
        if response.status_code >= 400:
            said = redacted(one_line(response.text[:300]))
            message = f"{redacted(url)} refuses the request: {response.status_code} {said}"
            too_long = response.status_code == 413 or _TOO_LONG.search(response.text)
            raise PromptLengthError(message) if too_long else ModelError(message)
        return str(response.text)


class PromptLengthError(ModelError):
    """The server refuses a request as its prompt, with the tokens to write, exceeds the model's context."""


class _Unanswered(Exception):  # noqa: N818 - named for what it is, not for a failure of this program
    """No answer came, or the server is busy: the reason, and the least number of seconds to wait."""

    def __init__(self, reason: str, least_wait: float = 0.0) -> None:
        super().__init__(reason)
        self.least_wait = least_wait


class Used:
    """The numbers of tokens that the server reports to have read and written; 0 if it reports nothing."""

    def __init__(self) -> None:
        self.read = self.written = 0
        self._lock = threading.Lock()

    def count(self, usage: Any) -> None:
        """Add the numbers of one response, which are under its key ``usage``."""
        if isinstance(usage, dict):
            with self._lock:
                self.read += _count(usage.get("prompt_tokens"))
                self.written += _count(usage.get("completion_tokens"))


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


class _Cache:
    """Responses by the hash of their request, in a file that several threads and processes share."""

    def __init__(self, path: str) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, timeout=60, isolation_level=None, check_same_thread=False)
        # A worker's model is dropped without ``close``; Python 3.13 and later warn of a connection left open.
        weakref.finalize(self, self._database.close)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("CREATE TABLE IF NOT EXISTS answers (name TEXT PRIMARY KEY, answer TEXT)")

    def get(self, name: str) -> str | None:
        with self._lock:
            row = self._database.execute("SELECT answer FROM answers WHERE name = ?", (name,)).fetchone()
        return None if row is None else row[0]

    def put(self, name: str, answer: str) -> None:
        with self._lock:
            self._database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?)", (name, answer))

    def close(self) -> None:
        with self._lock:
            self._database.close()
