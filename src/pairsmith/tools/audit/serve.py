"""Serves the labelling page on this machine while an annotator works."""

import os
import secrets
import socket

import uvicorn

from pairsmith.core.errors import SettingsError
from pairsmith.core.progress import Progress
from pairsmith.tools.audit.answers import Answers
from pairsmith.tools.audit.app import Session, make_app
from pairsmith.tools.audit.rows import Audit
from pairsmith.tools.settings import AuditSettings

_HOST = "127.0.0.1"


def serve(audit: Audit, answers: Answers, settings: AuditSettings, progress: Progress) -> None:
    """Serve the page to one annotator, on the loopback interface only, until they say that they are done."""
    with socket.socket() as listening:
        if os.name == "posix":  # allow a port whose last connections are still closing
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((_HOST, settings.port))
            listening.listen()  # so that an early visitor waits and is not refused
        except OSError as error:
            raise SettingsError(
                f"--port {settings.port}: {error.strerror}; give another, or 0 for any"
            ) from error
        token = secrets.token_urlsafe(24)

        def finished() -> None:
            server.should_exit = True

        app = make_app(Session(audit, answers, settings.annotator, settings.seed, token, finished))
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="error", access_log=False, lifespan="off", server_header=False)
        )
        # Not with ``say``, which removes tokens: the page can only be opened with this one.
        progress.link(f"open http://{_HOST}:{listening.getsockname()[1]}/?token={token}")
        progress.say("Ctrl-C ends the audit; labels are saved one by one")
        server.run(sockets=[listening])
