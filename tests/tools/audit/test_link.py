"""The address that the real command prints opens the page, and nothing else does."""

import json
import os
import queue
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest
from tests.tools.report.test_rows import folder

from pairsmith.core.progress import Progress, Quiet, Silent
from pairsmith.data.schemas import ScoredPair

pytestmark = pytest.mark.slow

SECONDS = 120
"""The longest wait for anything; all of it takes a few on a machine that is not busy."""


@contextmanager
def command(*arguments):
    """The command as a process of its own, and a queue of the lines on its stderr, None behind the last."""
    said = queue.Queue()

    def listen(stream):
        for line in stream:
            said.put(line.rstrip("\n"))
        said.put(None)

    with subprocess.Popen(
        [sys.executable, "-m", "pairsmith", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        thread = threading.Thread(target=listen, args=[process.stderr])
        thread.start()
        try:
            yield process, said
        finally:
            process.kill()  # nothing happens where it has ended
            thread.join(SECONDS)


def address_in(said):
    """The address as a person copies it from what the command says."""
    lines = []
    while (line := said.get(timeout=SECONDS)) is not None:
        lines.append(line)
        if "http://" in line:
            return line[line.index("http://") :].split()[0]
    pytest.fail("no address was printed: " + "\n".join(lines))


def status(url, body=None):
    """The status of an answer, and its text."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, body), timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


@pytest.mark.parametrize("more", [pytest.param([], marks=pytest.mark.long), ["--quiet"]])
def test_the_address_that_is_printed_opens_the_page(tmp_path, more):
    pairs = [ScoredPair(str(i), f"one {i}", f"other {i}", i % 2 / 1) for i in range(4)]
    folder(tmp_path / "in", [{"train": pairs}])
    out = tmp_path / "out"
    with command("audit", "--data", tmp_path / "in", "--out", out, *more) as (process, said):
        address = address_in(said)
        base, _, token = address.partition("/?token=")
        assert status(address)[0] == 200
        assert "<title>pairsmith audit</title>" in status(address)[1]
        for name in ("audit.js", "audit.css", "state"):
            assert status(f"{base}/{name}?token={token}")[0] == 200
        for refused in ("/", "/?token=", "/?token=***", f"/?token={token}x", "/state"):
            code, text = status(base + refused)
            assert (code, "token is missing" in text) == (403, True)
        code, told = status(f"{base}/finish?token={token}", b"{}")
        assert (code, json.loads(told)["folder"]) == (200, str(out))
        assert process.wait(SECONDS) == 0
        assert "nobody has labelled" in process.stdout.read()
    assert json.loads((out / "results.json").read_text())["rows"] == 4
    files = [path for path in out.rglob("*") if path.is_file()]
    assert not [path for path in files if token.encode() in path.read_bytes()]


def test_a_link_is_shown_as_it_is_and_all_else_without_secrets(capsys):
    link = "open http://127.0.0.1:1/?token=abc"
    for progress, heard in ((Progress(), link), (Quiet(), link), (Silent(), "")):
        progress.link(link)
        assert capsys.readouterr().err.rstrip("\n") == heard
    Progress().say(link)
    assert capsys.readouterr().err == "open http://127.0.0.1:1/?token=***\n"
