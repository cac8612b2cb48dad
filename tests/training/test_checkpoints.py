"""Checkpoints without a trainer: what is read back, and what a kill in between leaves."""

import os

import pytest
import torch
from upath import UPath

from pairsmith.core.errors import StorageError
from pairsmith.core.progress import Silent
from pairsmith.runs import Identity, Run, Sources
from pairsmith.training.checkpoints import BestSoFar, Checkpoints
from pairsmith.training.folder import ModelFolder

RESULTS = BestSoFar({0: 10.0, 2: 30.5, 4: None}, 2, 30.5, {"weight": torch.tensor([1.0, -2.0])}, 3.5)


def nothing_said(line):
    raise AssertionError(line)


def test_the_latest_checkpoint_before_the_last_step_is_read_back_with_the_best_weights(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.seal(2, BestSoFar())
    checkpoints.seal(10, RESULTS)
    path, results = checkpoints.latest(12, nothing_said)
    assert path.name == "checkpoint-10"
    assert results.best_weights.keys() == {"weight"}
    assert torch.equal(results.best_weights["weight"], RESULTS.best_weights["weight"])
    assert (results.curve, results.best_step, results.best) == (RESULTS.curve, 2, 30.5)
    assert results.seconds == 3.5
    assert checkpoints.latest(10, nothing_said)[0].name == "checkpoint-2"
    assert checkpoints.latest(2, nothing_said) is None


@pytest.mark.parametrize("fails_at", [0, 1])
def test_a_store_keeps_the_earlier_checkpoint_until_the_next_is_complete(monkeypatch, fails_at):
    store = UPath(f"memory://kept-{os.urandom(4).hex()}/checkpoints")
    checkpoints = Checkpoints(store)
    checkpoints.seal(1, RESULTS)
    put, calls = type(store.fs).put_file, []

    def fail(self, *given, **options):
        calls.append(given)
        if len(calls) == fails_at + 1:
            raise OSError("the store went away")
        return put(self, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(type(store.fs), "put_file", fail)
        with pytest.raises(StorageError, match="the store went away"):
            checkpoints.seal(2, RESULTS)
    assert Checkpoints(store).latest(5, nothing_said)[0].name == "checkpoint-1"
    checkpoints.seal(2, RESULTS)
    assert {path.name for path in store.iterdir()} == {"checkpoint-2"}


def test_checkpoints_stay_until_the_model_is_marked_complete(tmp_path, monkeypatch):
    identity = Identity.of("train-encoder", {"rate": 0.1})
    folder = ModelFolder.start(Run(tmp_path / "model", Silent()), identity, Sources())
    folder.checkpoints.seal(1, RESULTS)

    def fail(self, record):
        raise StorageError("no space left")

    monkeypatch.setattr(ModelFolder, "_save", fail)
    with pytest.raises(StorageError, match="no space left"):
        folder.finish(lambda out: (out / "model.safetensors").write_text("weights"), {})
    assert folder.checkpoints.latest(2, nothing_said)[0].name == "checkpoint-1"
