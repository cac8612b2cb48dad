"""Reading seeds: what a file with several faults is told."""

import json

import pytest

from pairsmith.core.errors import InputError
from pairsmith.data.examples import all_examples, all_questions, read_examples


def written(path, rows):
    path.write_text("".join(row if isinstance(row, str) else f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def test_all_faulty_rows_are_told(tmp_path):
    good = {"input": "who?", "output": "she"}
    rows = [{"input": "who?", "output": 1}, good, {"input": "when?"}, good, {"input": " ", "output": "x"}]
    with pytest.raises(InputError) as told:
        read_examples(written(tmp_path / "s.jsonl", rows), "pairs")
    lines = str(told.value).splitlines()
    assert lines[0] == "3 of 5 rows have a fault:"
    assert [line[: line.index(": ")] for line in lines[1:]] == ["s.jsonl:1", "s.jsonl:3", "s.jsonl:5"]
    assert "column 'output' holds a number" in lines[1]
    assert "no column 'output'" in lines[2]
    assert "input is blank" in lines[3]


@pytest.mark.parametrize(("faults", "more"), [(5, []), (7, ["and 2 more"])])
def test_of_many_faulty_rows_the_first_are_told(tmp_path, faults, more):
    rows = [{"sentence1": "a", "sentence2": "b", "score": score} for score in range(1, 2 + faults)]
    with pytest.raises(InputError) as told:
        all_examples(written(tmp_path / "s.jsonl", rows), "scored")
    lines = str(told.value).splitlines()
    assert lines[0] == f"{faults} of {faults + 1} rows have a fault:"
    assert lines[6:] == more


def test_all_faulty_questions_are_told_and_unanswered_ones_are_no_fault(tmp_path):
    rows = [
        {"context": "Rome", "question": "where?", "answers": answer}
        for answer in ("Oslo", "Rome", "", "Bonn")
    ]
    file = written(tmp_path / "s.jsonl", [*rows, {"context": "", "question": "who?", "answers": "x"}])
    for unanswered in (False, True):
        with pytest.raises(InputError) as told:
            all_questions(file, unanswered=unanswered)
        lines = str(told.value).splitlines()
        assert lines[0] == "3 of 5 rows have a fault:"
        assert [line[: line.index(": ")] for line in lines[1:]] == ["s.jsonl:1", "s.jsonl:4", "s.jsonl:5"]
    assert len(all_questions(written(tmp_path / "t.jsonl", rows[1:3]))) == 1
    assert len(all_questions(written(tmp_path / "t.jsonl", rows[1:3]), unanswered=True)) == 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"context": "Rome", "question": "where?", "answers": "Oslo"}] * 2,
            r"^s.jsonl:1: the answer 'Oslo'",
        ),
        ([{"question": "who?"}] * 2, r"s.jsonl lacks the columns context, answers"),
        (
            [{"context": "Rome", "question": "where?", "answers": answer} for answer in ("Rome", "Oslo")]
            + ["{no JSON\n"],
            r"^s.jsonl:2: the answer 'Oslo'",
        ),
    ],
)
def test_a_single_fault_and_those_of_all_rows_are_told_as_they_are(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        read_examples(written(tmp_path / "s.jsonl", rows), "reading")


def test_seeds_of_another_kind_are_told_of_the_kinds(tmp_path):
    source = written(tmp_path / "s.jsonl", [{"context": "Rome", "question": "where?", "answers": "Rome"}])
    with pytest.raises(InputError, match=r"output or sentence2; rename .* or choose another kind: reading"):
        read_examples(source, "pairs")
