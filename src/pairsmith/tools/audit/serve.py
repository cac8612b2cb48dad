"""Serves the labelling page on this machine while an annotator works."""

import os
import secrets
import socket
from collections.abc import Callable

import uvicorn

from pairsmith.core.errors import SettingsError
from pairsmith.tools.audit.answers import Answers
from pairsmith.tools.audit.app import Session, make_app
from pairsmith.tools.audit.rows import Audit

_HOST = "127.0.0.1"


def serve(
    audit: Audit,
    answers: Answers,
    *,
    annotator: str,
    seed: int,
    port: int,
    link: Callable[[str], None],
    say: Callable[[str], None],
) -> None:
    """Serve the page to one annotator until they say that they are done.

    Args:
        audit: the rows and the labels to choose from.
        answers: where the labels are stored.
        annotator: the annotator's name.
        seed: seed of the order of rows.
        port: port to listen on, on the loopback interface only; 0 for any free one.
        link: called with the address and its token, which only the user who started the program may see.
        say: called with a line on how to end the audit.
    """
    with socket.socket() as listening:
        if os.name == "posix":  # allow a port whose last connections are still closing
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_HOST, port))
            listening.listen()  # so that an early visitor waits and is not refused
        except OSError as error:
            raise SettingsError(f"--port {port}: {error.strerror}; give another, or 0 for any") from error
        token = secrets.token_urlsafe(24)
        server: uvicorn.Server | None = None

        def finished() -> None:
            if server is not None:
                server.should_exit = True

        app = make_app(Session(audit, answers, annotator, seed, token, finished))
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", server_header=False)
        )
        # Not with ``say``, which removes tokens: the page can only be opened with this one.
        link(f"open http://{_HOST}:{listening.getsockname()[1]}/?token={token}")
        say("Ctrl-C ends the audit; labels are saved one by one")
        server.run(sockets=[listening])
