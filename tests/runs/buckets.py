"""An S3 server of this process."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import s3fs
from moto.server import ThreadedMotoServer

from pairsmith.core.paths import place
from pairsmith.runs import lease, lock


@contextmanager
def serving() -> Iterator[str]:
    """A server; its address."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


@contextmanager
def connected(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    """Have s3:// lead to the server at ``address``; leases that are held at the end are given back."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setattr(lease, "_SETTLE_SECONDS", 0.0)
    s3fs.S3FileSystem.clear_instance_cache()
    yield s3fs.S3FileSystem()
    for folder in list(lock._leases):
        lock.release(place(folder))
    s3fs.S3FileSystem.clear_instance_cache()
