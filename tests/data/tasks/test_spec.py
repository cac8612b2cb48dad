import pytest
from pydantic import ValidationError

from pairsmith.core.errors import TaskError
from pairsmith.data.tasks import Decoding, TaskSpec, label_text

PAIR = 'Sentence 1: "<X1>"\nSentence 2: "'


def graded(*, top="higher", middle="higher", bottom="higher"):
    labels = {
        1: {"instruction": PAIR, "counter_labels": top},
        0.5: {"instruction": PAIR, "counter_labels": middle},
        0: {"instruction": PAIR, "counter_labels": bottom},
    }
    return TaskSpec(name="t", kind="pair", labels=labels)


def named(**counters):
    labels = {name: {"instruction": PAIR, "counter_labels": counter} for name, counter in counters.items()}
    return TaskSpec(name="t", kind="pair", labels=labels)


@pytest.mark.parametrize(
    ("name", "text"), [(1.0, "1"), (0.0, "0"), (0.5, "0.5"), (-2.0, "-2"), (1e-7, "1e-07"), ("good", "good")]
)
def test_a_label_as_text(name, text):
    assert label_text(name) == text


@pytest.mark.parametrize("name", ["größe", "отзывы", "समीक्षा", "映画.v2", "a_b-c", "x" * 64])
def test_a_name_of_a_task_has_letters_of_any_script(name):
    labels = {"a": {"instruction": PAIR}}
    assert TaskSpec.model_validate({"name": name, "kind": "pair", "labels": labels}).name == name


@pytest.mark.parametrize(
    "name", ["", "a/b", "a\\b", "a b", ".a", "-a", "_a", "a\n", "a:b", "\u0301a", "x" * 65]
)
def test_other_names_of_tasks_are_refused(name):
    with pytest.raises(ValidationError, match="a name is 1 to 64 letters of any script"):
        TaskSpec.model_validate({"name": name, "kind": "pair", "labels": {"a": {"instruction": PAIR}}})


def test_higher_is_every_larger_number():
    task = graded()
    assert {name: task.counters(name) for name in task.label_names} == {
        "1": (),
        "0.5": ("1",),
        "0": ("1", "0.5"),
    }


def test_others_is_every_other_label():
    task = named(a="others", b="others", c=[])
    assert task.counters("a") == ("b", "c")
    assert task.counters("b") == ("a", "c")
    assert task.counters("c") == ()


def test_listed_counter_labels_come_in_the_order_of_the_task():
    assert graded(bottom=[0.5, 1]).counters("0") == ("1", "0.5")


def test_label_texts_keep_the_order_of_the_file():
    assert graded().label_names == ("1", "0.5", "0")


def test_the_rows_a_task_makes():
    text = {"good": {"instruction": 'Review: "'}}
    assert graded().schema_kind == "scored_pair"
    assert named(a=[], b=[]).schema_kind == "labelled_pair"
    assert TaskSpec(name="t", kind="text", labels=text).schema_kind == "labelled_text"
    assert TaskSpec(name="t", kind="text", labels={1: text["good"]}).schema_kind == "labelled_text"


def test_an_unknown_label_is_an_error_that_lists_the_labels():
    with pytest.raises(TaskError, match=r"the task t has no label 'entailmet'; did you mean 'entailment'\?"):
        named(entailment=[], neutral=[]).instruction("entailmet")


def test_the_defaults_of_decoding_are_the_papers():
    assert Decoding().model_dump() == {
        "top_k": 5,
        "top_p": 0.9,
        "max_tokens": 40,
        "per_input": 2,
        "tries": 5,
        "rule": "self-debiasing",
        "scale": 1.5,
        "strength": 0.5,
        "plausible": 0.1,
        "decay": 100.0,
        "floor": 0.01,
    }


def test_the_labels_that_are_written_are_labels_of_the_task():
    labels = [{"name": name, "instruction": PAIR} for name in (1, 0.5, 0)]
    assert TaskSpec(name="t", kind="pair", labels=labels, written=[0, 0.5]).written_names == ("0.5", "0")
    with pytest.raises(ValidationError, match=r"written: no label 0.7; "):
        TaskSpec(name="t", kind="pair", labels=labels, written=[0.7])


def test_a_task_made_in_python_is_checked_like_a_file():
    with pytest.raises(
        ValidationError, match=r"labels\.1\.counter_labels: unknown counter-label 3; known: 0, 1"
    ):
        TaskSpec(
            name="t",
            kind="pair",
            labels=[
                {"name": 1, "instruction": PAIR, "counter_labels": [3]},
                {"name": 0, "instruction": PAIR},
            ],
        )


def test_model_dump_validates_back():
    task = graded(bottom=[1])
    assert TaskSpec.model_validate(task.model_dump()) == task
