import gzip
import json
import math

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.documents import read_documents
from pairsmith.data.questions import read_generated_questions
from pairsmith.data.readers import read_texts
from pairsmith.data.squad import Answer, Question, open_passages, read_questions

HEADER = {"header": {"dataset": "SQuAD", "split": "train"}}
ROW = {
    "id": "p",
    "context": "A man plays; the man sings.",
    "qas": [
        {
            "qid": "q1",
            "question": "Who plays?",
            "answers": ["man", "a male"],
            "detected_answers": [
                {"text": "man", "char_spans": [[2, 4], [17, 19]], "token_spans": [[1, 1], [5, 5]]}
            ],
        },
        {"qid": "q2", "question": "Who runs?", "answers": [], "detected_answers": []},
        {"id": "q3", "question": "Who sings?", "detected_answers": [{"text": "x", "char_spans": [[13, 19]]}]},
    ],
}


def write(path, *rows):
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def test_a_passage_is_as_many_questions_as_have_an_answer(tmp_path):
    questions = list(read_questions(write(tmp_path / "train.jsonl.gz", HEADER, ROW)))
    text = ROW["context"]
    assert questions == [
        Question("q1", "", text, "Who plays?", (Answer("man", 2), Answer("man", 17)), ("man", "a male")),
        Question("q3", "", text, "Who sings?", (Answer("the man", 13),)),
    ]
    assert [question.golds for question in questions] == [("man", "a male"), ("the man",)]


def test_they_are_read_as_asked_too(tmp_path):
    questions = list(read_generated_questions(write(tmp_path / "train.jsonl.gz", HEADER, ROW)))
    assert [(question.id, question.answer, question.generated_answer) for question in questions] == [
        ("q1", (2, 5), "man"), ("q2", None, ""), ("q3", (13, 20), "the man"),
    ]  # fmt: skip


def test_its_passages_are_read_without_the_header(tmp_path):
    path = write(tmp_path / "train.jsonl.gz", HEADER, ROW, {**ROW, "context": "A dog."})
    documents = [(document.text, document.where) for document in read_documents(open_passages(str(path)))]
    assert documents == [(ROW["context"], "train.jsonl.gz:2"), ("A dog.", "train.jsonl.gz:3")]


@pytest.mark.parametrize("rows", [(HEADER, ROW, HEADER, ROW), ({}, HEADER, ROW, ROW)])
def test_headers_of_joined_files_and_below_a_blank_line_are_not_rows(tmp_path, rows):
    path = tmp_path / "joined.jsonl"
    path.write_text("".join(f"{json.dumps(row) if row else ''}\n" for row in rows))
    assert [question.id for question in read_questions(path)] == ["q1", "q3", "q1", "q3"]
    where = [document.where for document in read_documents(open_passages(str(path)))]
    assert where == [f"joined.jsonl:{number}" for number, row in enumerate(rows, 1) if row is ROW]


def test_a_column_called_header_may_hold_texts(tmp_path):
    path = write(tmp_path / "in.jsonl.gz", {"header": "One."}, {"header": "Two."})
    assert [record.text for record in read_texts(path, columns=["header"])] == ["One.", "Two."]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"context": "A man.", "qas": "none"}, r"train.jsonl.gz:2: .*a list called qas"),
        (
            {"context": "A man.", "qas": [{"question": "Who?"}]},
            r"train.jsonl.gz:2.qas\[0\]: .*detected_answers",
        ),
        (
            {"context": "A man.", "qas": [{"question": "Who?", "detected_answers": [], "answers": "man"}]},
            r"answers are a list of texts",
        ),
        ({"context": "A man.", "qas": ["Who?"]}, r"train.jsonl.gz:2.qas\[0\]"),
    ],
)
def test_faults_are_told_with_their_place(tmp_path, row, message):
    with pytest.raises(InputError, match=message):
        list(read_questions(write(tmp_path / "train.jsonl.gz", HEADER, row)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"answers": ["\ud800"]}, r"qas\[0\]: column 'answers' holds half a character"),
        (
            {"detected_answers": [{"char_spans": [[math.inf, 3]]}]},
            "their char_spans is expected, as MRQA has them",
        ),
    ],
)
def test_answers_that_cannot_be_stored_are_refused(tmp_path, changes, message):
    row = ROW | {"qas": [ROW["qas"][0] | changes]}
    with pytest.raises(InputError, match=message):
        list(read_questions(write(tmp_path / "train.jsonl.gz", row)))
