"""A Hub for tests: keeps what one commit sends, and refuses on demand. All files travel inside the commit."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import pytest

TOKEN = "hf_right0000000000"


class Hub(ThreadingHTTPServer):
    """``files`` lie in the repository, ``seen`` are the requests; ``refuse`` is the status of every answer."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.made: dict[str, object] = {}
        self.seen: list[str] = []
        self.commits: list[str] = []
        self.refuse = 0
        self.says = "no"
        self.private = False

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving() -> Iterator[Hub]:
    hub = Hub()
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()


@contextmanager
def logged_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub on this machine, and a token that it knows."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", "/nowhere")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        yield hub
        huggingface_hub.close_session()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        hub = self.server
        hub.seen.append(f"GET {self.path}")
        if self._refused():
            return
        if "/tree/" in self.path:
            self._answer(200, [{"type": "file", "path": name, "size": 1, "oid": "0"} for name in hub.files])
        else:
            self._answer(
                200, {"id": "anna/x", "private": hub.private, "siblings": [], "tags": [], "sha": "0" * 40}
            )

    def do_POST(self) -> None:
        hub = self.server
        hub.seen.append(f"POST {self.path}")
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(iter(self._chunk, b""))
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self._refused():
            return
        if self.path.endswith("/repos/create"):
            hub.made = json.loads(body)
            self._answer(200, {"url": f"{hub.address}/anna/x"})
        elif self.path.endswith("/validate-yaml"):
            self._answer(200, {"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            files = [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]
            self._answer(200, {"files": files})
        elif "/branch/" in self.path:
            self._answer(200, {})
        elif "/commit/" in self.path:
            hub.commits.append(self.path)
            for line in body.splitlines():
                operation = json.loads(line)
                value = operation["value"]
                if operation["key"] == "file":
                    hub.files[value["path"]] = base64.b64decode(value["content"])
                elif operation["key"] == "deletedFile":
                    del hub.files[value["path"]]
            self._answer(200, {"commitUrl": f"{hub.address}/anna/x/commit/1", "commitOid": "1" * 40})
        else:
            self._answer(404, {"error": self.path})

    def _refused(self) -> bool:
        hub = self.server
        status = hub.refuse or (0 if self.headers.get("Authorization") == f"Bearer {TOKEN}" else 401)
        if status:
            self._answer(status, {"error": hub.says})
        return bool(status)

    def _chunk(self) -> bytes:
        size = int(self.rfile.readline(), 16)
        data = self.rfile.read(size)
        self.rfile.readline()
        return data

    def _answer(self, code: int, value: object) -> None:
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
