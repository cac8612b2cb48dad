"""What a training on seeds says about validation and added examples that it leaves out."""

import json

import pytest

from pairsmith.core.errors import InputError
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
    assert left_out == "1 of 3 validation pairs has a score below --least-score and is left out"
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


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (
            ["unmatched"],
            "1 of 34 pairs has a score below --least-score, so it is not a positive and is left out",
        ),
        (["unanswered"], "1 of 34 seeds has no answer and is left out"),
    ],
)
def test_one_seed_that_is_left_out_is_told_in_the_singular(left_out, message):
    said = Said()
    Seeds([*range(33)], 0, **dict.fromkeys(left_out, 1)).report(said)
    assert said.lines == [message]


def test_blank_added_documents_and_summaries_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("pairsmith.steps.training.summarizer.refuse_both_ways", lambda _: None)
    rows = [("One.", "1"), (" ", "2"), ("Three.", ""), ("Four.", None), ("Five.", "5"), ("Seed.", "6")]
    for name, chosen in (("seeds", rows[-1:]), ("added", rows)):
        lines = [json.dumps({"document": document, "summary": summary}) for document, summary in chosen]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    seeds, added = (str(tmp_path / f"{name}.jsonl") for name in ("seeds", "added"))
    data = train_summarizer.read(TrainSummarizerSettings(base="b", seeds=seeds, added=added), None)
    assert [example.input for example in data.added] == ["One.", "Five."]
    assert (data.blank, data.repeats, data.unanswered) == (3, 1, 0)
    said = Said()
    data.report(said, what="documents")
    assert said.lines[1:] == [
        "3 of 6 added documents are blank or have no summary and are left out",
        "1 of 3 added documents repeats other examples and is left out",
    ]
    assert data.added_facts("examples") == {
        "added examples": 2,
        "added examples left out as repeats": 1,
        "added examples without a text or summary left out": 3,
    }


def test_added_documents_all_without_a_summary_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("pairsmith.steps.training.summarizer.refuse_both_ways", lambda _: None)
    for name, summary in (("seeds", "1"), ("added", "")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"document": name, "summary": summary}))
    seeds, added = (str(tmp_path / f"{name}.jsonl") for name in ("seeds", "added"))
    with pytest.raises(InputError, match="added.jsonl holds no documents with a summary$"):
        train_summarizer.read(TrainSummarizerSettings(base="b", seeds=seeds, added=added), None)


def test_validation_questions_without_an_answer_are_counted_for_a_summarizer(tmp_path, monkeypatch):
    monkeypatch.setattr("pairsmith.steps.training.summarizer.refuse_both_ways", lambda _: None)
    seeds, validation = (
        questions(tmp_path / f"{name}.jsonl", ["A man"], []) for name in ("seeds", "validation")
    )
    settings = TrainSummarizerSettings(base="b", kind="reading", seeds=seeds, validation=validation)
    data = train_summarizer.read(settings, None)
    assert data.left_out == "1 of 2 validation questions has no answer and is left out"
