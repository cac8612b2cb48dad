"""Requests that wait for a server: who is told, how often, and in which words."""

import logging
import os
import subprocess
import sys
import threading
import time
from email.utils import formatdate

import pytest

from pairsmith.core.errors import RemoteError
from pairsmith.models.language import waits
from pairsmith.models.language.remote import RemoteModel
from pairsmith.models.language.waits import seconds_asked

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def nothing_told_before(monkeypatch):
    monkeypatch.setattr(waits.FAULTS, "_reported", {})


def drawn(model, seed=1):
    return model.continued((65,), seed, 5, 0.9, 4, '"')


def told(caplog):
    return [record.message for record in caplog.records if record.name == waits.__name__]


def told_once(url, fault, *, told):
    """A request whose wait is over at once."""
    waits.wait_to_retry(0.0, url, fault, report=told, by_server=False, stopped=threading.Event())


@pytest.fixture
def stopped_when_told(monkeypatch):
    """Has a model give up as soon as something is told."""

    def watch(model):
        class Stop(logging.Handler):
            def emit(self, _):
                model.stopped.set()

        handler = Stop()
        logging.getLogger(waits.__name__).addHandler(handler)
        handlers.append(handler)

    handlers = []
    yield watch
    for handler in handlers:
        logging.getLogger(waits.__name__).removeHandler(handler)


def test_a_long_wait_that_the_server_asks_for_is_told_at_once_and_once(
    server, connect, caplog, stopped_when_told
):
    model = connect(way="plain")
    stopped_when_told(model)
    server.faults.extend(["429:3600"] * 100)
    failed = []

    def one(seed):
        with pytest.raises(RemoteError, match="after 1 try"):
            drawn(model, seed)
        failed.append(seed)

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 9
    assert told(caplog) == [
        f'{server.name.partition("#")[0]}/completions: 429 {{"error": "injected"}}; as the server asks, trying '
        "again in 1 h 00 min"
    ]


def test_a_server_that_asks_to_wait_for_years_is_given_up(server, connect, caplog):
    model = connect(way="plain")
    server.faults.append("429:Wed, 21 Oct 2099 07:28:00 GMT")
    with pytest.raises(RemoteError, match=r"after 1 try \(it asks to wait [\d,]+ h \d+ min: 429"):
        drawn(model)
    assert told(caplog) == []


def test_a_fault_that_lasts_is_told_once_for_all_requests(server, connect, caplog):
    model = connect(way="plain")
    server.faults.extend(["503"] * 7)
    drawn(model)
    assert not server.faults
    server.faults.extend(["503"] * 7)
    drawn(model, 2)
    assert [message.partition("; trying again in ")[0] for message in told(caplog)] == [
        f'{server.name.partition("#")[0]}/completions: 503 {{"error": "injected"}}'
    ]


def test_another_fault_is_told_and_the_same_one_again_later(caplog, monkeypatch):
    now = 100.0
    monkeypatch.setattr(waits.time, "monotonic", lambda: now)
    for fault in ("500 a", "500 b", "no text: {}"):
        told_once("http://x", fault, told=True)
    now += waits.SILENCE
    told_once("http://x", "500 c\n\n", told=True)
    told_once("http://x", "429 d", told=False)
    assert told(caplog) == [
        f"http://x: {fault}; trying again in 0 s" for fault in ("500 a", "no text: {}", "500 c")
    ]


def test_a_fault_that_lasts_for_hours_is_told_ever_less_often(caplog, monkeypatch):
    now = 100.0
    monkeypatch.setattr(waits.time, "monotonic", lambda: now)
    told_at = []

    def lasts(seconds):
        nonlocal now
        for _ in range(seconds):
            before = len(told(caplog))
            told_once("http://x/v1", "503 busy", told=True)  # each time another request
            if len(told(caplog)) > before:
                told_at.append(now - 100.0)
            now += 1.0

    lasts(2_000)
    assert told_at == [0, 10, 30, 70, 150, 310, 630, 1_230, 1_830]
    told_at.clear()
    now += 1_200.0
    lasts(20)
    assert told_at == [3_200, 3_210]  # after such a time it is a new fault


def test_each_server_is_told_of(caplog):
    for url in ("http://x/v1/completions", "http://x/tokenize", "http://y/v1/completions"):
        told_once(url, "503 busy", told=True)
    assert told(caplog) == [
        f"http://{name}/v1/completions: 503 busy; trying again in 0 s" for name in ("x", "y")
    ]


def test_nothing_is_sent_after_a_stop(server, connect):
    model = connect(way="plain")
    model.stopped.set()
    with pytest.raises(RemoteError, match="stopped"):
        drawn(model)
    assert not server.seen


@pytest.mark.parametrize(
    ("after", "seconds"),
    [("", 0.0), ("90", 90.0), ("soon", 0.0), ("\u00b2", 0.0), ("-1", 0.0), (formatdate(0, usegmt=True), 0.0)],
)
def test_what_a_header_asks_for(after, seconds):
    assert seconds_asked(after) == seconds


def test_a_header_may_hold_a_date():
    assert seconds_asked(formatdate(time.time() + 100, usegmt=True)) == pytest.approx(100, abs=5)


def test_why_no_server_answers_is_said_at_once_and_in_the_systems_words():
    with pytest.raises(RemoteError) as caught:
        RemoteModel("http://127.0.0.1:9/v1#x", way="plain")
    assert str(caught.value) == "http://127.0.0.1:9/v1: no server answers there (Connection refused)"


def test_a_connection_that_breaks_is_told_in_the_systems_words(server, connect):
    model = connect(way="plain")
    server.faults.extend(["cut"] * 8)
    with pytest.raises(RemoteError, match=r"\(Remote end closed connection without response\)"):
        drawn(model)


ON_A_TERMINAL = """
from pairsmith.core.progress import Progress
from threading import Event
from pairsmith.models.language.waits import wait_to_retry
how = {"report": True, "by_server": False, "stopped": Event()}
with Progress().task("writing", 2, "pairs") as bar:
    bar.advance()
    wait_to_retry(0.0, "http://busy.example", "503 no room", **how)
    bar.advance()
wait_to_retry(0.0, "http://busy.example", "502 gone", **how)
"""


@pytest.mark.skipif(os.name == "nt", reason="there are no pseudo-terminals")
def test_on_a_terminal_a_fault_stands_on_a_line_of_its_own_above_the_bar():
    import pty

    controller, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", ON_A_TERMINAL], stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        while part := _read(controller):
            shown += part
        assert process.wait(timeout=60) == 0
    os.close(controller)
    text = shown.decode()
    fault = "http://busy.example: 503 no room; trying again in 0 s"
    assert f"{fault}\r\nwriting: 1/2 pairs" in text  # the bar stands below the fault at once
    lines = [line.split("\r\x1b[2K")[-1] for line in text.removesuffix("\r\n").split("\r\n")]
    assert [line.partition(" \u00b7 ")[0] for line in lines] == [
        fault, "writing: 2/2 pairs", "http://busy.example: 502 gone; trying again in 0 s",
    ]  # fmt: skip


def _read(controller):
    """What the other end of a terminal has written; empty once it is closed."""
    try:
        return os.read(controller, 4096)
    except OSError:
        return b""
