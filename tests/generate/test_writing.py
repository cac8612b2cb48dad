import json
from collections import defaultdict

import pytest

from pairsmith.generate.wanted import pairs_wanted
from pairsmith.generate.writing import generate_pairs, generate_texts, rows_needed, write
from pairsmith.lm.scripted import END, ScriptedModel
from pairsmith.tasks import Decoding, TaskSpec

CHARACTERS = "".join(chr(c) for c in range(32, 127)) + "\n" + "\x07\ufffd"


def spec(kind="pair", labels=(("1", ()), ("0", ("1",)))):
    given = ' First: "<X1>"' if kind == "pair" else ""
    return TaskSpec.model_validate(
        {
            "name": "test",
            "kind": kind,
            "labels": {
                float(name): {
                    "instruction": f'Label {name}.{given} Text: "',
                    "counter_labels": [float(c) for c in against],
                }
                for name, against in labels
            },
        }
    )


def always(text):
    """A model that writes ``text``, whatever it is asked."""
    return ScriptedModel(lambda prompt, done: {text[len(done)]: 1.0}, CHARACTERS)


def test_rows_come_in_the_order_of_inputs_labels_and_tries():
    written = generate_pairs(spec(), always('ok"'), ["b", "a"], rows=3)
    got = [(row.sentence1, row.score, row.sentence2) for row in written.rows]
    assert got == [(x, y, "ok") for x in "ba" for y in (1.0, 1.0, 0.0, 0.0)]
    assert len({row.id for row in written.rows}) == 8
    assert (written.asked, written.complete, written.rejects) == (4, 4, [])


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("long" * 20, "no end", "no quotation mark within the token limit"),
        ("done" + END, "no end", "the model ended the text without a quotation mark"),
        ('  "', "empty", "nothing before the quotation mark"),
        ('two\nlines"', "line break", "the text holds a line break"),
        ('a\x07bell"', "bad character", "the text holds the character U+0007"),
        ('half a \ufffd"', "bad character", "the text holds the character U+FFFD"),
    ],
)
def test_a_text_that_is_none_is_tried_again_and_then_given_up(text, name, reason):
    written = generate_pairs(spec(labels=(("1", ()),)), always(text), ["x"])
    assert written.rows == []
    assert written.complete == 0
    assert len(written.rejects) == 5
    assert {(r.filter, r.reason) for r in written.rejects} == {(name, reason)}
    row = json.loads(written.rejects[0].row)
    assert row["sentence1"] == "x"
    assert row["score"] == 1.0


def test_tries_are_taken_as_needed():
    """Fails until ``fails`` tries have been begun; counts the tries of each input."""
    tries = defaultdict(int)
    fails = {"none": 0, "one": 1, "four": 4, "five": 5}

    def following(prompt, done):
        name = prompt.split('"')[1]
        if not done:
            tries[name] += 1
            return {"y" if tries[name] > fails[name] else "n": 1.0}
        return {'"' if done[0] == "y" else END: 1.0}

    model = ScriptedModel(following, CHARACTERS)
    written = generate_pairs(spec(labels=(("1", ()),)), model, list(fails), rows=1)
    assert dict(tries) == {"none": 2, "one": 3, "four": 5, "five": 5}
    got = defaultdict(int)
    for row in written.rows:
        got[row.sentence1] += 1
    assert dict(got) == {"none": 2, "one": 2, "four": 1}
    assert written.complete == 2


def test_a_prompt_that_exceeds_the_context_is_rejected_and_the_rest_goes_on():
    model = ScriptedModel(lambda prompt, done: {'ok"'[len(done)]: 1.0}, CHARACTERS, context=100)
    done = []
    task, decoding = spec(), Decoding(max_tokens=20)
    wanted = list(pairs_wanted(task, ["short", "long " * 50], 2))
    written = write(task, model, wanted, decoding, 1, 64, done.append)
    assert {row.sentence1 for row in written.rows} == {"short"}
    assert {(r.filter, r.reason) for r in written.rejects} == {
        ("too long", "a prompt and 20 new tokens exceed the model's 100")
    }
    assert len(written.rejects) == 2
    assert sorted(w.id for w in done) == sorted(w.id for w in wanted)


def test_self_debiasing_steers_towards_what_only_the_label_likes():
    def following(prompt, done):
        if done:
            return {'"': 1.0}
        return {"a": 0.6, "b": 0.4} if "Label 1" in prompt else {"a": 0.5, "b": 0.5}

    model = ScriptedModel(following, CHARACTERS)
    share = {}
    for decay in (0.0, 100.0):
        written = generate_pairs(
            spec(),
            model,
            [str(i) for i in range(300)],
            decoding=Decoding(decay=decay, per_input=1, top_p=1.0),
        )
        zeros = [row.sentence2 for row in written.rows if row.score == 0.0]
        share[decay] = zeros.count("a") / len(zeros)
    assert share[0.0] == pytest.approx(0.5, abs=0.1)
    # delta = -0.1, so alpha is floored at 0.01: 0.005 / 0.505
    assert share[100.0] == pytest.approx(0.0099, abs=0.02)


def test_single_texts():
    written = generate_texts(spec("text"), always('ok"'), decoding=Decoding(per_input=3))
    assert [(row.id, row.text, row.label) for row in written.rows] == [
        (f"{label}-{i:06d}", "ok", label) for i in range(3) for label in ("1", "0")
    ]


def test_rows_depend_on_the_seed_and_not_on_the_batch():
    def following(prompt, done):
        return {"a": 0.3, "b": 0.3, "c": 0.2, '"': 0.2}

    model = ScriptedModel(following, CHARACTERS)
    inputs = [f"text {i}" for i in range(30)]
    runs = [generate_pairs(spec(), model, inputs, seed=s, rows=r) for s, r in ((1, 256), (1, 2), (2, 256))]
    assert runs[0].rows == runs[1].rows
    assert runs[0].rejects == runs[1].rejects
    assert runs[0].rows != runs[2].rows
    alone = generate_pairs(spec(), model, inputs[7:8])
    assert alone.rows == [row for row in runs[0].rows if row.sentence1 == "text 7"]


def test_a_task_of_the_other_kind_is_refused():
    with pytest.raises(ValueError, match="call generate_texts"):
        generate_pairs(spec("text"), always('ok"'), ["x"])
    with pytest.raises(ValueError, match="call generate_pairs"):
        generate_texts(spec(), always('ok"'))


def test_rows_needed_counts_a_label_and_its_counter_labels():
    assert rows_needed(spec()) == 2
    assert rows_needed(spec(labels=(("1", ()),))) == 1


def test_equal_inputs_give_equal_rows():
    written = generate_pairs(spec(), always('ok"'), ["a", "a", "b"])
    assert [row.sentence1 for row in written.rows] == ["a"] * 8 + ["b"] * 4
    assert written.rows[:4] == written.rows[4:8]
