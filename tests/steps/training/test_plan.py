"""What a plan estimates for a training, by a clock that a stub of a training sets forward."""

from types import SimpleNamespace

import pyarrow as pa
import pytest
import torch

from pairsmith.core.errors import SettingsError
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.training import plan
from pairsmith.steps.training.plan import BESIDE_WEIGHTS, plan_training, saved_checkpoints
from pairsmith.steps.training.reading import TrainingData
from pairsmith.steps.training.settings import TrainTeacherSettings
from pairsmith.training.best_step import TRAIN


@pytest.mark.parametrize(
    ("steps", "between", "seconds", "expected"),
    [
        (100, 100, 60, 0),  # none at the last step
        (101, 100, 60, 1),
        (200, 100, 2_600, 4),  # every ten minutes
        (1, 100, 1_200, 0),
    ],
)
def test_checkpoints_are_saved_by_steps_and_by_the_clock(steps, between, seconds, expected):
    assert saved_checkpoints(steps, between, seconds) == expected


WEIGHTS = 4 * 25
"""Size of the weights of the stub's network, 25 float32, in bytes."""


class Training:
    """A stub of a training on 1,000 rows, of which a plan reads 100; half of the rows are examples.

    Libraries load in 5 s the first time, and the model in 2 s. A step takes ``per_example`` seconds for each of
    its examples, an evaluation 0.5 s for each of its examples.
    """

    def __init__(self, now, per_example=0.25, validation=0):
        self.now, self.per_example, self.validation = now, per_example, validation
        self.tried = []

    def read(self, settings, most):
        assert most == plan.SAMPLE_ROWS
        return TrainingData(list(range(50)), 100, 900, list(range(self.validation)))

    def sources_of(self, settings):
        return {f"data {number}": source for number, source in enumerate(settings.data)}

    def train(self, data, settings, context):
        self.now[0] += 2.0 if self.tried else 7.0
        steps = settings.steps_of(len(data.training))
        self.tried.append((steps, settings.batch_size, len(data.validation), settings.learning_rate))
        with context["progress"].task(TRAIN, steps, "steps") as bar:
            evaluate = [0] if data.validation else []
            for step in range(steps + 1):
                if step:
                    self.now[0] += self.per_example * settings.batch_size
                    bar.advance()
                if evaluate and step % settings.eval_steps == 0:
                    self.now[0] += 0.5 * len(data.validation)
                    bar.advance(0)
        return SimpleNamespace(parts=(torch.nn.Linear(4, 5),))


@pytest.fixture
def training(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(plan.time, "monotonic", lambda: now[0])
    return lambda **options: Training(now, **options)


def settings(tmp_path, **changes):
    (tmp_path / "data.jsonl").touch()
    values = {"data": [str(tmp_path / "data.jsonl")], "batch_size": 8, "epochs": 2, "device": "cpu"}
    return TrainTeacherSettings(base="b", **values | changes)


def test_the_time_of_a_step_is_extrapolated_to_all_examples(training, tmp_path):
    stub = training()
    estimate = plan_training(stub, settings(tmp_path), {})
    # 500 examples in 2 epochs are 125 steps of 8 examples and 2 s; libraries 5 s, model 2 s.
    assert estimate.seconds == pytest.approx(5 + 2 + 125 * 2)
    assert stub.tried == [(2, 2, 0, [3e-5]), (6, 8, 0, [3e-5])]
    assert estimate.disk == WEIGHTS + BESIDE_WEIGHTS
    assert estimate.scratch == 1 * 3 * WEIGHTS  # after 100 steps: the weights and AdamW's moments
    assert estimate.rows == {}


def test_each_learning_rate_and_each_evaluation_takes_time(training, tmp_path):
    stub = training(validation=10)
    chosen = settings(
        tmp_path, learning_rate=[1e-5, 1e-4], validation=str(tmp_path / "data.jsonl"), eval_steps=25
    )
    estimate = plan_training(stub, chosen, {})
    # 125 steps, and evaluations of 10 examples before the first, after each 25 steps, and at the end.
    assert estimate.seconds == pytest.approx(5 + 2 * (2 + 125 * 2 + (2 + 5) * 10 * 0.5))
    assert stub.tried[-1] == (6, 8, 10, [1e-5])
    # Each rate has a checkpoint, with the best weights; the first rate's result waits for the second's.
    assert estimate.scratch == (2 * 4 + 2) * WEIGHTS


def test_a_slow_step_is_tried_with_few_examples(training, tmp_path):
    slow = training(per_example=6.0)
    estimate = plan_training(slow, settings(tmp_path, batch_size=32, epochs=1), {})
    assert slow.tried == [(2, 2, 0, [3e-5])]  # two examples take 12 s, more than the 10 s of a trial
    assert estimate.seconds == pytest.approx(7 + 16 * 192)  # 500 examples: 16 steps of 192 s
    middling = training(per_example=1.0)
    estimate = plan_training(middling, settings(tmp_path, batch_size=32, epochs=1), {})
    assert middling.tried == [(2, 2, 0, [3e-5]), (6, 10, 0, [3e-5])]
    assert estimate.seconds == pytest.approx(5 + 2 + 16 * 32)


def test_rows_of_an_earlier_step_or_a_setting_decide_the_number_of_steps(training, tmp_path):
    chosen = settings(tmp_path)
    (source,) = chosen.data
    sample = pa.table({"id": ["a"] * 1_000})
    before = {source: Estimate(1.0, 1, 1, {"train": 4_000, "validation": 1_000}, sample=sample)}
    # The sample is all 1,000 rows, of which half are examples; the step will read 4,000 rows.
    assert plan_training(training(), chosen, before).seconds == pytest.approx(5 + 2 + 500 * 2)
    chosen = settings(tmp_path, max_steps=3)
    assert plan_training(training(), chosen, before).seconds == pytest.approx(5 + 2 + 3 * 2)


@pytest.mark.parametrize(("rows", "count"), [({"train": 400}, 400), ({"train": 4_000, "validation": 40}, 40)])
def test_validation_rows_of_an_earlier_step_are_all_measured(training, tmp_path, rows, count):
    chosen = settings(tmp_path, validation="earlier", eval_steps=25)
    before = {"earlier": Estimate(1.0, rows=rows, sample=pa.table({"id": ["a"] * 4}))}
    estimate = plan_training(training(validation=4), chosen, before)
    assert estimate.seconds == pytest.approx(5 + 2 + 125 * 2 + (2 + 5) * count * 0.5)


def test_a_missing_device_is_refused_before_anything_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SettingsError, match="no CUDA device"):
        plan_training(SimpleNamespace(), settings(tmp_path, device="cuda"), {})
