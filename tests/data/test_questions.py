import json

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.questions import Distribution, GeneratedQuestion, read_generated_questions
from pairsmith.data.readers import text_id
from pairsmith.data.squad import Answer, read_questions

ROW = {
    "id": "a",
    "context": "A man plays.",
    "question": "Who plays?",
    "answers": {"text": ["A man"], "answer_start": [0]},
    "starts": {"position": [0, 2], "probability": [0.5, 0.25]},
    "ends": {"position": [5], "probability": [1.0]},
}


def read(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(read_generated_questions(path))


def test_a_row_with_a_teachers_distributions(tmp_path):
    expected = GeneratedQuestion(
        "a",
        "A man plays.",
        "Who plays?",
        "A man",
        (0, 5),
        (0, 5),
        Distribution((0, 2), (0.5, 0.25)),
        Distribution((5,), (1.0,)),
    )
    assert read(tmp_path / "rows.jsonl", ROW) == [expected]


def test_an_answer_may_stand_nowhere_and_there_may_be_no_teacher(tmp_path):
    rows = [{"context": " A man plays.", "question": "Who?"}]
    rows.append(rows[0] | {"answers": {"text": [], "answer_start": []}, "starts": None})
    unanswered = GeneratedQuestion(
        text_id("Who? A man plays."), " A man plays.", "Who?", "", None, None, None, None
    )
    assert read(tmp_path / "rows.jsonl", *rows) == [unanswered, unanswered]


def test_questions_of_two_files_without_ids_have_different_ones(tmp_path):
    row = {"context": "A man plays.", "question": "Who?", "answers": ROW["answers"]}
    (one,) = read(tmp_path / "one.jsonl", row)
    (other,) = read(tmp_path / "other.jsonl", row | {"question": "What?"})
    assert one.id != other.id
    assert one.id == next(read_questions(tmp_path / "one.jsonl")).id


def test_the_number_0_is_an_id(tmp_path):
    _, second = read(tmp_path / "rows.jsonl", ROW, ROW | {"id": 0})
    assert second.id == "0"


def test_mined_questions_are_read(tmp_path):
    row = {name: ROW[name] for name in ("id", "context", "answers")} | {"input": "Who plays?", "margin": 1.2}
    (question,) = read(tmp_path / "rows.jsonl", row)
    assert (question.question, question.answer) == ("Who plays?", (0, 5))


def test_rows_of_another_kind_are_told(tmp_path):
    with pytest.raises(InputError, match=r"has no column 'question'; .*context"):
        read(tmp_path / "rows.jsonl", {"context": "A man plays."})
    with pytest.raises(InputError, match=r"lacks the columns context, question; rename .*text"):
        read(tmp_path / "rows.jsonl", {"text": "A man plays."})


def test_the_official_form_of_squad(tmp_path):
    path = tmp_path / "dev.json"
    qa = {"id": "q", "question": "Who?", "answers": [{"text": "man", "answer_start": 2}]}
    path.write_text(json.dumps({"data": [{"paragraphs": [{"context": "A man plays.", "qas": [qa]}]}]}))
    assert list(read_generated_questions(path)) == [
        GeneratedQuestion("q", "A man plays.", "Who?", "man", (2, 5), (2, 5), None, None)
    ]


@pytest.mark.parametrize("start", [3, 1, 0, -9, 99])
@pytest.mark.parametrize("form", ["rows.jsonl", "official.json"])
def test_an_answer_at_another_place_is_taken_where_it_stands_first_by_every_reader(tmp_path, form, start):
    qa = {"id": "q", "question": "Who?", "answers": [{"text": "man", "answer_start": start}]}
    context = "A man plays, a man."
    row = {"context": context, **qa}
    if form == "official.json":
        row = {"data": [{"paragraphs": [{"context": context, "qas": [qa]}]}]}
    path = tmp_path / form
    path.write_text(json.dumps(row) + "\n")
    (question,), (generated,) = read_questions(path), read_generated_questions(path)
    assert (question.answers, generated.answer) == ((Answer("man", 2),), (2, 5))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": " "}, "blank"),
        ({"context": ""}, "blank"),
        ({"answers": {"text": ["dog"], "answer_start": [0]}}, "'dog' does not occur in its context, at 0"),
        ({"answers": 3}, "two lists"),
        ({"answers": "a dog"}, "the answer 'a dog' does not occur in its context; answers have"),
        ({"answers": {"text": [" "], "answer_start": [1]}}, "a text is expected"),
        ({"answers": {"text": ["man"], "answer_start": [None]}}, "a character position is expected"),
        ({"starts": {"position": None, "probability": [1.0]}}, "a list of numbers"),
        ({"starts": {"position": ["a"], "probability": [1.0]}}, "a list of numbers"),
        ({"starts": {"position": [1.5], "probability": [1.0]}}, "whole numbers"),
        ({"starts": [0.5]}, "position and probability"),
        ({"ends": {"position": [1, 2], "probability": [1.0]}}, "2 positions and 1 probabilities"),
        ({"written": "\ud800"}, "column 'written' holds half a character"),
        ({"ends": {"position": [13], "probability": [1.0]}}, "outside the context, which has 12"),
        ({"starts": {"position": [0, 2], "probability": [0.9, 0.2]}}, "their sum at most 1"),
        ({"starts": {"position": [0], "probability": [-0.1]}}, "each has to be above 0"),
    ],
)
def test_faults_are_told_with_their_place(tmp_path, change, message):
    with pytest.raises(InputError, match=rf"rows.jsonl:2: .*{message}"):
        read(tmp_path / "rows.jsonl", ROW, ROW | change)


def test_where_a_teacher_took_the_place_of_what_was_written(tmp_path):
    row = {**ROW, "context": "A man plays, a man.", "written": "man"}
    del row["starts"], row["ends"]
    taught = {**row, "starts": ROW["starts"], "ends": ROW["ends"]}
    told = {**taught, "written_answers": {"text": ["man"], "answer_start": [15]}}
    questions = read(tmp_path / "rows.jsonl", *({"written_answers": None, **fields} for fields in [told]))
    assert questions[0].generated_span == (15, 18)
    before = [
        question.generated_span
        for question in read(tmp_path / "rows.jsonl", row, taught, taught | {"written": "dog"})
    ]
    assert before == [(0, 5), (2, 5), None]  # without the column it can only be looked for
