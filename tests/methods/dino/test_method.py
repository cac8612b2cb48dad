import json
import os
from collections import defaultdict
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairsmith.core.errors import SettingsError
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import REJECT, SCORED_PAIR, to_table
from pairsmith.data.tasks import Decoding, TaskSpec
from pairsmith.methods.dino.method import (
    Hooks,
    generate_pairs,
    generate_texts,
    make_decoder,
    rows_needed,
    write,
)
from pairsmith.methods.dino.requests import pair_requests
from pairsmith.models.language.combine import self_debias
from pairsmith.models.language.decoder import Group
from pairsmith.models.language.scripted import END_CHARACTER, ScriptedModel
from pairsmith.runs.seeds import stream_key
from pairsmith.steps.generate.worker import restore_tries

CHARACTERS = "".join(chr(c) for c in range(32, 127)) + "\n" + "\x07\ufffd\u2003"


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


def varied(**options):
    """A model that writes sixteen letters, hardly ever the same twice."""
    return ScriptedModel(
        lambda prompt, done: {"o": 0.5, "k": 0.5} if len(done) < 16 else {'"': 1.0}, CHARACTERS, **options
    )


def by_try(*texts):
    """A model that writes ``texts`` one a try, and the tries that were begun.

    The first character must tell how a text goes on.
    """
    begun = []

    def following(prompt, done):
        if not done:
            begun.append(prompt)
            return {texts[len(begun) - 1][0]: 1.0}
        (character,) = {text[len(done)] for text in texts if text.startswith(done)}
        return {character: 1.0}

    return ScriptedModel(following, CHARACTERS), begun


def test_rows_come_in_the_order_of_inputs_labels_and_tries():
    written = generate_pairs(spec(), varied(), ["b", "a"], rows=3)
    got = [(row.id, row.sentence1, row.score) for row in written.rows]
    assert got == [
        (f"{text_id(x)}-{y}-{number}", x, float(y)) for x in "ba" for y in "10" for number in (0, 1)
    ]
    assert len({row.sentence2 for row in written.rows}) == 8
    firsts = generate_pairs(spec(), varied(), ["b", "a"], decoding=Decoding(per_input=1))
    assert firsts.rows == written.rows[::2]
    assert (written.requests, written.complete, written.rejects) == (4, 4, [])


@pytest.mark.parametrize(
    ("text", "name", "reason"),
    [
        ("long" * 20, "no end", "no quotation mark within the token limit"),
        ('  "', "empty", "nothing before the quotation mark"),
        ('two\nlines"', "line break", "the text holds a line break"),
        ('a\x07bell"', "bad character", "the text holds the character U+0007"),
        ('half a \ufffd"', "bad character", "the text holds the character U+FFFD"),
        ('x"', "copy", "the text repeats the first text"),
        (' x "', "copy", "the text repeats the first text"),
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


def test_a_text_that_the_model_ended_itself_is_none():
    """A server's model can, though the draws of the route leave the end out."""
    (request,) = pair_requests(spec(labels=(("1", ()),)), ["x"], 1)
    request.accept_or_reject(3, Group((1,), (), 0, [2, 3], "done", "end"), spec())
    assert request.texts == {}
    judged = request.rejects[3]
    assert (judged.id, judged.filter) == (f"{request.id}-try-3", "no end")
    assert judged.reason == "the model ended the text without a quotation mark"
    assert json.loads(judged.row)["sentence2"] == "done"


def test_tries_are_taken_as_needed():
    """Fails until ``fails`` tries have been begun; counts the tries of each input."""
    tries = defaultdict(int)
    fails = {"none": 0, "one": 1, "four": 4, "five": 5}

    def following(prompt, done):
        name = prompt.split('"')[1]
        if not done:
            tries[name] += 1
            return {"abcdef"[tries[name]] if tries[name] > fails[name] else "n": 1.0}
        return {"n" if done[0] == "n" else '"': 1.0}

    model = ScriptedModel(following, CHARACTERS)
    written = generate_pairs(spec(labels=(("1", ()),)), model, list(fails), rows=1)
    assert dict(tries) == {"none": 2, "one": 3, "four": 5, "five": 5}
    got = defaultdict(int)
    for row in written.rows:
        got[row.sentence1] += 1
    assert dict(got) == {"none": 2, "one": 2, "four": 1}
    assert written.complete == 2


def test_a_text_of_megabytes_is_rejected_without_being_encoded():
    model = varied(context=100)
    encode, lengths = model.encode, []
    model.encode = lambda text: lengths.append(len(text)) or encode(text)
    task, decoding = spec(), Decoding(max_tokens=20)
    written = write(task, model, pair_requests(task, ["short", "long " * 10**6], 2), decoding, 1, 64)
    assert max(lengths) < 1_000
    assert [row.sentence1 for row in written.rows] == ["short"] * 4
    assert {reject.reason for reject in written.rejects if reject.filter == "too long"} == {
        "a prompt and 20 new tokens exceed the model's 100 tokens"
    }


def test_a_prompt_that_exceeds_the_context_is_rejected_and_the_rest_goes_on():
    model = varied(context=100)
    done = []
    task, decoding = spec(), Decoding(max_tokens=20)
    requests = list(pair_requests(task, ["short", "long " * 50], 2))
    written = write(task, model, requests, decoding, 1, 64, Hooks(on_done=done.append))
    assert [row.sentence1 for row in written.rows] == ["short"] * 4
    assert {(r.filter, r.reason) for r in written.rejects} == {
        ("too long", "a prompt and 20 new tokens exceed the model's 100 tokens")
    }
    assert len(written.rejects) == 2
    assert sorted(w.id for w in done) == sorted(w.id for w in requests)


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
    with pytest.raises(SettingsError, match="call generate_texts"):
        generate_pairs(spec("text"), always('ok"'), ["x"])
    with pytest.raises(SettingsError, match="call generate_pairs"):
        generate_texts(spec(), always('ok"'))


def test_rows_needed_counts_a_label_and_its_counter_labels():
    assert rows_needed(spec()) == 2
    assert rows_needed(spec(labels=(("1", ()),))) == 1


def test_equal_inputs_give_equal_rows():
    written = generate_pairs(spec(), varied(), ["a", "a", "b"])
    assert [row.sentence1 for row in written.rows] == ["a"] * 8 + ["b"] * 4
    assert written.rows[:4] == written.rows[4:8]


def test_a_copy_of_the_first_text_takes_no_place():
    model, begun = by_try('x"', ' x "', 'y"', 'z"')
    written = generate_pairs(spec(labels=(("1", ()),)), model, ["x"])
    assert [(row.id, row.sentence2) for row in written.rows] == [
        (f"{text_id('x')}-1-0", "y"),
        (f"{text_id('x')}-1-1", "z"),
    ]
    assert [(r.id, r.filter, json.loads(r.row)["sentence2"]) for r in written.rejects] == [
        (f"{text_id('x')}-1-try-0", "copy", "x"),
        (f"{text_id('x')}-1-try-1", "copy", "x"),
    ]
    assert len(begun) == 4
    assert written.complete == 1


@pytest.mark.parametrize("first", [' Say "it"\tall ', "Say 'it' all"])
def test_a_copy_is_one_of_what_the_model_was_shown_too(first):
    (request,) = pair_requests(spec(labels=(("1", ()),)), [first], 1)
    for number, text in enumerate(["Say 'it' all", "Say it all", "say 'it' all"]):
        request.accept_or_reject(number, Group((1,), (), 0, text=text, ending="stop"), spec())
    assert [request.rejects[0].filter, *request.rejects] == ["copy", 0]
    assert request.texts == {1: "Say it all", 2: "say 'it' all"}


def test_a_repeat_takes_no_place():
    model, begun = by_try('a"', 'a"', ' a "', 'b"', 'c"')
    written = generate_pairs(spec(labels=(("1", ()),)), model, ["x"], rows=1)
    assert [(row.id, row.sentence2) for row in written.rows] == [
        (f"{text_id('x')}-1-0", "a"),
        (f"{text_id('x')}-1-1", "b"),
    ]
    assert [(r.id, r.filter, r.reason, json.loads(r.row)["sentence2"]) for r in written.rejects] == [
        (f"{text_id('x')}-1-try-{number}", "duplicate", "repeats the text of an earlier try", "a")
        for number in (1, 2)
    ]
    assert len(begun) == 4
    assert written.complete == 1


def test_where_all_tries_repeat_one_text_is_kept():
    written = generate_pairs(spec(), always('ok"'), ["b", "a"])
    got = [(row.id, row.sentence1, row.score, row.sentence2) for row in written.rows]
    assert got == [(f"{text_id(x)}-{y}-0", x, float(y), "ok") for x in "ba" for y in "10"]
    assert [(r.id, r.filter) for r in written.rejects] == [
        (f"{text_id(x)}-{y}-try-{number}", "duplicate") for x in "ba" for y in "10" for number in range(1, 5)
    ]
    assert (written.requests, written.complete) == (4, 0)


def test_of_equal_texts_that_of_the_earliest_try_stays_though_it_ends_last():
    # Spaces around a text are no part of it, but take steps to write: the first try ends last.
    model, begun = by_try('\u2003 a"', 'a"', ' a"', 'b"', 'c"')
    name = text_id("x")
    decoding = Decoding(per_input=3)
    written = generate_pairs(spec(labels=(("1", ()),)), model, ["x"], decoding=decoding)
    assert len(begun) == 5
    assert [(row.id, row.sentence2) for row in written.rows] == [
        (f"{name}-1-0", "a"),
        (f"{name}-1-1", "b"),
        (f"{name}-1-2", "c"),
    ]
    assert [(r.id, r.filter) for r in written.rejects] == [
        (f"{name}-1-try-1", "duplicate"),
        (f"{name}-1-try-2", "duplicate"),
    ]


def one_after_the_other(task, model, inputs, decoding, seed):
    """The route in its plainest form: try, look, and try again while texts are missing."""
    rows, rejects = [], []
    for request in pair_requests(task, inputs, decoding.per_input):
        prompts = [tuple(model.encode(prompt)) for prompt in (request.prompt, *request.counter_prompts)]
        texts = []
        for number in range(decoding.tries):
            if len(texts) == decoding.per_input:
                break
            decoder = make_decoder(model, decoding, seed, prompts, None)
            decoder.add(Group(prompts[0], tuple(prompts[1:]), stream_key(request.id, number)))
            (drawn,) = decoder.finished()
            text = drawn.text.strip()
            fault = None
            if drawn.ending != "stop":
                fault = "no end"
            elif not text:
                fault = "empty"
            elif text == request.input.strip():
                fault = "copy"
            elif text in texts:
                fault = "duplicate"
            if fault is None:
                rows.append((f"{request.id}-{len(texts)}", request.input, text, float(request.label)))
                texts.append(text)
            else:
                rejects.append((f"{request.id}-try-{number}", fault, text))
    return rows, rejects


def outcome(written):
    rows = [(row.id, row.sentence1, row.sentence2, row.score) for row in written.rows]
    rejects = [(reject.id, reject.filter, json.loads(reject.row)["sentence2"]) for reject in written.rejects]
    return rows, rejects


@st.composite
def scripts(draw):
    """A model with few different texts, some of which are a first text, and more and fewer spaces."""
    shares = st.floats(0.02, 1.0)
    tables = [{c: draw(shares) for c in 'ab "'} for _ in range(4)]
    for table in tables:
        table[END_CHARACTER] = draw(st.sampled_from([0.0, 0.1, 9.0]))

    def following(prompt, done):
        table = dict(tables[2 * ("Label 1" in prompt) + (len(done) % 2)])
        if len(done.strip()) == 2:
            table = {" ": table[" "], '"': table['"'], END_CHARACTER: table[END_CHARACTER]}
        return {character: share for character, share in table.items() if share}

    return ScriptedModel(following, CHARACTERS)


@given(
    model=scripts(),
    inputs=st.lists(st.sampled_from(["a", "b", " ab", "ba", "aa", "other", "a"]), min_size=1, max_size=3),
    per_input=st.integers(1, 4),
    more=st.integers(0, 5),
    decay=st.sampled_from([0.0, 1.0, 100.0]),
    rows=st.integers(2, 30),
    seed=st.integers(0, 1000),
    data=st.data(),
)
@settings(max_examples=4 * int(os.environ.get("PAIRSMITH_GROUPS", "8")))
def test_rows_and_rejects_are_those_of_one_try_after_the_other(
    model, inputs, per_input, more, decay, rows, seed, data
):
    task = spec()
    decoding = Decoding(per_input=per_input, tries=per_input + more, decay=decay, max_tokens=6, top_p=1.0)
    expected = one_after_the_other(task, model, inputs, decoding, seed)
    written = generate_pairs(task, model, inputs, decoding=decoding, seed=seed, rows=rows)
    assert outcome(written) == expected
    few = generate_pairs(task, model, inputs, decoding=decoding, seed=seed, rows=2)
    assert few == written, "the reasons too are the same"

    # And when a run of less is continued, from the tables that it left.
    less = data.draw(st.integers(1, per_input))
    fewer = decoding.model_copy(
        update={"per_input": less, "tries": data.draw(st.integers(less, decoding.tries))}
    )
    before = generate_pairs(task, model, list(dict.fromkeys(inputs)), decoding=fewer, seed=seed)
    tables = to_table(before.rows, SCORED_PAIR), to_table(before.rejects, REJECT)
    requests = list(pair_requests(task, inputs, per_input))
    restore_tries(requests, tables)
    assert write(task, model, requests, decoding, seed, rows) == written


def test_a_label_and_an_input_have_their_own_repeats():
    """The same text for another label or another first text is none."""
    written = generate_pairs(spec(), always('ok"'), ["a", "b"], decoding=Decoding(per_input=1))
    assert [row.sentence2 for row in written.rows] == ["ok"] * 4
    assert written.rejects == []


def test_the_end_is_never_drawn_however_likely_the_model_has_it():
    ends = 0.999

    def following(prompt, done):
        rest = {"a": 0.4, "b": 0.4, '"': 0.2} if len(done) < 8 else {'"': 1.0}
        return {END_CHARACTER: ends, **{character: share * (1 - ends) for character, share in rest.items()}}

    inputs = [f"text {number}" for number in range(50)]
    model = ScriptedModel(following, CHARACTERS)
    for decay in (0.0, 100.0):
        written = generate_pairs(spec(), model, inputs, decoding=Decoding(decay=decay, top_p=1.0))
        assert {reject.filter for reject in written.rejects} <= {"empty", "duplicate"}
        assert written.complete >= 90
        texts = "".join(row.sentence2 for row in written.rows)
        assert 0.4 < texts.count("a") / len(texts) < 0.6
        # What is drawn is what the same model without an end would draw.
        ends = 0.0
        assert generate_pairs(spec(), model, inputs, decoding=Decoding(decay=decay, top_p=1.0)) == written
        ends = 0.999
    singles = generate_texts(spec("text"), model, decoding=Decoding(per_input=50))
    assert {reject.filter for reject in singles.rejects} <= {"empty"}
    assert singles.complete >= 95


@pytest.fixture
def sessions(monkeypatch):
    """The sessions that scripted models opened."""
    opened = []
    real = ScriptedModel.session

    def noting(self, *arguments):
        opened.append(real(self, *arguments))
        return opened[-1]

    monkeypatch.setattr(ScriptedModel, "session", noting)
    return opened


def three_labels():
    return spec(labels=(("1", ()), ("0.5", ("1",)), ("0", ("1", "0.5"))))


@given(tables=st.lists(st.lists(st.floats(0.01, 1.0), min_size=4, max_size=4), min_size=3, max_size=3))
@settings(max_examples=20)
def test_at_decay_0_counter_prompts_change_nothing(tables):
    def following(prompt, done):
        table = tables[("Label 1." in prompt) + 2 * ("Label 0.5." in prompt)]
        return dict(zip('abc"', table, strict=True))

    model = ScriptedModel(following, CHARACTERS)
    inputs = [f"text {number}" for number in range(4)]
    decoding = Decoding(decay=0.0, max_tokens=12)
    without = generate_pairs(three_labels(), model, inputs, decoding=decoding)
    # A rule of one's own is always given the counter-prompts: here the same rule.
    computed = generate_pairs(
        three_labels(), model, inputs, decoding=decoding, rule=partial(self_debias, decay=0.0, floor=0.01)
    )
    assert without == computed
    assert without.rows or without.rejects


def test_at_decay_0_the_model_sees_main_prompts_only(sessions):
    task = three_labels()

    def seen(decay, rule=None):
        some = [request for request in pair_requests(task, ["one"], 2) if request.label == "0"]
        write(task, varied(), some, Decoding(decay=decay), 1, None, rule=rule)
        return some[0], sorted(sessions[-1].prefilled)

    request, prompts = seen(0.0)
    assert prompts == [request.prompt]
    assert seen(1e-9)[1] == sorted([request.prompt, *request.counter_prompts])
    assert seen(0.0, self_debias)[1] == sorted([request.prompt, *request.counter_prompts])


@pytest.mark.parametrize("rule", ["guidance", "contrast"])
def test_other_rules_need_the_counter_prompts_at_decay_0_too(sessions, rule):
    (request,) = [request for request in pair_requests(three_labels(), ["one"], 1) if request.label == "0"]
    write(three_labels(), varied(), [request], Decoding(decay=0.0, rule=rule), 1, None)
    assert sorted(sessions[-1].prefilled) == sorted([request.prompt, *request.counter_prompts])


def test_at_decay_0_a_row_is_enough_for_a_group():
    task = spec()
    some = [request for request in pair_requests(task, ["one", "two"], 2) if request.label == "0"]
    written = write(task, varied(), some[:1], Decoding(decay=0.0), 1, 1)
    assert (written.complete, len(written.rows)) == (1, 2)
    with pytest.raises(SettingsError, match="1 row is too few for .*: a label's prompts take"):
        write(task, varied(), some[1:], Decoding(), 1, 1)


def test_rows_that_do_not_fit_into_memory_are_told(monkeypatch):
    def session(self, rows, prompts, tail):
        raise MemoryError

    monkeypatch.setattr(ScriptedModel, "session", session)
    with pytest.raises(SettingsError, match="5,000 rows at once do not fit into memory; give fewer"):
        generate_pairs(spec(), varied(), ["a"], rows=5000)
    with pytest.raises(MemoryError):
        generate_pairs(spec(), varied(), ["a"])
    with pytest.raises(SettingsError, match="rows must be at most 65536, not 1000000000"):
        generate_pairs(spec(), varied(), ["a"], rows=10**9)
