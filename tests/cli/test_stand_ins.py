"""What stands in for the results of earlier steps while a step is planned."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pairsmith.cli.planning import plan_step
from pairsmith.core.errors import InputError, SettingsError
from pairsmith.core.settings import Settings
from pairsmith.data.sources import open_source
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.planning import count_in_run


class ReadSettings(Settings):
    data: list[str]
    model: str = "m"


def step(planner):
    return SimpleNamespace(planner=lambda: planner)


BEFORE = {
    name: Estimate(1.0, 1, 1, {"train": 80, "validation": 20}, sample=pa.table({"text": ["a", "b"]}))
    for name in ("@rows", "@rows:train")
}


@pytest.mark.parametrize("reference", ["@rows", "@rows:train"])
def test_rows_to_come_are_read_from_a_folder_with_their_sample(reference):
    read = []

    def plan(settings, before):
        (folder,) = settings.data
        texts = [row["text"] for _, row in open_source(folder).rows()]
        counts = [
            count_in_run(len(texts), [folder], before, split) for split in (None, "train", "validation")
        ]
        read.append((Path(folder), texts, counts, count_in_run(5, ["in.txt", folder], before)))
        return before[folder]

    assert plan_step(step(plan), ReadSettings(data=[reference]), BEFORE) is BEFORE[reference]
    ((folder, *values),) = read
    assert values == [["a", "b"], [100, 80, 20], 5 + 98]
    assert not folder.parent.exists()


def test_two_splits_of_a_step_are_counted_separately():
    rows = {"@rows:train": 80, "@rows:validation": 20}
    before = {name: replace(BEFORE["@rows"], rows={"train": count}) for name, count in rows.items()}

    def plan(settings, estimates):
        return [count_in_run(2, [folder], estimates) for folder in settings.data]

    assert plan_step(step(plan), ReadSettings(data=list(rows)), before) == [80, 20]


def test_a_model_to_come_is_its_base_and_is_known_to_be_untrained():
    before = {"@trained": Estimate(1.0, 1, 1, {}, base="the base")}
    planner = step(lambda settings, estimates: (settings.model, settings.model in estimates))
    settings = ReadSettings(data=["in.txt"], model="@trained")
    assert plan_step(planner, settings, before) == ("the base", True)
    assert plan_step(planner, ReadSettings(data=[], model="the base"), before) == ("the base", False)


def test_errors_name_the_step_and_not_its_stand_in():
    def plan(settings, _):
        raise InputError(f"{settings.data[0]} has no column 'title'")

    with pytest.raises(InputError, match=r"^@rows has no column 'title'$"):
        plan_step(step(plan), ReadSettings(data=["@rows"]), BEFORE)


def test_a_step_that_reads_what_has_no_sample_cannot_be_planned():
    before = {"@rows": Estimate(1.0, 1, 1, {"train": 80})}
    reading = step(lambda settings, _: list(open_source(settings.data[0]).rows()))
    with pytest.raises(
        SettingsError, match="@rows: plan cannot estimate a step that reads the output of this step"
    ):
        plan_step(reading, ReadSettings(data=["@rows"]), before)
    counting = step(lambda settings, estimates: count_in_run(0, settings.data, estimates))
    assert plan_step(counting, ReadSettings(data=["@rows"]), before) == 80
