"""Every training learns from the split ``train`` of a folder, and looks at ``validation``."""

import json
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.training.few import pairs, reading, summaries

from pairsmith.core.progress import Progress, Silent
from pairsmith.methods.mining.few_shot import at_splits
from pairsmith.runs import Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.training.plan_few_shot import samples_of
from pairsmith.training.question_settings import InfuseSettings, TrainAskerSettings, TrainTeacherSettings
from pairsmith.training.settings import (
    TrainBiencoderSettings,
    TrainCrossencoderSettings,
    TrainReaderSettings,
    TrainSummarizerSettings,
)

MAKERS = {"pairs": pairs, "reading": reading, "summaries": summaries}
SPLITS = {"train": range(4), "validation": range(4, 6), "test": range(6, 8)}


def folder(path, maker):
    """A dataset folder as the Hub has it, of three splits."""
    (path / "data").mkdir(parents=True)
    for split, numbers in SPLITS.items():
        lines = maker(path / "rows.jsonl", numbers)
        rows = pa.Table.from_pylist([json.loads(line) for line in Path(lines).read_text().splitlines()])
        pq.write_table(rows, path / "data" / f"{split}-00000-of-00001.parquet")
    return str(path)


TRAININGS = [
    ("biencoder", TrainBiencoderSettings, "pairs", ("seeds",)),
    ("crossencoder", TrainCrossencoderSettings, "pairs", ("seeds",)),
    ("reader", TrainReaderSettings, "reading", ("seeds", "added 1")),
    ("summarizer", TrainSummarizerSettings, "summaries", ("seeds", "added 1")),
    ("asker", TrainAskerSettings, "reading", ("data 1",)),
    ("teacher", TrainTeacherSettings, "reading", ("data 1",)),
    ("student", InfuseSettings, "reading", ("data 1",)),
]


@pytest.mark.parametrize(("name", "model", "form", "learned"), TRAININGS, ids=[each[0] for each in TRAININGS])
def test_what_is_learned_from_is_train(name, model, form, learned, tmp_path, tiny_bert, monkeypatch, capsys):
    module = import_module(f"pairsmith.training.{name}")
    source = folder(tmp_path / "in", MAKERS[form])
    asked = {each.partition(" ")[0]: source for each in learned}
    if name == "student":
        asked["labels"] = "answers"
    given = model(base=str(tiny_bert), validation=source, device="cpu", **asked)
    read = {}

    def begin(*_, sources, **__):
        read.update(sources)

    monkeypatch.setattr(module, "begin", begin)
    step = "infuse" if name == "student" else f"train_{name}"
    getattr(module, step)(given, Run(tmp_path / "out", Progress()))
    assert read == dict.fromkeys(learned, f"{source}:train") | {"validation": f"{source}:validation"}
    said = capsys.readouterr().err
    assert "in: its split train is trained on; test, validation is not" in said
    assert "in: its split validation is measured on; train, test is not" in said


def test_a_training_on_a_folder_takes_its_training_rows(tmp_path, tiny_bert):
    source = folder(tmp_path / "in", reading)
    given = TrainReaderSettings(
        base=str(tiny_bert), seeds=source, validation=source, steps=2, batch_size=2, device="cpu"
    )
    import_module("pairsmith.methods.mining.reader").train_reader(given, Run(tmp_path / "out", Silent()))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| seeds | 4 |" in card
    assert "| validation | 2 |" in card


def test_a_plan_leaves_alone_what_is_not_there_yet(tmp_path, tiny_bert):
    source = folder(tmp_path / "in", reading)
    given = TrainTeacherSettings(base=str(tiny_bert), data=["@asked", source], validation=source)
    before = {"@asked": Estimate(0, 0, 0, {})}
    assert at_splits(given, later=before).data == ["@asked", f"{source}:train"]
    seeded = TrainReaderSettings(base=str(tiny_bert), seeds=source)
    with samples_of(seeded, before) as there:
        assert there.seeds == f"{source}:train"
