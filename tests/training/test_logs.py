"""TensorBoard logs, read back with TensorBoard's own reader."""

import json
import sys

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.folders import write_folder
from tests.training.few import reading

from pairsmith.core.errors import MissingExtra
from pairsmith.core.paths import place
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import SCORED_PAIR
from pairsmith.runs import Run
from pairsmith.steps.training.encoder import train_encoder
from pairsmith.steps.training.reader import train_reader
from pairsmith.steps.training.settings import TrainEncoderSettings, TrainReaderSettings
from pairsmith.training.best_step import BestStepCallback
from pairsmith.training.logs import steps_between

pytestmark = pytest.mark.slow

WORDS = ("guitar", "market", "onion", "beach", "dog", "weather", "horse", "woman")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    import pyarrow as pa

    def pairs(numbers):
        rows = [(f"{n}", f"A {WORDS[n % 8]}.", f"The {WORDS[n // 8 % 8]}", (n % 5) / 4) for n in numbers]
        columns = dict(zip(SCORED_PAIR.names, map(list, zip(*rows, strict=True)), strict=True))
        return pa.table(columns, schema=SCORED_PAIR)

    folder = tmp_path_factory.mktemp("data") / "pairs"
    write_folder(folder, {"train": pairs(range(32)), "validation": pairs(range(32, 48))}, step="postprocess")
    return folder


def settings(base, data, **rest):
    given = {"batch_size": 8, "learning_rate": 5e-3, "epochs": 3, "max_steps": 10, "eval_steps": 4}
    given |= {"checkpoint_steps": 4, "tensorboard": True, "device": "cpu"}
    return TrainEncoderSettings(base=str(base), data=str(data), **(given | rest))


def curves(folder):
    """By name the values at each step, as TensorBoard shows them."""
    events = EventAccumulator(str(folder)).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def record(out):
    return json.loads((out / "training.json").read_text())


def measured(out, metric):
    return [(look["step"], pytest.approx(look[metric], abs=1e-4)) for look in record(out)["validation"]]


@pytest.fixture(scope="module")
def logged(tiny_gpt2, data, tmp_path_factory):
    out = tmp_path_factory.mktemp("logged") / "out"
    train_encoder(settings(tiny_gpt2, data), Run(out, Silent()))
    return out


def test_the_curves_are_those_of_the_training(logged):
    shown = curves(logged / "logs")
    assert shown["validation/spearman"] == measured(logged, "spearman")
    assert [step for step, _ in shown["validation/spearman"]] == [0, 4, 8, 10]
    assert [step for step, _ in shown["train/loss"]] == list(range(1, 11))
    assert all(0 < loss < 4 for _, loss in shown["train/loss"])
    # That of each step: of ten one is warm-up, from 0, and then the rates are 9/9, 8/9, … 1/9.
    expected = [pytest.approx(5e-3 * left / 9, rel=1e-5) for left in (0, *range(9, 0, -1))]
    assert [rate for _, rate in shown["train/learning_rate"]] == expected


def test_the_model_is_the_same_without_logs_and_they_are_no_part_of_it(logged, tiny_gpt2, data, tmp_path):
    train_encoder(settings(tiny_gpt2, data, tensorboard=False), Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out" / "logs").exists()
    assert not [name for name in record(logged)["files"] if "logs" in name]
    assert record(logged)["files"] == record(tmp_path / "out")["files"]  # with their hashes
    assert record(logged)["fingerprint"] == record(tmp_path / "out")["fingerprint"]


def stop_after_7(monkeypatch):
    real = BestStepCallback.on_step_end

    def stopping(self, args, state, control, **kwargs):
        real(self, args, state, control, **kwargs)
        if state.global_step == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(BestStepCallback, "on_step_end", stopping)


def test_logs_of_a_training_that_went_on_are_those_of_one_that_was_not_stopped(
    logged, tiny_gpt2, data, tmp_path, monkeypatch
):
    out = place(f"memory://{tmp_path.name}/out")
    given = settings(tiny_gpt2, data)
    for where in (tmp_path / "out", out):
        with monkeypatch.context() as patch:
            stop_after_7(patch)
            with pytest.raises(KeyboardInterrupt):
                train_encoder(given, Run(where, Silent()))
        train_encoder(given, Run(where, Silent()))
    assert curves(tmp_path / "out" / "logs") == curves(logged / "logs")
    assert len(list((tmp_path / "out" / "logs").iterdir())) == 2
    assert len([file for file in (out / "logs").iterdir() if file.name.startswith("events.out")]) == 2


def test_what_was_measured_before_logs_were_asked_for_is_in_them(
    logged, tiny_gpt2, data, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        stop_after_7(patch)
        with pytest.raises(KeyboardInterrupt):
            train_encoder(settings(tiny_gpt2, data, tensorboard=False), Run(tmp_path / "out", Silent()))
    train_encoder(settings(tiny_gpt2, data), Run(tmp_path / "out", Silent()))
    shown = curves(tmp_path / "out" / "logs")
    assert shown["validation/spearman"] == measured(logged, "spearman")
    assert [step for step, _ in shown["train/loss"]] == list(range(5, 11))


def test_each_learning_rate_is_a_run_and_a_fresh_training_leaves_no_old_ones(tiny_bert, tmp_path):
    seeds = reading(tmp_path / "seeds.jsonl", range(4))
    given = {"base": str(tiny_bert), "seeds": seeds, "validation": seeds, "steps": 3, "eval_steps": 2}
    given |= {"batch_size": 4, "tensorboard": True, "device": "cpu"}
    out = tmp_path / "out"
    train_reader(TrainReaderSettings(**given, learning_rate=[1e-3, 5e-3]), Run(out, Silent()))
    runs = {folder.name: curves(folder) for folder in (out / "logs").iterdir()}
    assert set(runs) == {"lr-0.001", "lr-0.005"}
    kept = measured(out, "F1")
    assert [step for step, _ in kept] == [0, 2, 3]
    assert any(run["validation/F1"] == kept for run in runs.values())
    assert runs["lr-0.001"]["train/loss"][0] == runs["lr-0.005"]["train/loss"][0]  # before any step
    (out / "logs" / "mine.txt").write_text("a note")
    other = TrainReaderSettings(**(given | {"tensorboard": False}), learning_rate=[2e-3])
    train_reader(other, Run(out, Silent(), fresh=True))
    assert [file.name for file in (out / "logs").rglob("*") if file.is_file()] == ["mine.txt"]


def test_a_missing_tensorboard_is_told_before_anything_is_read(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtra, match=r"pip install 'pairsmith\[tensorboard\]'"):
        train_encoder(settings("no/base", "no-data"), Run(tmp_path / "out", Silent()))
    reader = TrainReaderSettings(base="no/base", seeds="no-data", tensorboard=True, device="cpu")
    with pytest.raises(MissingExtra, match=r"pip install 'pairsmith\[tensorboard\]'"):
        train_reader(reader, Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


def test_a_long_training_has_a_thousand_points():
    assert [steps_between(total) for total in (1, 999, 1_999, 2_000, 250_000)] == [1, 1, 1, 2, 250]
