"""What a training on seeds says about validation and added examples that it leaves out."""

import json

import pytest

from pairsmith.core.progress import Silent
from pairsmith.steps.training.reader import added_questions
from pairsmith.steps.training.reading import SeedData, Seeds, read_validation
from pairsmith.steps.training.settings import TrainReaderSettings, TrainSummarizerSettings
from pairsmith.steps.training.summarizer import train_summarizer


class Said(Silent):
    """Keeps what is said."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def say(self, text):
        self.lines.append(text)


@pytest.mark.parametrize(
    ("repeated", "message"),
    [
        (1, "1 of 33 seeds is a duplicate and is left out"),
        (2, "2 of 34 seeds are duplicates and are left out"),
    ],
)
def test_duplicate_seeds_are_counted(repeated, message):
    said = Said()
    Seeds([*range(32)], repeated).report(said)
    assert said.lines == [message]


def test_validation_pairs_below_the_least_score_are_counted(tmp_path):
    rows = [{"sentence1": f"a {score}", "sentence2": "b", "score": score} for score in (0.9, 0.2, 0.5)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = str(tmp_path / "pairs.jsonl")
    examples, left_out = read_validation(source, "pairs", 0.5)
    assert [example.input for example in examples] == ["a 0.9", "a 0.5"]
    assert left_out == "1 of 3 validation pairs have a score below --least-score and are left out"
    assert read_validation(source, "pairs")[1] == ""
    assert read_validation(None, "pairs", 0.5) == ([], "")


def questions(path, *answers):
    rows = [
        {
            "question": f"Who {n}?",
            "context": "A man.",
            "answers": {"text": texts, "answer_start": [0] * len(texts)},
        }
        for n, texts in enumerate(answers)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_added_questions_without_an_answer_are_counted(tmp_path):
    source = questions(tmp_path / "added.jsonl", ["A man"], [], [])
    settings = TrainReaderSettings(base="b", seeds="s", added=source)
    added, repeats, unanswered = added_questions(settings, [])
    assert ([question.question for question in added], repeats, unanswered) == (["Who 0?"], 0, 2)
    data = SeedData(Seeds([*range(20)], 0), [], added, unanswered=unanswered)
    said = Said()
    data.report(said, what="questions")
    assert said.lines == ["2 of 3 added questions have no answer and are left out"]
    assert data.added_facts("questions") == {
        "added questions": 1,
        "added questions without an answer left out": 2,
    }


def test_added_questions_without_an_answer_are_counted_for_a_summarizer(tmp_path, monkeypatch):
    monkeypatch.setattr("pairsmith.steps.training.summarizer.refuse_both_ways", lambda _: None)
    seeds = questions(tmp_path / "seeds.jsonl", ["A man"])
    added = questions(tmp_path / "added.jsonl", ["man"], [], [])
    settings = TrainSummarizerSettings(base="b", kind="reading", seeds=seeds, added=added)
    data = train_summarizer.read(settings, None)
    assert (len(data.added), data.repeats, data.unanswered) == (1, 0, 2)


def test_validation_questions_without_an_answer_are_counted_for_a_summarizer(tmp_path, monkeypatch):
    monkeypatch.setattr("pairsmith.steps.training.summarizer.refuse_both_ways", lambda _: None)
    seeds, validation = (
        questions(tmp_path / f"{name}.jsonl", ["A man"], []) for name in ("seeds", "validation")
    )
    settings = TrainSummarizerSettings(base="b", kind="reading", seeds=seeds, validation=validation)
    data = train_summarizer.read(settings, None)
    assert data.left_out == "1 of 2 validation questions have no answer and are left out"
