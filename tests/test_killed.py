"""Kills of a run: whatever was finished stays and is not made again, and the data come out the same."""

import multiprocessing
import os
import random
import signal
import time
from itertools import count

import pytest

from pairsmith.core.progress import Silent
from pairsmith.runs import DatasetFolder, Run, storage
from pairsmith.runs.journal import Journal
from pairsmith.steps.generate.postprocess import postprocess
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings, PostprocessSettings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kills"),
]

KILLS = int(os.environ.get("PAIRSMITH_KILLS", "2"))


@pytest.fixture
def spawn(monkeypatch):
    """Starts functions in processes that have torch loaded already."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pairsmith.steps.generate.route", "pairsmith.steps.generate.postprocess"])

    def start(function, *arguments):
        process = context.Process(target=function, args=arguments)
        process.start()
        return process

    return start


@pytest.fixture
def settings(tmp_path, tiny_gpt2):
    def of(inputs):
        (tmp_path / "in.txt").write_text("".join(f"text number {i}\n" for i in range(inputs)))
        return GenerateSettings(
            model=str(tiny_gpt2), inputs=[str(tmp_path / "in.txt")], shard_size=2, max_tokens=16
        )

    return of


def work(settings, out):
    generate(settings, Run(out / "pairs", Silent()))
    postprocess(PostprocessSettings(data=str(out / "pairs")), Run(out / "clean", Silent()))


def work_until(last, settings, out):
    """Work in a process of its own, which is killed when the file number ``last``, from 1, is written."""
    write, number = storage._write_synced, count(1)

    def write_or_die(path, data):
        write(path, data)
        if next(number) == last:
            os.kill(os.getpid(), signal.SIGKILL)

    storage._write_synced = write_or_die
    work(settings, out)


def files(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for part in ("pairs/data", "pairs/rejects", "clean/data", "clean/rejects")
        for path in sorted((folder / part).iterdir())
    }


def writing_times(out):
    """When each file of the finished shards was written."""
    entries = Journal.read(out).entries.values()
    return {file.path: (out / file.path).stat().st_mtime_ns for entry in entries for file in entry.files}


def test_killed_between_the_files_of_a_shard_it_makes_no_finished_shard_again(spawn, tmp_path, settings):
    given, out = settings(12), tmp_path / "killed"
    # A run writes two files, then three for each shard: rows, rejects, and the line that lists them.
    kills = {2 + 2 * 3 + 1: 2, 2 + 2 * 3 + 2: 4, 2 + 2 * 3 + 2 + 3: 6}
    written = {}
    for last, finished in kills.items():
        process = spawn(work_until, last, given, out)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert sorted(Journal.read(out / "pairs").entries) == list(range(finished))
        before, written = written, writing_times(out / "pairs")
        assert before.items() <= written.items()
    work(given, out)
    assert writing_times(out / "pairs") == written
    work(given, tmp_path / "whole")
    assert files(out) == files(tmp_path / "whole")
    assert DatasetFolder.open(out / "pairs").rows > 0


@pytest.mark.long
def test_killed_at_random_instants_it_ends_with_the_same_bytes(spawn, tmp_path, settings):
    given = settings(30)
    spawn(sum, (1, 2)).join()  # the first waits until torch is loaded
    begun = time.monotonic()
    whole = spawn(work, given, tmp_path / "whole")
    whole.join()
    seconds = time.monotonic() - begun
    assert whole.exitcode == 0
    chance = random.Random(1)
    kills, number = 0, 0
    while kills < KILLS:
        process = spawn(work, given, tmp_path / f"killed-{number}")
        process.join(chance.uniform(0.02, 0.5) * seconds)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        kills += process.exitcode != 0
        number += process.exitcode == 0  # it got to its end; the next kills are for another run
    last = spawn(work, given, tmp_path / f"killed-{number}")
    last.join()
    assert last.exitcode == 0
    for run in range(number + 1):
        assert files(tmp_path / f"killed-{run}") == files(tmp_path / "whole")
    assert DatasetFolder.open(tmp_path / "whole/pairs").rows > 0
