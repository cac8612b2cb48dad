"""The web page on which an annotator labels rows, and the server that runs while they work.

Every request needs the secret token and must use a host name of this machine. The page may load and run only
its own two files. Texts are sent to the browser as JSON and shown as plain text.
"""

import os
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.middleware.trustedhost import TrustedHostMiddleware

from pairsmith.core.errors import SettingsError, StorageError
from pairsmith.core.progress import Progress
from pairsmith.tools.audit.answers import AnnotatorAnswer, AnnotatorAnswers
from pairsmith.tools.audit.rows import Audit, order_of
from pairsmith.tools.report.parts import column_words, shown_text
from pairsmith.tools.settings import AuditSettings

_HOST = "127.0.0.1"
LONGEST_TEXT = 20_000
"""Longest text that is shown, in characters."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_TYPES = {"js": "text/javascript", "css": "text/css"}


class LabelChoice(BaseModel):
    """The body of a request that gives a row a label."""

    model_config = ConfigDict(extra="forbid")

    row: int = Field(ge=0, description="The index of the row in the audit; its id could tell the label.")
    place: int = Field(ge=0, description="The index of the label, from 0.")


@dataclass(frozen=True, slots=True)
class AnnotationSession:
    """One annotator's work on an audit.

    Attributes:
        audit: the rows and the labels to choose from.
        answers: the answers of all annotators; new answers are added to it.
        annotator: name of the annotator.
        seed: decides the order in which the annotator sees the rows.
        token: the secret that every request has to carry.
        finished: called when the annotator chooses Finish; returns what the page then shows (see
            ``closing``).
    """

    audit: Audit
    answers: AnnotatorAnswers
    annotator: str
    seed: int
    token: str
    finished: Callable[[], Mapping[str, Any]]

    def state(self, row: int | None = None, **more: Any) -> dict[str, Any]:
        """What the page shows: a row, and how many rows are labelled.

        ``row`` is the row's index in the audit; None takes the annotator's next unlabelled row. ``more``
        fields are added to the result.
        """
        labelled = self.answers.of(self.annotator)
        order = order_of(self.audit, self.annotator, self.seed)
        unlabelled = [place for place in order if self.audit.rows[place].id not in labelled]
        if row is None and unlabelled:
            row = unlabelled[0]
        texts = {} if row is None else self.audit.rows[row].texts
        return {
            "row": row,
            "question": shown_text(self.audit.question, 1_000),
            "texts": [[column_words(name), shown_text(text, LONGEST_TEXT)] for name, text in texts.items()],
            "labels": [shown_text(label) for label in self.audit.labels],
            "meanings": [shown_text(self.audit.meanings.get(label, ""), 300) for label in self.audit.labels],
            "done": len(order) - len(unlabelled),
            "total": len(order),
            "annotator": self.annotator,
            **more,
        }


def make_app(session: AnnotationSession) -> FastAPI:
    """The web application of a session; its only state is ``session.answers``."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[_HOST, "localhost"])
    rows, labels = session.audit.rows, session.audit.labels

    @app.middleware("http")
    async def guarded(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        token = request.query_params.get("token", "")
        if secrets.compare_digest(token.encode(), session.token.encode()):
            response = await call(request)
        else:
            text = "The token is missing from the address: open the whole address that the program printed.\n"
            response = Response(text, 403, media_type="text/plain")
        response.headers.update(_HEADERS)
        return response

    @app.exception_handler(StorageError)
    def not_written(_: Request, error: StorageError) -> Response:
        return Response(str(error), 507, headers=_HEADERS, media_type="text/plain")

    @app.get("/")
    def page() -> HTMLResponse:
        return HTMLResponse(_file("audit.html").replace("TOKEN", session.token))

    @app.get("/audit.{kind}")
    def file(kind: str) -> Response:
        if kind not in _TYPES:
            raise HTTPException(404)
        return Response(_file(f"audit.{kind}"), media_type=_TYPES[kind])

    @app.get("/state")
    def state() -> JSONResponse:
        return JSONResponse(session.state())

    @app.post("/answer")
    def give(choice: LabelChoice) -> JSONResponse:
        if choice.row >= len(rows) or choice.place >= len(labels):
            raise HTTPException(422, "there is no such row or label")
        answer = AnnotatorAnswer(session.annotator, rows[choice.row].id, labels[choice.place])
        return JSONResponse(session.state(counted=session.answers.give(answer)))

    @app.post("/back")
    def back() -> JSONResponse:
        taken_back = session.answers.take_back(session.annotator)
        if taken_back is None:
            return JSONResponse(session.state(undone=None))
        row = next(place for place, candidate in enumerate(rows) if candidate.id == taken_back.row)
        return JSONResponse(session.state(row, undone=labels.index(str(taken_back.label))))

    @app.post("/finish")
    def finish() -> JSONResponse:
        return JSONResponse(session.finished())

    return app


def _file(name: str) -> str:
    return resources.files("pairsmith.tools.audit").joinpath(name).read_text(encoding="utf-8")


def serve(
    audit: Audit,
    answers: AnnotatorAnswers,
    settings: AuditSettings,
    progress: Progress,
    finish: Callable[[], Mapping[str, Any]],
) -> None:
    """Serve the page to one annotator, on the loopback interface only, until they choose Finish.

    Then ``finish`` writes the results, the page shows what it returns, and the server stops.
    """
    with socket.socket() as listening:
        if os.name == "posix":  # allow a port whose last connections are still closing
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_HOST, settings.port))
            listening.listen()  # so that an early visitor waits and is not refused
        except OSError as error:
            raise SettingsError(
                f"--port {settings.port}: {error.strerror}; give another port, or 0 for any free one"
            ) from error
        token = secrets.token_urlsafe(24)

        writing = threading.Lock()  # a second click must not write the results at the same time

        def finished() -> Mapping[str, Any]:
            with writing:
                ending = finish()
            server.should_exit = True
            return ending

        app = make_app(AnnotationSession(audit, answers, settings.annotator, settings.seed, token, finished))
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", server_header=False)
        )
        # Not with ``say``, which removes tokens: the page can only be opened with this token.
        progress.link(f"open http://{_HOST}:{listening.getsockname()[1]}/?token={token}")
        progress.say(
            "label the rows on that page and choose Finish at the end; Ctrl-C stops earlier, and every label "
            "given so far is kept"
        )
        server.run(sockets=[listening])
