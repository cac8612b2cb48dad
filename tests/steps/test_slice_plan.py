"""A plan that runs the step on slices of its rows."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from pairsmith.cli.planning import plan_step
from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.settings import Settings
from pairsmith.runs.estimate import Estimate
from pairsmith.steps import planning
from pairsmith.steps.step import Step


class CountSettings(Settings):
    data: str


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(planning.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def step(clock):
    """A step that loads for 5 s once, then takes 1 s and 0.01 s a row, and writes 10 bytes a row."""
    seen = []

    def work(settings, run):
        count = len(Path(settings.data).read_text().splitlines())
        clock[0] += (0.0 if seen else 5.0) + 1.0 + 0.01 * count
        seen.append(count)
        run.out.mkdir(parents=True)
        (run.out / "result").write_bytes(b"0123456789" * count)

    return Step(CountSettings, work, "Count.", planned_rows_setting="data")


def test_seconds_and_bytes_grow_with_the_rows_and_libraries_are_loaded_once(step, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"text": str(n)}) + "\n" for n in range(1_000)))
    planned = step.planner()(CountSettings(data=str(file)), {})
    assert planned.seconds == pytest.approx(5.0 + 1.0 + 0.01 * 1_000)
    assert planned.disk == 10_000


def test_rows_of_an_earlier_step_are_its_sample_times_their_number(step):
    earlier = Estimate(1.0, 1, 1, {"train": 500}, sample=pa.table({"text": ["a"] * 100}))
    planned = plan_step(step, CountSettings(data="@rows"), {"@rows": earlier})
    assert planned.seconds == pytest.approx(5.0 + 1.0 + 0.01 * 500)
    none = Estimate(1.0, 1, 1, {"train": 0}, sample=pa.table({"text": pa.array([], pa.string())}))
    assert plan_step(step, CountSettings(data="@rows"), {"@rows": none}).disk == 0
    without = Estimate(1.0, 1, 1, {"train": 500})
    with pytest.raises(SettingsError, match="@rows: "):
        plan_step(step, CountSettings(data="@rows"), {"@rows": without})


def test_a_slow_step_is_not_tried_with_more_rows_than_seconds_suffice_for(clock, tmp_path, monkeypatch):
    tried = []

    def work(settings, run):
        tried.append(len(Path(settings.data).read_text().splitlines()))
        clock[0] += 4.0 * tried[-1]
        run.out.mkdir(parents=True)

    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"text": str(n)}) + "\n" for n in range(1_000)))
    step = Step(CountSettings, work, "Count.", planned_rows_setting="data")
    assert step.planner()(CountSettings(data=str(file)), {}).seconds == pytest.approx(4_000)
    assert tried == [1, 1, 2]  # 8 would take 32 s
    tried.clear()
    monkeypatch.setattr(planning, "MOST_SECONDS", 40.0)
    assert step.planner()(CountSettings(data=str(file)), {}).seconds == pytest.approx(4_000)
    assert tried == [1, 1, 2, 8]
    tried.clear()
    monkeypatch.setattr(planning, "MOST_SECONDS", 3.0)
    assert step.planner()(CountSettings(data=str(file)), {}).seconds == pytest.approx(4_000)
    assert tried == [1, 1, 2]


def test_what_loading_takes_does_not_count_once_a_row(clock, tmp_path):
    def work(settings, run):
        clock[0] += 15.0 + 0.01 * len(Path(settings.data).read_text().splitlines())
        run.out.mkdir(parents=True)

    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"text": str(n)}) + "\n" for n in range(10_000)))
    step = Step(CountSettings, work, "Count.", planned_rows_setting="data")
    planned = step.planner()(CountSettings(data=str(file)), {})
    assert planned.seconds == pytest.approx(15 + 100)


def test_no_more_rows_are_planned_than_the_step_will_read(step, tmp_path):
    class LimitedSettings(CountSettings):
        limit: int | None = None

    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"text": str(n)}) + "\n" for n in range(1_000)))
    planned = step.planner()(LimitedSettings(data=str(file), limit=30), {})
    assert planned.seconds == pytest.approx(5.0 + 1.0 + 0.01 * 30)
    assert planned.disk == 300


def test_a_fault_in_a_row_is_told_with_the_name_of_the_users_file(tmp_path):
    def work(settings, run):
        raise InputError(f"{settings.data}:1: no score")

    file = tmp_path / "mine.jsonl"
    file.write_text('{"text": "a"}\n')
    step = Step(CountSettings, work, "Fail.", planned_rows_setting="data")
    with pytest.raises(InputError, match=r"mine\.jsonl:1: no score"):
        step.planner()(CountSettings(data=str(file)), {})


def test_half_a_character_is_left_to_the_step(clock, tmp_path):
    def work(settings, _):
        clock[0] += 1.0
        read.append(Path(settings.data).read_text())

    read = []
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "a \\ud83d"}\n')
    step = Step(CountSettings, work, "Count.", planned_rows_setting="data")
    assert step.planner()(CountSettings(data=str(file)), {}).seconds == 1.0
    assert set(read) == {file.read_text()}


def test_an_error_names_the_source_and_not_its_slice(tmp_path):
    def work(settings, _):
        raise InputError(f"{settings.data} holds no texts")

    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": ""}\n')
    with pytest.raises(InputError) as told:
        Step(CountSettings, work, "Count.", planned_rows_setting="data").planner()(
            CountSettings(data=str(file)), {}
        )
    assert str(told.value) == f"{file} holds no texts"
