"""The step answer, on a small random reader, teacher and student."""

import json
import shutil

import pyarrow as pa
import pytest
from tests.heard import Heard
from tests.planned import planned
from tests.tagged_sentences import make_student

from pairsmith.cli.app import main
from pairsmith.core.errors import FolderError, InputError, ModelError, StorageError
from pairsmith.core.progress import Silent
from pairsmith.models import question_answering
from pairsmith.models.reader import answer as answer_with_reader
from pairsmith.models.reader import load_reader
from pairsmith.models.span_answers import answer_with_span_encoder
from pairsmith.models.span_encoder import load_span_encoder
from pairsmith.models.span_heads import SpanHeads, save_heads
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.estimate import Estimate
from pairsmith.runs.identity import Identity
from pairsmith.steps.evaluate.qa import evaluate_qa
from pairsmith.steps.evaluate.settings import EvaluateQaSettings
from pairsmith.steps.questions.answer import answer
from pairsmith.steps.questions.settings import AnswerSettings

pytestmark = pytest.mark.slow

TEXT = "  A man is playing. A woman is slicing an onion. Two dogs run on the beach."
LONG = f"{TEXT} The stock market fell again today; the weather was not good, they said. " * 6
QUESTIONS = [
    ("Who is slicing an onion?", TEXT),
    ("Where do the dogs run?", TEXT),
    ("What fell?", LONG),
    ("Who is playing?", TEXT),
    ("Who is talking?", "Someone is talking about a child who rides a horse."),
]


@pytest.fixture(scope="module")
def models(tiny_bert, tmp_path_factory):
    """A teacher, a reader as transformers saves it, and a student, all random."""
    from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

    folder = tmp_path_factory.mktemp("answering")
    save_heads(SpanHeads(16, "tokens", seed=2), shutil.copytree(tiny_bert, folder / "teacher"))
    BertForQuestionAnswering(BertConfig.from_pretrained(tiny_bert)).save_pretrained(folder / "reader")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder / "reader")
    make_student(tiny_bert, folder)
    return folder


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def data(tmp_path):
    rows = [
        {"id": f"q{n}", "question": question, "context": context, "url": f"u{n}", "score": n}
        for n, (question, context) in enumerate(QUESTIONS)
    ]
    return write(tmp_path / "questions.jsonl", rows)


def of(model, data, **more):
    return AnswerSettings(**{"model": str(model), "data": str(data), "device": "cpu", **more})


def files(out):
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*.parquet"))}


@pytest.mark.parametrize("kind", ["teacher", "reader", "student"])
def test_each_question_gets_the_models_answer_and_keeps_its_columns(models, data, tmp_path, kind):
    folder = answer(of(models / kind, data, max_length=48), Run(tmp_path / "out", Silent()))
    questions, contexts = map(list, zip(*QUESTIONS, strict=True))
    if kind == "student":
        encoder = load_span_encoder(str(models / kind), device="cpu", max_length=48)
        expected = answer_with_span_encoder(encoder, questions, contexts)
    else:
        reader = load_reader(str(models / kind), device="cpu", max_length=48)
        expected = answer_with_reader(reader, questions, contexts)
    rows = folder.table().to_pylist()
    assert list(rows[0]) == [
        "id",
        "context",
        "question",
        "answer",
        "answer_start",
        "confidence",
        "url",
        "score",
    ]
    assert [row["id"] for row in rows] == ["q0", "q1", "q2", "q3", "q4"]
    assert [(row["question"], row["context"]) for row in rows] == QUESTIONS
    assert [(row["url"], row["score"]) for row in rows] == [(f"u{n}", f"{n}") for n in range(5)]
    assert [(row["answer"], row["answer_start"]) for row in rows] == [
        (prediction.text, prediction.start) for prediction in expected
    ]
    assert [row["confidence"] for row in rows] == pytest.approx([said.score for said in expected], rel=1e-3)
    for row in rows:
        assert row["context"][row["answer_start"] :].startswith(row["answer"])
        assert 0 < row["confidence"] <= 1
    card = (tmp_path / "out" / "README.md").read_text()
    assert "question-answering" in card
    assert "the column url of the source" in card
    assert "## Scores" not in card


def test_the_answers_are_those_that_evaluate_qa_measures(models, tmp_path):
    rows = [
        {"question": question, "context": context, "answers": {"text": ["A"], "answer_start": [0]}}
        for question, context in QUESTIONS[:4]
    ]
    data = write(tmp_path / "gold.jsonl", [row | {"context": f"A {row['context']}"} for row in rows])
    given = EvaluateQaSettings(model=str(models / "student"), data=str(data), device="cpu", bootstrap=0)
    evaluate_qa(given, Run(tmp_path / "measured", Silent()))
    lines = (tmp_path / "measured" / "predictions.jsonl").read_text().splitlines()
    folder = answer(of(models / "student", data), Run(tmp_path / "out", Silent()))
    answered = folder.table().to_pylist()
    assert [(row["id"], row["answer"]) for row in answered] == [
        (line["id"], line["prediction"]) for line in map(json.loads, lines)
    ]
    # As text, under a name from which no step reads lists.
    assert json.loads(answered[0]["original_answers"]) == rows[0]["answers"]
    assert "answers" not in answered[0]


def test_blank_questions_and_passages_without_tokens_are_rejects(models, tmp_path):
    rows = [
        {"id": "a", "question": " ", "context": TEXT, "answers": "not in the passage"},
        {"id": "b", "question": "Who?", "context": "\n"},
        {"id": "c", "question": "Who?", "context": None},
        {"id": "d", "question": "Who?", "context": "\u200b"},
        {"id": "e", "question": "Who?", "context": TEXT},
    ]
    data = write(tmp_path / "in.jsonl", rows)
    for kind in ("teacher", "student"):
        folder = answer(of(models / kind, data), Run(tmp_path / kind, Silent()))
        assert folder.table()["id"].to_pylist() == ["e"]
        rejects = folder.rejects().to_pylist()
        assert [(row["id"], row["filter"], row["reason"]) for row in rejects] == [
            ("a", "empty", "the question is blank"),
            ("b", "empty", "the passage is blank"),
            ("c", "empty", "the passage is blank"),
            ("d", "no answer", "the passage has no tokens"),
        ]
        assert json.loads(rejects[0]["row"])["original_answers"] == "not in the passage"
    only_rejects = write(tmp_path / "blank.jsonl", rows[:2])
    assert answer(of(models / "teacher", only_rejects), Run(tmp_path / "blank", Silent())).rows == 0


def test_a_table_with_a_bom_and_columns_of_the_same_names(models, tmp_path):
    lines = [
        "Question,context,answer,confidence,answer_start,id",
        f'Who?,"{TEXT}",x,high,7,same',
        f'Where?,"{TEXT}",y,low,8,same',
    ]
    (tmp_path / "in.csv").write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    once = answer(of(models / "student", tmp_path / "in.csv"), Run(tmp_path / "once", Silent()))
    rows = once.table().to_pylist()
    assert [row["id"] for row in rows] == ["same", "same"]
    own = ["original_answer", "original_confidence", "original_answer_start"]
    assert [[row[name] for name in own] for row in rows] == [["x", "high", "7"], ["y", "low", "8"]]
    assert rows[0]["context"] == TEXT
    twice = answer(of(models / "teacher", tmp_path / "once"), Run(tmp_path / "twice", Silent()))
    again = twice.table().to_pylist()
    assert again[0]["original_original_answer"] == rows[0]["answer"]
    assert again[0]["original_answer"] == "x"


def test_an_official_file_with_impossible_questions_is_answered_whole(models, tmp_path):
    answers = [{"text": "beach", "answer_start": TEXT.index("beach")}]
    questions = [
        {"id": "1", "question": "Where?", "answers": answers, "is_impossible": False},
        {"id": "2", "question": "Who sings?", "answers": [], "is_impossible": True},
        {"id": "3", "question": "Who?"},
    ]
    articles = [{"title": "Sea", "paragraphs": [{"context": TEXT, "qas": questions}]}]
    (tmp_path / "dev.json").write_text(json.dumps({"version": "v2.0", "data": articles}))
    rows = answer(of(models / "reader", tmp_path / "dev.json"), Run(tmp_path / "out", Silent())).table()
    assert rows["id"].to_pylist() == ["1", "2", "3"]
    assert rows["is_impossible"].to_pylist() == ["false", "true", None]
    assert rows["title"].to_pylist() == ["Sea"] * 3
    assert json.loads(rows["original_answers"][0].as_py()) == answers


def test_a_question_without_an_id_gets_that_of_its_text(models, tmp_path):
    rows = [{"question": question, "context": context} for question, context in QUESTIONS[:2]]
    data = write(tmp_path / "in.jsonl", [*rows, {**rows[0], "id": 7}, rows[0]])
    ids = answer(of(models / "student", data), Run(tmp_path / "out", Silent())).table()["id"].to_pylist()
    assert ids[2] == "7"
    assert ids[0] == ids[3] != ids[1]


def test_a_stopped_run_goes_on_and_several_workers_give_the_same(models, data, tmp_path, monkeypatch):
    settings = of(models / "teacher", data, shard_size=2)
    answer(settings, Run(tmp_path / "whole", Silent()))
    calls = []

    def failing(reader, questions, contexts, **more):
        calls.append(len(questions))
        if len(calls) == 2:
            raise StorageError("no space left")
        return answer_with_reader(reader, questions, contexts, **more)

    monkeypatch.setattr(question_answering, "answer", failing)
    with pytest.raises(StorageError):
        answer(settings, Run(tmp_path / "out", Silent()))
    answer(settings, Run(tmp_path / "out", Silent()))
    assert calls == [2, 2, 2, 1]
    answer(settings.model_copy(update={"workers": 2}), Run(tmp_path / "wide", Silent()))
    assert files(tmp_path / "whole") == files(tmp_path / "out") == files(tmp_path / "wide")
    heard = Heard()
    assert answer(settings, Run(tmp_path / "out", heard)).rows == 5
    assert any("nothing to do" in line for line in heard.lines)
    with pytest.raises(FolderError, match="max_answer_tokens"):
        answer(settings.model_copy(update={"max_answer_tokens": 2}), Run(tmp_path / "out", Silent()))


def test_the_command_and_what_it_refuses(models, tiny_bert, data, tmp_path, capsys):
    command = ["answer", "--model", str(models / "reader"), "--data", str(data), "--device", "cpu"]
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert "answer: 5/5 questions · 100 %" in said
    assert f"next: pairsmith export --data {tmp_path / 'out'} --form csv" in said
    with pytest.raises(SystemExit, match="0"):
        main(["export", "--data", str(tmp_path / "out"), "--form", "csv", "--out", str(tmp_path / "table")])
    assert (tmp_path / "table" / "train.csv").read_text().startswith("id,context,question,answer,")
    assert DatasetFolder.open(tmp_path / "out").rows == 5
    never = Run(tmp_path / "never", Silent())
    with pytest.raises(ModelError, match="give a model that train-teacher, train-reader or infuse wrote"):
        answer(of(tiny_bert, data), never)
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(InputError, match=r"empty.jsonl holds no questions"):
        answer(of(models / "reader", tmp_path / "empty.jsonl"), never)
    (tmp_path / "lines.txt").write_text("Who?\n")
    with pytest.raises(InputError, match="lacks the columns context, question; rename"):
        answer(of(models / "reader", tmp_path / "lines.txt"), never)
    late = write(tmp_path / "late.jsonl", [{"question": "Who?", "context": TEXT}, {"question": "Who?"}])
    with pytest.raises(InputError, match=r"late.jsonl:2: no column 'context', which earlier rows have"):
        answer(of(models / "reader", late), never)
    number = write(tmp_path / "number.jsonl", [{"question": "Who?", "context": 3}])
    with pytest.raises(InputError, match=r"number.jsonl:1: column 'context' holds a number, not text"):
        answer(of(models / "reader", number), never)
    assert not (tmp_path / "never").exists()


def test_answers_can_be_planned(models, tiny_bert, data, tmp_path):
    estimate = planned("answer", of("@student", data), {"@student": Estimate(1.0, 1, 1, {})}, str(tiny_bert))
    assert estimate.rows == {"train": 5}
    assert estimate.seconds > 0
    assert estimate.sample.column_names[-2:] == ["url", "score"]
    asked = {"id": ["1", "2"], "context": [TEXT] * 2, "question": ["Who?", "Where?"]}
    earlier = Estimate(1.0, 1, 1, {"train": 90}, sample=pa.table(asked))
    assert planned("answer", of(models / "student", "@asked"), {"@asked": earlier}).rows == {"train": 90}
    blank = write(tmp_path / "blank.jsonl", [{"question": "", "context": TEXT}])
    assert planned("answer", of(models / "student", blank), {}).rows == {"train": 0}


def test_folders_that_are_there_are_recognised():
    actual = Identity.of("answer", of("m", "d").deciding(), {}, {}).fingerprint
    assert actual[:16] == "3c14a72f3b430310", (
        "folders of earlier versions are refused (CONTRIBUTING.md, “add an option”)"
    )
