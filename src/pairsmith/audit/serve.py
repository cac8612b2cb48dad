"""The page on this machine, for as long as somebody labels."""

import os
import secrets
import socket
from collections.abc import Callable

import uvicorn

from pairsmith.audit.answers import Answers
from pairsmith.audit.app import Session, make_app
from pairsmith.audit.rows import Audit
from pairsmith.errors import SettingsError

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
    """Answer one annotator's browser until they say that they are done.

    Args:
        audit: what there is to label.
        answers: where labels go.
        annotator: who labels.
        seed: of the order of rows.
        port: to listen at, on the loopback alone; 0 takes any that is free.
        link: shows the address with its token to the person who started the program, and to nobody else.
        say: hears how the audit ends.

    Raises:
        KeyboardInterrupt: the program is stopped; all labels are on the disk.
        SettingsError: the port is taken.
    """
    with socket.socket() as listening:
        if os.name == "posix":  # a port whose last connections are ending can be had again
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_HOST, port))
            listening.listen()  # who opens the address at once waits and is not turned away
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
        # Not by ``say``, which takes tokens out: the page can only be opened with this one.
        link(f"open http://{_HOST}:{listening.getsockname()[1]}/?token={token}")
        say("Ctrl-C ends the audit; labels are saved one by one")
        server.run(sockets=[listening])
