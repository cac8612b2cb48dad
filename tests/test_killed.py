"""Kills at random instants: whatever was finished stays, and the data come out the same."""

import multiprocessing
import os
import random
import signal
import time

import pytest

from pairsmith.core.progress import Silent
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.generate.postprocess import postprocess
from pairsmith.steps.generate.route import generate
from pairsmith.steps.generate.settings import GenerateSettings, PostprocessSettings

pytestmark = pytest.mark.slow

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


def work(settings, out):
    generate(settings, Run(out / "pairs", Silent()))
    postprocess(PostprocessSettings(data=str(out / "pairs")), Run(out / "clean", Silent()))


def files(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for part in ("pairs/data", "pairs/rejects", "clean/data", "clean/rejects")
        for path in sorted((folder / part).iterdir())
    }


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kills")
def test_killed_at_random_instants_it_ends_with_the_same_bytes(spawn, tmp_path, tiny_gpt2):
    (tmp_path / "in.txt").write_text("".join(f"text number {i}\n" for i in range(30)))
    settings = GenerateSettings(
        model=str(tiny_gpt2), inputs=[str(tmp_path / "in.txt")], shard_size=2, max_tokens=16
    )
    spawn(sum, (1, 2)).join()  # the first waits until torch is loaded
    begun = time.monotonic()
    whole = spawn(work, settings, tmp_path / "whole")
    whole.join()
    seconds = time.monotonic() - begun
    assert whole.exitcode == 0
    chance = random.Random(1)
    kills, number = 0, 0
    while kills < KILLS:
        process = spawn(work, settings, tmp_path / f"killed-{number}")
        process.join(chance.uniform(0.02, 0.5) * seconds)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
        kills += process.exitcode != 0
        number += process.exitcode == 0  # it got to its end; the next kills are for another run
    last = spawn(work, settings, tmp_path / f"killed-{number}")
    last.join()
    assert last.exitcode == 0
    for run in range(number + 1):
        assert files(tmp_path / f"killed-{run}") == files(tmp_path / "whole")
    assert DatasetFolder.open(tmp_path / "whole/pairs").rows > 0
