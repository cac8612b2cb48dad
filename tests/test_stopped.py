"""Ctrl-C and SIGTERM: a run ends at once, says how to go on, and goes on."""

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

import pairsmith
from pairsmith.__main__ import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs signals to groups of processes"),
]

SHARDS = 6  # of five texts each
SECONDS = 60.0  # on a machine that is busy with other things

# What a shell starts in the background ignores Ctrl-C, and so would what it starts in turn.
COMMAND = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from pairsmith.__main__ import main
main(sys.argv[1:])
"""


@pytest.fixture
def command(tiny_gpt2, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"text number {i}\n" for i in range(5 * SHARDS)))

    def make(out, *more):
        options = ["--model", tiny_gpt2, "--inputs", tmp_path / "in.txt", "--shard-size", "5"]
        return [*map(str, ["generate", *options, "--max-tokens", "12", "--out", tmp_path / out, *more])]

    return make


def files(out):
    return {path.name: path.read_bytes() for path in sorted(out.rglob("*.parquet"))}


@pytest.mark.parametrize(
    ("number", "code", "workers"),
    [
        (signal.SIGINT, 130, 1),
        pytest.param(signal.SIGTERM, 143, 1, marks=pytest.mark.long),
        pytest.param(signal.SIGINT, 130, 2, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, 143, 2, marks=pytest.mark.long),
    ],
)
def test_it_ends_within_seconds_and_goes_on(command, tmp_path, number, code, workers):
    with (
        subprocess.Popen(
            [sys.executable, "-c", COMMAND, *command("out", "--workers", str(workers))],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)  # where a test fails; else it has ended
        assert process.stderr.readline().startswith("loading ")
        assert process.stderr.readline().startswith("generate: ")  # the first prompts are done
        sent = time.monotonic()
        # A terminal sends Ctrl-C to the workers too; SIGTERM is for the command alone.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        said = process.stderr.read()  # to its end: no worker holds it open any more
    assert process.returncode == code
    assert time.monotonic() - sent < SECONDS
    finished = len(list((tmp_path / "out" / "data").glob("train-*.parquet")))
    assert finished < SHARDS, "it went on to the end of its work"
    assert (
        "stopped; finished parts are kept, and a part that was begun will be done again; to continue, run the same command again without --fresh"
        in said
    )
    assert "Traceback" not in said
    assert not list((tmp_path / "out").rglob("*.tmp"))
    if workers == 1 and number == signal.SIGINT:
        main_quietly(command("out"))
        main_quietly(command("whole"))
        assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_ctrl_c_while_workers_start_is_not_lost(command, tmp_path):
    with (
        subprocess.Popen(
            [sys.executable, "-c", COMMAND, *command("out", "--workers", "2")],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        assert process.stderr.readline().startswith("loading ")
        time.sleep(0.5)  # the fork server is importing torch
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert "stopped; finished parts are kept" in said
    assert "Traceback" not in said
    assert not list((tmp_path / "out").glob("data/*.parquet"))


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_ctrl_c_does_not_wait_for_a_server_that_does_not_answer(server, tmp_path, workers):
    (tmp_path / "in.txt").write_text("".join(f"text number {i}\n" for i in range(3)))

    def command(out):
        options = ["--inputs", tmp_path / "in.txt", "--shard-size", "1", "--decay", "0", "--per-input", "1"]
        options += ["--tries", "1", "--max-tokens", "8", "--workers", str(workers), "--out", tmp_path / out]
        return [*map(str, ["generate", "--model", server.name, *options])]

    server.faults.extend([""] * (3 * workers + 1) + ["timeout"] * 20)  # the first shards have three requests
    with (
        subprocess.Popen(
            [sys.executable, "-c", COMMAND, *command("out")],
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        ) as process,
        ExitStack() as stack,
    ):
        stack.callback(process.kill)
        assert server.held.wait(2 * SECONDS)
        sent = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
    assert process.returncode == 130
    assert time.monotonic() - sent < SECONDS  # half of what a response may take
    assert "stopped; finished parts are kept" in said
    assert "Traceback" not in said
    if workers == 1:
        assert len(files(tmp_path / "out")) == 2  # the rows and rejects of a shard
    server.faults.clear()
    main_quietly(command("out"))
    main_quietly(command("whole"))
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def main_quietly(arguments):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as end:
        main([*arguments, "--quiet"])
    signal.signal(signal.SIGTERM, before)
    assert end.value.code in (None, 0)


def test_a_stop_during_the_imports_of_a_function_leaves_libraries_that_can_be_used(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "slow_library.py").write_text(
        "import signal\nsignal.raise_signal(signal.SIGINT)\ndef function():\n    return 'whole'\n"
    )
    monkeypatch.setitem(pairsmith._HOMES, "own", ("slow_library", "function"))
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # programs in the background ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            _ = pairsmith.own
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, usual)
    assert "function" in vars(sys.modules["slow_library"])
    assert capfd.readouterr().err == "\nstopping when the libraries are imported\n"
    assert pairsmith.own() == "whole"
