import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.folders import write_folder
from tests.heard import Heard

from pairsmith.core.errors import FolderError, InputError, ModelError, StorageError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.questions import Distribution, read_generated_questions
from pairsmith.models import reader
from pairsmith.models.reader import TextScores, keep_max_context, load_reader
from pairsmith.models.span_heads import SpanHeads, save_heads
from pairsmith.models.teacher import _span_distributions, predict_spans
from pairsmith.runs import Run
from pairsmith.steps.questions.relabel import plan_relabel, relabel
from pairsmith.steps.questions.settings import RelabelSettings

pytestmark = pytest.mark.slow

TEXT = "A man is playing. A woman is slicing an onion. Two dogs run on the beach."
QUESTIONS = ["Who is slicing an onion?", "Where do the dogs run?", "Who is playing?"]


@pytest.fixture(scope="module")
def teacher(tiny_bert, tmp_path_factory):
    copy = shutil.copytree(tiny_bert, tmp_path_factory.mktemp("teachers") / "teacher")
    save_heads(SpanHeads(16, "tokens", seed=2), copy)
    return copy


@pytest.fixture
def data(tmp_path):
    rows = [
        {"id": str(n), "context": TEXT, "question": question, "written": "beach"}
        for n, question in enumerate(QUESTIONS)
    ]
    path = tmp_path / "asked.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def settings(teacher, data, **rest):
    return RelabelSettings(data=[data], model=str(teacher), device="cpu", **rest)


def test_the_distributions_are_those_of_the_model_by_direct_computation(teacher):
    reader = load_reader(str(teacher), device="cpu")
    told = predict_spans(reader, QUESTIONS, [TEXT] * 3, top=4)
    for question, said in zip(QUESTIONS, told, strict=True):
        given = reader.tokenizer(question, TEXT, return_tensors="pt", return_offsets_mapping=True)
        offsets = given.pop("offset_mapping")[0]
        text = torch.tensor([part == 1 for part in given.sequence_ids(0)])
        with torch.inference_mode():
            output = reader.model(**given)
        for logits, side, places in (
            (output.start_logits[0], 0, said.starts),
            (output.end_logits[0], 1, said.ends),
        ):
            likely, tokens = logits[text].softmax(dim=0).sort(descending=True)
            assert list(places.positions) == offsets[text][tokens[:4], side].tolist()
            assert list(places.probabilities) == pytest.approx(likely[:4].tolist(), rel=1e-4)
        assert TEXT[said.best.start :].startswith(said.best.text)


def test_tokens_of_white_space_have_no_probability():
    scores = torch.tensor([[1.0, 9.0, 0.0], [0.0, 9.0, 2.0]])
    offsets = torch.tensor([[0, 2], [2, 4], [4, 6]])
    text = TextScores(scores, offsets, allowed=torch.tensor([True, False, True]))
    said = _span_distributions("ab  cd", text, top=8, max_tokens=3)
    sigmoid = [1 / (1 + math.exp(-logit)) for logit in (1, -1, 2, -2)]
    assert (said.starts.positions, said.ends.positions) == ((0, 4), (6, 2))
    assert said.starts.probabilities == pytest.approx(sigmoid[:2])
    assert said.ends.probabilities == pytest.approx(sigmoid[2:])
    assert (said.best.text, said.best.score) == ("ab  cd", pytest.approx(sigmoid[0] * sigmoid[2]))


def test_a_long_text_has_one_distribution_over_all_its_windows(teacher):
    long = " ".join([TEXT] * 6)
    reader = load_reader(str(teacher), device="cpu", max_length=48)
    (said,) = predict_spans(reader, QUESTIONS[:1], [long], top=10_000)
    words = len(reader.tokenizer(long, add_special_tokens=False, verbose=False)["input_ids"])
    assert len(said.starts.positions) == len(set(said.starts.positions)) == words
    assert sum(said.starts.probabilities) == pytest.approx(1.0, abs=1e-4)
    assert predict_spans(reader, [], []) == []


def test_a_blank_text_has_no_answer_and_damaged_weights_are_told(teacher):
    reader = load_reader(str(teacher), device="cpu")
    (said,) = predict_spans(reader, ["Who?"], [" "])
    assert (said.starts, said.ends, said.best.text) == (Distribution((), ()), Distribution((), ()), "")
    with torch.no_grad():
        reader.model.heads.start[2].bias.fill_(float("nan"))
    with pytest.raises(ModelError, match="not finite"):
        predict_spans(reader, ["Who?"], [TEXT])


def test_rows_stay_in_their_order_and_can_be_read_again(teacher, data, tmp_path):
    folder = relabel(settings(teacher, data, shard_size=2), Run(tmp_path / "out", Silent()))
    rows = folder.table().to_pylist()
    assert [row["question"] for row in rows] == QUESTIONS
    assert [row["written"] for row in rows] == ["beach"] * 3
    questions = list(read_generated_questions(str(folder.path)))
    for question in questions:
        assert len(question.starts.positions) == 8
        assert list(question.starts.probabilities) == sorted(question.starts.probabilities, reverse=True)
        assert 0 < sum(question.ends.probabilities) <= 1 + 1e-6
        assert question.answer is not None
    assert "Jia" in (tmp_path / "out" / "README.md").read_text()


def test_only_sure_answers_and_those_that_were_written_are_kept_if_that_is_asked_for(teacher, data, tmp_path):
    every = relabel(settings(teacher, data), Run(tmp_path / "every", Silent())).table().to_pylist()
    reader = load_reader(str(teacher), device="cpu")
    told = predict_spans(reader, QUESTIONS, [TEXT] * 3)
    assert [row["confidence"] for row in every] == pytest.approx(
        [prediction.best.score for prediction in told]
    )
    middle = sorted(row["confidence"] for row in every)[1]
    given = settings(teacher, data, least_confidence=middle * (1 - 1e-6))
    folder = relabel(given, Run(tmp_path / "sure", Silent()))
    assert [row["question"] for row in folder.table().to_pylist()] == [
        row["question"] for row in every if row["confidence"] >= middle
    ]
    (lost,) = folder.rejects().to_pylist()
    assert lost["filter"] == "uncertain"
    answers = [row["answers"]["text"][0] for row in every]
    rows = [json.loads(line) for line in Path(data).read_text().splitlines()]
    rows[0]["written"] = f"The {answers[0].upper()}!"
    rows[1]["written"] = f"{answers[1]} {answers[1]} nothing of it here"
    rows[2]["written"] = "nothing"
    path = tmp_path / "trip.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = relabel(settings(teacher, str(path), agreement=0.9), Run(tmp_path / "same", Silent()))
    assert [row["question"] for row in folder.table().to_pylist()] == QUESTIONS[:1]
    assert {row["filter"] for row in folder.rejects().to_pylist()} == {"agreement"}


def test_what_was_kept_for_validation_stays_there(teacher, data, tmp_path, capsys):
    table = relabel(settings(teacher, data), Run(tmp_path / "all", Silent())).table()
    split = write_folder(tmp_path / "split", {"train": table[:2], "validation": table[2:]}, step="mix").path
    for source, questions in ((str(split), QUESTIONS[:2]), (f"{split}:validation", QUESTIONS[2:])):
        given = settings(teacher, source)
        folder = relabel(given, Run(tmp_path / f"of {len(questions)}", Progress()))
        assert folder.table()["question"].to_pylist() == questions
        assert plan_relabel(given, {}).rows == {"train": len(questions)}
    assert "split: its split train is answered; validation is not" in capsys.readouterr().err


def test_where_the_written_answer_stands_is_kept_however_often_it_is_answered(teacher, tmp_path):
    second = TEXT.index("A ", 1)
    row = {"id": "1", "context": TEXT, "question": QUESTIONS[0], "written": "A"}
    rows = [row | {"answers": {"text": ["A"], "answer_start": [second]}}, row | {"id": "2"}]
    source = tmp_path / "asked.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("once", "twice"):
        folder = relabel(settings(teacher, str(source)), Run(tmp_path / name, Silent()))
        source = folder.path
        assert [question.generated_span for question in read_generated_questions(str(source))] == [
            (second, second + 1),
            None,
        ]
        assert [row["written_answers"]["answer_start"] for row in folder.table().to_pylist()] == [
            [second],
            [],
        ]


def stopped(*given):
    raise StorageError("no space left")


@pytest.mark.long
def test_any_number_of_workers_gives_the_same_bytes_and_what_is_done_is_kept(teacher, data, tmp_path):
    one = relabel(settings(teacher, data, shard_size=1), Run(tmp_path / "one", Silent()))
    two = relabel(settings(teacher, data, shard_size=1, workers=2), Run(tmp_path / "two", Silent()))
    files = [
        [file.read_bytes() for file in sorted((folder.path / "data").iterdir())] for folder in (one, two)
    ]
    assert files[0] == files[1]
    again = relabel(settings(teacher, data, shard_size=1), Run(tmp_path / "one", Silent()))
    assert again.manifest == one.manifest


def test_other_heads_are_another_teacher(teacher, data, tmp_path):
    relabel(settings(teacher, data), Run(tmp_path / "out", Silent()))
    other = shutil.copytree(teacher, tmp_path / "other")
    save_heads(SpanHeads(16, "tokens", seed=3), other)
    with pytest.raises(FolderError, match="model"):
        relabel(settings(other, data), Run(tmp_path / "out", Silent()))


def test_a_question_without_a_passage_is_told_at_its_place(teacher, tmp_path):
    path = tmp_path / "asked.jsonl"
    path.write_text(json.dumps({"context": "", "question": "Who?"}) + "\n")
    with pytest.raises(InputError, match="asked.jsonl:1"):
        relabel(settings(teacher, str(path)), Run(tmp_path / "out", Silent()))


def test_probabilities_are_float32_and_never_more_than_all(teacher, data, tmp_path):
    folder = relabel(settings(teacher, data, top=10_000), Run(tmp_path / "out", Silent()))
    for row in folder.table().to_pylist():
        assert np.sum(row["starts"]["probability"]) == pytest.approx(1.0, abs=1e-4)


def test_no_questions_are_told_before_a_folder_is_made(teacher, tmp_path):
    path = tmp_path / "asked.jsonl"
    path.write_text("")
    with pytest.raises(InputError, match="no questions to answer"):
        relabel(settings(teacher, str(path)), Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


def test_letters_of_several_tokens_count_once_in_windows():
    offsets = [
        torch.tensor(window)
        for window in ([[0, 1], [1, 2], [2, 3], [2, 3], [3, 4]], [[1, 2], [2, 3], [2, 3], [3, 4], [4, 5]])
    ]
    kept = [torch.ones(5, dtype=torch.bool) for _ in offsets]
    keep_max_context(offsets, kept)
    places = [place for window, mask in zip(offsets, kept, strict=True) for place in window[mask].tolist()]
    assert places == [[0, 1], [1, 2], [2, 3], [2, 3], [3, 4], [4, 5]]


def test_a_model_that_is_no_teacher_is_told_before_its_weights_are_read(
    tiny_bert, data, tmp_path, monkeypatch
):
    monkeypatch.setattr(reader, "load_with_head", lambda *_, **__: pytest.fail("loaded for nothing"))
    with pytest.raises(
        ModelError, match="has no head for question answering, as it is of the kind Bert.*; give a"
    ):
        relabel(settings(tiny_bert, data), Run(tmp_path / "out", Silent()))
    student = shutil.copytree(tiny_bert, tmp_path / "student")
    save_heads(SpanHeads(16, "questions", seed=2), student)
    with pytest.raises(ModelError, match=r"is a student of infuse; .*; students are for answer and evaluate"):
        relabel(settings(student, data), Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


def test_unanswered_questions_of_an_official_file_are_left_out_and_counted(teacher, tmp_path):
    path = tmp_path / "dev.json"
    answers = [{"text": "beach", "answer_start": TEXT.index("beach")}]
    questions = [{"question": "Who sings?", "answers": []}, {"question": "Where?", "answers": answers}]
    articles = [{"title": "a", "paragraphs": [{"context": TEXT, "qas": [*questions, questions[0]]}]}]
    path.write_text(json.dumps({"data": articles}))
    heard = Heard()
    folder = relabel(settings(teacher, str(path)), Run(tmp_path / "out", heard))
    assert [row["question"] for row in folder.table().to_pylist()] == ["Where?"]
    assert "2 of 3 questions in SQuAD's official files have no answer and are left out" in heard.lines
