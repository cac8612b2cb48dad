"""Every training learns from the split ``train`` of a folder, and looks at ``validation``."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.training.few import pairs, reading, summaries

from pairsmith.cli.steps import STEPS
from pairsmith.core.errors import InputError
from pairsmith.core.progress import Progress, Silent
from pairsmith.runs import Run
from pairsmith.steps.training.biencoder import train_biencoder
from pairsmith.steps.training.crossencoder import train_crossencoder
from pairsmith.steps.training.question_generator import train_question_generator
from pairsmith.steps.training.reader import train_reader
from pairsmith.steps.training.reading import with_training_splits
from pairsmith.steps.training.settings import (
    TrainReaderSettings,
)
from pairsmith.steps.training.student import infuse
from pairsmith.steps.training.summarizer import train_summarizer
from pairsmith.steps.training.teacher import train_teacher

pytestmark = pytest.mark.slow

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


TRAININGS = {
    train_biencoder: ("pairs", ("seeds",)),
    train_crossencoder: ("pairs", ("seeds",)),
    train_reader: ("reading", ("seeds", "added")),
    train_summarizer: ("summaries", ("seeds", "added")),
    train_question_generator: ("reading", ("data",)),
    train_teacher: ("reading", ("data",)),
    infuse: ("reading", ("data",)),
}


@pytest.mark.parametrize("step", TRAININGS, ids=lambda step: step.name)
def test_what_is_learned_from_is_train(step, tmp_path, tiny_bert, capsys):
    form, learned = TRAININGS[step]
    source = folder(tmp_path / "in", MAKERS[form])
    given = {name: source if name == "seeds" else [source] for name in learned}
    if step is infuse:
        given["labels"] = "answers"
    settings = STEPS[step.name].settings(base=str(tiny_bert), validation=source, device="cpu", **given)
    read = []

    def refuse(settings, most):
        read.append(settings)
        raise InputError("read enough")

    with pytest.raises(InputError, match="read enough"):
        replace(step, read=refuse)(settings, Run(tmp_path / "out", Progress()))
    for name in learned:
        assert getattr(read[0], name) in (f"{source}:train", [f"{source}:train"])
    assert read[0].validation == f"{source}:validation"
    said = capsys.readouterr().err
    assert "in: its split train is trained on; test, validation is not" in said
    assert "in: its split validation is measured on; train, test is not" in said


def test_a_training_on_a_folder_takes_its_training_rows(tmp_path, tiny_bert):
    source = folder(tmp_path / "in", reading)
    given = TrainReaderSettings(
        base=str(tiny_bert), seeds=source, validation=source, steps=2, batch_size=2, device="cpu"
    )
    train_reader(given, Run(tmp_path / "out", Silent()))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| seeds | 4 |" in card
    assert "| validation examples | 2 |" in card


def test_an_empty_name_of_validation_rows_means_none(tmp_path, monkeypatch):
    source = folder(tmp_path / "in", reading)
    monkeypatch.chdir(tmp_path / "in")  # a folder with data/, as which an empty name could be taken
    assert with_training_splits(TrainReaderSettings(base="b", seeds=source, validation="")).validation == ""
