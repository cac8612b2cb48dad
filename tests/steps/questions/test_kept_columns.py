"""Generated questions that keep columns of the records that their texts are from."""

import json
import shutil
from functools import partial

import pytest

from pairsmith.core.errors import InputError
from pairsmith.core.progress import Silent
from pairsmith.data.questions import RELABELLED
from pairsmith.models.span_heads import SpanHeads, save_heads
from pairsmith.runs import Run
from pairsmith.steps.questions.ask import ask
from pairsmith.steps.questions.plan import plan_ask
from pairsmith.steps.questions.relabel import plan_relabel, relabel
from pairsmith.steps.questions.settings import AskSettings, RelabelSettings

pytestmark = pytest.mark.slow


@pytest.fixture
def asked(tmp_path):
    def text(number):
        return f"In {1900 + number} Ann Berg built house {number}. Bob Dahl came in {1800 + number} by boat."

    rows = [{"id": n, "text": text(n), "url": f"a/{n}", "context": "spring"} for n in range(6)]
    rows += [{**rows[0], "url": "a copy"}, {"id": 6, "text": "!?" * 20, "url": "a/6", "context": "spring"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def settings(**changes):
        given = {"inputs": [str(tmp_path / "in.jsonl")], "model": "cloze", "max_length": 16, "shard_size": 4}
        return AskSettings(**given, **changes)

    return tmp_path, settings


def test_questions_and_rejects_keep_the_columns_of_their_text(asked):
    tmp, settings = asked
    plain = ask(settings(), Run(tmp / "plain", Silent()))
    names = ["url", "original_id", "original_context"]
    given = settings(keep_column=["url", "id", "context"])
    folder = ask(given, Run(tmp / "out", Silent()))
    assert folder.table().drop_columns(names) == plain.table()
    assert plan_ask(given, {}).sample.schema == folder.schema()
    for row in folder.table().to_pylist():
        number = int(row["original_id"])
        assert (row["url"], row["original_context"]) == (f"a/{number}", "spring")
        assert f"house {number}" in row["context"] or f"18{number:02}" in row["context"]
    (reject,) = (json.loads(row["row"]) for row in folder.rejects().to_pylist())
    assert (reject["context"], reject["url"]) == ("!?" * 20, "a/6")


def test_a_teacher_lets_them_through_where_they_are_named(asked, tiny_bert):
    tmp, settings = asked
    ask(settings(keep_column=["url"]), Run(tmp / "asked", Silent()))
    teacher = shutil.copytree(tiny_bert, tmp / "teacher")
    save_heads(SpanHeads(16, "tokens", seed=2), teacher)
    given = {"data": [str(tmp / "asked")], "model": str(teacher), "device": "cpu"}
    kept = relabel(RelabelSettings(**given, keep_column=["url"]), Run(tmp / "kept", Silent()))
    plain = relabel(RelabelSettings(**given), Run(tmp / "plain", Silent()))
    assert plain.schema() == RELABELLED
    assert kept.table().drop_columns(["url"]) == plain.table()
    assert kept.table()["url"].to_pylist() == [f"a/{n}" for n in _numbers(kept)]
    with pytest.raises(InputError, match=r"--keep-column: .*asked has no column 'author'; it has: id, con"):
        relabel(RelabelSettings(**given, keep_column=["author"]), Run(tmp / "none", Silent()))


def _numbers(folder):
    """The number of the text of each question, by the year in it."""
    contexts = folder.table()["context"].to_pylist()
    return [int(text.partition(" 19")[2][:2] or text.partition(" 18")[2][:2]) for text in contexts]


def test_a_missing_column_is_named_before_a_model_is_loaded(asked):
    tmp, settings = asked
    with pytest.raises(
        InputError, match=r"--keep-column: .*in.jsonl has no column 'ulr'; did you mean 'url'"
    ):
        ask(settings(keep_column=["ulr"]), Run(tmp / "out", Silent()))
    assert not (tmp / "out").exists()


def test_columns_of_an_official_file_are_those_of_its_questions(tmp_path, tiny_bert):
    answers = [{"text": "Ann Berg", "answer_start": 0}]
    questions = [
        {"id": f"q{number}", "question": f"Who came in {number}?", "answers": answers, "hard": bool(number)}
        for number in range(2)
    ]
    paragraphs = [{"context": "Ann Berg built it.", "qas": questions}]
    data = tmp_path / "squad.json"
    data.write_text(json.dumps({"version": "1.1", "data": [{"title": "Houses", "paragraphs": paragraphs}]}))
    teacher = shutil.copytree(tiny_bert, tmp_path / "teacher")
    save_heads(SpanHeads(16, "tokens", seed=2), teacher)
    given = {"data": [str(data)], "model": str(teacher), "device": "cpu"}
    for refusing in (
        lambda wrong: relabel(wrong, Run(tmp_path / "none", Silent())),
        partial(plan_relabel, before={}),
    ):
        with pytest.raises(
            InputError,
            match=r"squad.json has no column 'titel'; did you mean 'title'\? it has: title, context, id, quest",
        ):
            refusing(RelabelSettings(**given, keep_column=["titel"]))
    kept = relabel(RelabelSettings(**given, keep_column=["title", "hard"]), Run(tmp_path / "kept", Silent()))
    assert [(row["id"], row["title"], row["hard"]) for row in kept.table().to_pylist()] == [
        ("q0", "Houses", "false"),
        ("q1", "Houses", "true"),
    ]


def test_passages_of_an_official_file_keep_their_title(tmp_path):
    answers = [{"text": "Ann Berg", "answer_start": 0}]
    questions = [{"id": "q", "question": "Who built it?", "answers": answers}]
    paragraphs = [{"context": "Ann Berg built it in 1901.", "qas": questions}]
    data = tmp_path / "squad.json"
    data.write_text(json.dumps({"version": "1.1", "data": [{"title": "Houses", "paragraphs": paragraphs}]}))
    settings = AskSettings(inputs=[str(data)], model="cloze", keep_column=["title"])
    generated = ask(settings, Run(tmp_path / "out", Silent()))
    assert set(generated.table()["title"].to_pylist()) == {"Houses"}
    assert plan_ask(settings, {}).sample.schema == generated.schema()
