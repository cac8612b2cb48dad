import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.core.errors import TaskError
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import LabelledText, ScoredPair
from pairsmith.data.tasks import TaskSpec, load_task
from pairsmith.data.text.instructed import quotable
from pairsmith.methods.dino.requests import pair_requests, text_requests


def test_prompts_and_counter_prompts_of_sts():
    requests = list(pair_requests(load_task("sts"), ["A dog runs."], per_input=2))
    by_label = {w.label: w for w in requests}
    prompt = 'Task: Write two sentences that {}.\nSentence 1: "A dog runs."\nSentence 2: "'
    same, similar, unrelated = (
        prompt.format(words)
        for words in ("mean the same thing", "are somewhat similar", "are on completely different topics")
    )
    assert (by_label["1"].prompt, by_label["1"].counter_prompts) == (same, ())
    assert (by_label["0.5"].prompt, by_label["0.5"].counter_prompts) == (similar, (same,))
    assert by_label["0"].prompt == unrelated
    assert set(by_label["0"].counter_prompts) == {same, similar}
    assert len({w.id for w in requests}) == 3
    by_label["1"].texts |= {3: "Another.", 1: "One."}  # by the number of the try
    assert by_label["1"].rows(load_task("sts")) == [
        ScoredPair(f"{text_id('A dog runs.')}-1-{place}", "A dog runs.", text, 1.0)
        for place, text in enumerate(["One.", "Another."])
    ]


def test_each_input_has_one_of_the_wordings_of_each_label():
    same = ('Same: "<X1>" "', 'Equal: "<X1>" "', 'Alike: "<X1>" "')
    task = TaskSpec.model_validate(
        {
            "name": "ways",
            "kind": "pair",
            "labels": {
                1: {"instruction": same[0], "more_instructions": same[1:]},
                0: {"instruction": 'Other: "<X1>" "', "counter_labels": "higher"},
            },
        }
    )
    texts = [f"text {number}" for number in range(40)]
    requests = {(w.input, w.label): w for w in pair_requests(task, texts, per_input=1)}
    seen = set()
    for text in texts:
        expected = same[int(text_id(text), 16) % 3].replace("<X1>", text)
        seen.add(expected.replace(text, "<X1>"))
        assert requests[text, "1"].prompt == expected
        assert requests[text, "0"].counter_prompts == (same[0].replace("<X1>", text),)
        assert requests[text, "0"].prompt == f'Other: "{text}" "'
    assert seen == set(same)


def test_of_lists_of_unequal_length_the_place_in_the_labels_own_list_counts():
    task = TaskSpec.model_validate(
        {
            "name": "reviews",
            "kind": "text",
            "labels": {
                "a": {"instruction": 'A0: "', "more_instructions": ['A1: "'], "counter_labels": ["b"]},
                "b": {"instruction": 'B0: "', "more_instructions": ['B1: "', 'B2: "']},
            },
            "written": ["a"],
        }
    )
    prompts = [(request.prompt, request.counter_prompts) for request in text_requests(task, range(4))]
    assert prompts == [('A0: "', ('B0: "',)), ('A1: "', ('B1: "',))] * 2


def test_texts_take_the_wordings_in_turn():
    task = TaskSpec.model_validate(
        {
            "name": "reviews",
            "kind": "text",
            "labels": {"good": {"instruction": 'A: "', "more_instructions": ['B: "']}},
        }
    )
    assert [w.prompt for w in text_requests(task, range(3))] == ['A: "', 'B: "', 'A: "']


def test_quotation_marks_and_tabs_cannot_end_or_break_a_prompt():
    text = 'He said "stop"\tand\n left.'
    (requests, *_) = pair_requests(load_task("sts"), [text], per_input=1)
    assert requests.input == text
    assert 'Sentence 1: "He said \'stop\' and left."\nSentence 2: "' in requests.prompt


@given(st.text())
def test_a_quotable_text_is_one_line_without_straight_quotation_marks(text):
    shown = quotable(text)
    assert '"' not in shown
    assert "\n" not in shown
    assert "\t" not in shown
    assert quotable(shown) == shown


def test_single_texts_are_numbered_by_label():
    task = load_task("movie-reviews")
    requests = list(text_requests(task, range(2)))
    assert [w.id for w in requests] == ["good-000000", "bad-000000", "good-000001", "bad-000001"]
    assert requests[0].prompt == 'Task: Write a review for a good movie.\nReview: "'
    requests[0].texts[2] = "Fine."
    assert requests[0].rows(task) == [LabelledText("good-000000", "Fine.", "good")]


def test_texts_of_some_labels_alone_are_those_of_all_labels():
    task = load_task("sts")
    every = {request.id: request for request in pair_requests(task, ["A dog runs."], 2)}
    some = list(pair_requests(task.writing(["0", "0.5"]), ["A dog runs."], 2))
    assert [request.label for request in some] == ["0.5", "0"]
    assert all(every[request.id] == request and request.counter_prompts for request in some)
    assert task.writing([]) == task == task.writing(["0", "1", "0.5"])
    with pytest.raises(TaskError, match=r"has no label '2'"):
        task.writing(["2"])


def test_ids_depend_on_the_text_alone():
    assert text_id("a") == text_id("a") != text_id("b")
    assert len(text_id("a")) == 16
    assert text_id("\ud800") != text_id("a")  # half a surrogate pair, as broken files hold
