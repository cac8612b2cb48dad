import json
import re
from contextlib import contextmanager
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from upath import UPath

from pairsmith.core.errors import FolderError, StorageError
from pairsmith.core.progress import Progress, Silent
from pairsmith.runs import Run, Sources, lock
from pairsmith.runs.identity import Identity
from pairsmith.runs.status import status_lines
from pairsmith.training import best_step
from pairsmith.training.checkpoints import BestSoFar, Checkpoints
from pairsmith.training.fit import TrainingTask, same_rows, train_at_each_rate
from pairsmith.training.folder import TRAINING_RECORD, ModelFolder
from pairsmith.training.options import FewShotOptions

pytestmark = pytest.mark.slow


def start(out, *, fresh=False, rate=0.1, progress=None):
    settings, inputs, models = {"learning_rate": rate}, {"data": "0" * 64}, {"base": "sha256:1"}
    identity = Identity.of("train-encoder", settings, inputs, models)
    return ModelFolder.start(Run(out, progress or Silent(), fresh), identity, Sources())


class Line(nn.Module):
    """A model of one layer, which learns to return its input."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)

    def forward(self, numbers):
        return {"loss": (self.layer(numbers[:, None]).squeeze(1) - numbers).square().mean()}


def save(folder):
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    (folder / "model.safetensors").write_text("weights")


def written(out):
    return sorted(file.relative_to(out).as_posix() for file in out.rglob("*") if file.is_file())


def test_a_model_is_written_whole_with_its_record_last(tmp_path):
    out = tmp_path / "model"
    folder = start(out)
    assert not folder.finished
    assert json.loads((out / TRAINING_RECORD).read_text())["complete"] is False
    folder.finish(save, {"steps": 3})
    record = json.loads((out / TRAINING_RECORD).read_text())
    assert (record["complete"], record["steps"], record["step"]) == (True, 3, "train-encoder")
    assert written(out) == ["1_Pooling/config.json", "model.safetensors", TRAINING_RECORD]
    assert list(record["files"]) == ["1_Pooling/config.json", "model.safetensors"]


def test_the_same_training_is_recognised(tmp_path):
    start(tmp_path).finish(save, {})
    assert start(tmp_path).finished
    assert start(tmp_path).finished


def test_other_settings_are_refused_with_the_difference(tmp_path):
    start(tmp_path).finish(save, {})
    with pytest.raises(
        FolderError, match=r"a finished run of train-encoder .* learning_rate: 0.1 there, 0.2 here"
    ):
        start(tmp_path, rate=0.2)
    assert (tmp_path / "model.safetensors").read_text() == "weights"


def test_an_unfinished_training_of_other_settings_is_refused(tmp_path):
    start(tmp_path)
    with pytest.raises(FolderError, match=r"an unfinished run .*\n.*--fresh to start over"):
        start(tmp_path, rate=0.2)


def test_fresh_starts_over_and_removes_what_it_had_written_and_no_more(tmp_path):
    start(tmp_path).finish(save, {})
    (tmp_path / "notes.txt").write_text("mine")
    folder = start(tmp_path, fresh=True, rate=0.2)
    assert not folder.finished
    assert written(tmp_path) == ["notes.txt", TRAINING_RECORD]
    folder.finish(lambda out: (out / "model.safetensors").write_text("new"), {})
    assert written(tmp_path) == ["model.safetensors", "notes.txt", TRAINING_RECORD]


def test_a_killed_training_starts_again_in_its_folder(tmp_path):
    folder = start(tmp_path)

    def die(out):
        (out / "model.safetensors").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        folder.finish(die, {})
    again = start(tmp_path)
    assert not again.finished
    again.finish(save, {})
    assert written(tmp_path) == ["1_Pooling/config.json", "model.safetensors", TRAINING_RECORD]


@pytest.mark.parametrize("damage", ["changed", "lost"])
def test_a_damaged_model_is_trained_again(tmp_path, damage, capsys):
    start(tmp_path).finish(save, {})
    weights = tmp_path / "model.safetensors"
    weights.write_text("changed") if damage == "changed" else weights.unlink()
    assert not start(tmp_path, progress=Progress()).finished
    assert "has changed since it was written; it is trained again" in capsys.readouterr().err


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_that_holds_something_else_is_refused(tmp_path, fresh):
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).touch()
    with pytest.raises(FolderError, match=r"holds something else \(a, b, c, …\) and no training.json"):
        start(tmp_path, fresh=fresh)


def test_a_file_is_no_folder(tmp_path):
    file = tmp_path / "model"
    file.touch()
    with pytest.raises(FolderError, match="is a file"):
        start(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is damaged or was not written by pairsmith .JSON: Invalid JSON.*give another folder as --out"),
        ("[]", "is damaged or was not written by pairsmith"),
        ("{}", r"is damaged or was not written by pairsmith \(format: Field required\)"),
    ],
)
def test_a_record_that_is_not_ours_is_refused(tmp_path, text, message):
    (tmp_path / TRAINING_RECORD).write_text(text)
    with pytest.raises(FolderError, match=message):
        start(tmp_path)


def test_a_record_cannot_make_us_remove_files_elsewhere(tmp_path):
    outside = tmp_path / "outside.txt"
    outside.write_text("keep")
    out = tmp_path / "model"
    start(out).finish(save, {})
    record = json.loads((out / TRAINING_RECORD).read_text())
    record["files"] = {"../outside.txt": "", str(outside): ""}
    (out / TRAINING_RECORD).write_text(json.dumps(record))
    start(out, fresh=True)
    assert outside.read_text() == "keep"


def test_a_full_disk_is_a_storage_error(tmp_path):
    from safetensors import SafetensorError

    def full(out):
        raise SafetensorError("No space left on device")

    with pytest.raises(
        StorageError, match=r"cannot write the model to .*No space left.*free some space; then run"
    ):
        start(tmp_path / "one").finish(full, {})

    def denied(out):
        raise OSError(28, "No space left on device")

    with pytest.raises(StorageError, match="no space left"):
        start(tmp_path / "two").finish(denied, {})


@pytest.mark.parametrize("rates", [False, True])
def test_no_checkpoint_is_saved_in_a_new_folder_of_the_old_name(tmp_path, rates):
    """Else the last checkpoints would not be in the moved folder, where the training is continued."""
    out = tmp_path / "model"
    checkpoints = start(out).checkpoints
    checkpoints = checkpoints.part("rate-1", "lr-1") if rates else checkpoints
    checkpoints.seal(1, BestSoFar())
    out.rename(tmp_path / "moved")
    with pytest.raises(FolderError, match="/model was moved or removed"):
        checkpoints.seal(2, BestSoFar())
    assert not out.exists()


def test_a_checkpoint_is_not_put_into_a_store_that_another_run_took_over_meanwhile(monkeypatch):
    out = UPath("memory://taken-over/model")
    checkpoints = Checkpoints(out / "checkpoints", locked=out)
    lease = Mock(check=Mock(side_effect=[None, FolderError("another run has taken over")]))
    monkeypatch.setitem(lock._leases, str(out), lease)
    with pytest.raises(FolderError, match="taken over"):
        checkpoints.seal(1, BestSoFar())
    assert not (out / "checkpoints").exists()


def test_a_training_ends_before_it_saves_in_a_new_folder_of_the_old_name(tmp_path):
    out = tmp_path / "model"
    checkpoints = start(out).checkpoints

    class Moving(Silent):
        @contextmanager
        def task(self, label, total, unit):
            yield Mock(advance=lambda *_: out.rename(tmp_path / "moved"))

    options = FewShotOptions(base="b", steps=3, batch_size=1, checkpoint_steps=1, device="cpu")
    numbers = same_rows([1.0, 2.0, 3.0])
    task = TrainingTask(3, numbers, lambda rows: {"numbers": torch.tensor(rows)}, None, "none")
    with pytest.raises(FolderError, match="/model was moved or removed"):
        train_at_each_rate(lambda: (Line(), task), options, Moving(), checkpoints)
    assert not out.exists()


@pytest.mark.parametrize("rates", [[0.1], [0.1, 0.2]])
def test_the_status_has_the_step_before_the_first_checkpoint(tmp_path, monkeypatch, rates):
    monkeypatch.setattr(best_step, "_NOTE_SECONDS", 0.0)
    out, lines = tmp_path / "model", []
    folder = start(out, rate=rates)

    def measure():
        lines.extend(re.sub(r"\d+ s ago", "N s ago", line) for line in status_lines(out))
        return 1.0

    options = FewShotOptions(base="b", steps=3, batch_size=1, eval_steps=1, device="cpu", learning_rate=rates)
    numbers = same_rows([1.0, 2.0, 3.0])
    task = TrainingTask(3, numbers, lambda rows: {"numbers": torch.tensor(rows)}, measure, "none")
    train_at_each_rate(lambda: (Line(), task), options, Silent(), folder.checkpoints)
    started = f"{out}: train-encoder, running"
    rate = " at learning rate 0.1" if len(rates) > 1 else ""
    assert lines[:4] == [f"{started} · step {step} of 3{rate}, N s ago" for step in range(4)]
    assert len(rates) == 1 or lines[5] == (
        f"{started} · step 1 of 3 at learning rate 0.2, N s ago · saved: learning rate 0.1 at step 3"
    )
    folder.finish(save, {})
    assert written(out) == ["1_Pooling/config.json", "model.safetensors", TRAINING_RECORD]


def test_a_step_is_written_once_a_minute_and_needs_no_disk(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(Checkpoints, "note", lambda _, step, total: written.append((step, total)))
    options = FewShotOptions(base="b", steps=3, batch_size=1, device="cpu")
    task = TrainingTask(3, same_rows([1.0] * 3), lambda rows: {"numbers": torch.tensor(rows)}, None, "none")
    train_at_each_rate(lambda: (Line(), task), options, Silent(), start(tmp_path / "model").checkpoints)
    assert written == [(0, 3)]
    monkeypatch.undo()
    (tmp_path / "file").write_text("")
    Checkpoints(tmp_path / "file" / "checkpoints").note(1, 3)


def test_a_model_that_another_run_began_to_write_is_not_marked_complete(tmp_path):
    out = tmp_path / "model"
    folder = start(out)

    def save_slowly(scratch):
        save(scratch)
        lock.release(out)
        lock._leases[str(out)] = Mock(check=Mock(side_effect=FolderError("another run has taken over")))

    with pytest.raises(FolderError, match="taken over"):
        folder.finish(save_slowly, {})
    del lock._leases[str(out)]
    assert json.loads((out / TRAINING_RECORD).read_text())["complete"] is False


def test_no_model_is_made_for_a_folder_that_was_moved(tmp_path):
    out = tmp_path / "model"
    folder = start(out)
    out.rename(tmp_path / "moved")
    with pytest.raises(FolderError, match="/model was moved or removed"):
        folder.finish(save, {})
    assert not out.exists()
