"""Asking and answering that are stopped between two shards go on to the same bytes, with nothing done twice."""

import pytest
from tests.tiny_bart import make_asker

from pairsmith.core.errors import StorageError
from pairsmith.core.progress import Silent
from pairsmith.methods.quip.cloze_generator import ClozeGenerator
from pairsmith.methods.quip.sequence_generator import SequenceGenerator
from pairsmith.models.reader import load_reader
from pairsmith.runs import Run
from pairsmith.steps.questions import relabel as relabelling
from pairsmith.steps.questions.ask import ask
from pairsmith.steps.questions.relabel import relabel
from pairsmith.steps.questions.settings import AskSettings, RelabelSettings
from pairsmith.steps.training.teacher import save_teacher

pytestmark = pytest.mark.slow

TEXTS = [f"Anna Berg built mill {number} in {1800 + number} for the town." for number in range(6)]


def files(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.parquet"))}


@pytest.fixture
def ask_settings(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    settings = AskSettings(inputs=[str(tmp_path / "texts.txt")], model="cloze", questions=2, shard_size=2)
    ask(settings, Run(tmp_path / "asked", Silent()))
    return settings


def failing_at(real, turn, calls):
    def work(*given, **more):
        calls.append(given)
        if len(calls) == turn:
            raise StorageError("no space left")
        return real(*given, **more)

    return work


def test_asking(ask_settings, tmp_path, monkeypatch):
    calls = []
    real = ClozeGenerator.generate
    monkeypatch.setattr(ClozeGenerator, "generate", failing_at(real, 2, calls))
    with pytest.raises(StorageError):
        ask(ask_settings, Run(tmp_path / "out", Silent()))
    ask(ask_settings, Run(tmp_path / "out", Silent()))
    # One before, one that failed, two after.
    assert [len(passages) for _, passages, *_ in calls] == [2, 2, 2, 2]
    assert files(tmp_path / "out") == files(tmp_path / "asked")


def test_asking_with_a_network(tmp_path, monkeypatch):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    settings = AskSettings(
        inputs=[str(tmp_path / "texts.txt")],
        model=str(make_asker(tmp_path / "asker")),
        questions=2,
        top_p=1.0,
        shard_size=2,
        device="cpu",
    )
    folder = ask(settings, Run(tmp_path / "whole", Silent()))
    assert folder.rows > 2
    calls = []
    real = SequenceGenerator.generate
    monkeypatch.setattr(SequenceGenerator, "generate", failing_at(real, 2, calls))
    with pytest.raises(StorageError):
        ask(settings, Run(tmp_path / "out", Silent()))
    ask(settings, Run(tmp_path / "out", Silent()))
    assert [len(passages) for _, passages, *_ in calls] == [2, 2, 2, 2]
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_answering(ask_settings, tiny_bert, tmp_path, monkeypatch):
    teacher = load_reader(str(tiny_bert), device="cpu", fresh_head=True, perceptrons=True)
    save_teacher(teacher, "A random teacher.", tmp_path / "teacher")
    settings = RelabelSettings(
        data=[str(tmp_path / "asked")], model=str(tmp_path / "teacher"), shard_size=5, device="cpu"
    )
    relabel(settings, Run(tmp_path / "whole", Silent()))
    calls = []
    monkeypatch.setattr(relabelling, "add_labels", failing_at(relabelling.add_labels, 3, calls))
    with pytest.raises(StorageError):
        relabel(settings, Run(tmp_path / "out", Silent()))
    relabel(settings, Run(tmp_path / "out", Silent()))
    assert [len(questions) for questions, *_ in calls] == [5, 5, 2, 2]
    assert files(tmp_path / "out") == files(tmp_path / "whole")
