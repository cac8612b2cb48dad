"""Settings in words, and what labels mean."""

import pytest

from pairsmith.data.tasks import load_task
from pairsmith.steps.table import STEPS
from pairsmith.tools.meanings import label_meanings
from pairsmith.tools.report.words import _IF, settings_in_words, step_in_words

GENERATED = {
    "task": {"name": "sts"},
    "top_k": 5,
    "rule": "self-debiasing",
    "scale": 1.5,
    "strength": 0.5,
    "plausible": 0.1,
    "decay": 100.0,
    "floor": 0.01,
    "column": [],
    "limit": None,
    "shard_size": 200,
}


def names(step, settings):
    return [name for name, _ in settings_in_words(step, settings)]


def test_only_settings_that_were_in_force_are_told():
    assert settings_in_words("generate", GENERATED) == [
        ("draw from the k likeliest tokens (top-k)", "5"),
        ("how a label's prompt is combined with those of its counter-labels (rule)", "self-debiasing"),
        (decay := "strength of self-debiasing against the counter-labels (decay)", "100"),
        (floor := "smallest factor by which self-debiasing multiplies a probability (floor)", "0.01"),
    ]
    guided = names("generate", GENERATED | {"rule": "guidance"})
    assert "strength of guidance (scale)" in guided
    assert not any("self-debiasing" in name for name in guided)
    plain = dict(settings_in_words("generate", GENERATED | {"decay": 0.0}))
    assert plain[decay].startswith("0: each label's text was written without")
    assert floor not in plain


@pytest.mark.parametrize(
    ("step", "settings", "told"),
    [
        ("train-encoder", {"objective": "cosine", "scale": 20.0, "centre": False}, ["training objective"]),
        ("train-encoder", {"max_steps": 9, "epochs": 1.0}, ["stop after this many steps, if that is sooner (max-steps)"]),
        ("evaluate sts", {"bootstrap": 1000, "layers": None, "suites": []}, ["number of bootstrap resamples for the 95 % intervals"]),
        ("mine", {"kind": "pairs", "style": 0.5, "window": 150, "index": None, "recall": 0.95}, ["what a pair consists of (kind)"]),
        ("filter-queries", {"threshold": 0.5}, ["keep a query if the judge's score of it and its chunk is at least this (threshold)"]),
        ("train-crossencoder", {"loss": "binary"}, ["loss"]),
        ("mine", {"kind": "reading", "style": 0.5}, ["what a pair consists of (kind)", "drop questions (for kind summaries: sentences) whose probability of being in the style of the seeds is lower than this"]),
        ("generate", {"labels": ["1"]}, ["write texts only for these of the task's labels, e.g. those with too few texts so far"]),
        ("of somebody", {"a_setting_of_theirs": True}, ["a setting of theirs"]),
    ],
)  # fmt: skip
def test_settings_of_other_steps(step, settings, told):
    assert names(step, settings) == told


def test_the_words_are_about_settings_that_there_are():
    fields = {f"{name}.{field}" for name, step in STEPS.items() for field in step.settings.model_fields}
    assert fields >= _IF.keys()


def test_a_step_is_told_by_its_help():
    assert step_in_words("evaluate qa") == "evaluate qa: evaluate a reader on questions with answers"
    assert step_in_words("of somebody") == "of somebody"


def test_labels_mean_what_the_task_asked_for_also_when_scores_are_smoothed():
    task = load_task("sts").model_dump(mode="json")
    alike = "Two sentences that mean the same thing."
    assert label_meanings({"task": task})["1"] == alike
    assert label_meanings({"task": task, "smoothing": 0.2}).keys() == {"1", "0.5", "0", "0.9", "0.1"}
    assert label_meanings({"task": task, "smoothing": 0.2})["0.9"] == alike
    cleaned = label_meanings({"task": task, "smoothing": 0.2, "augment": 2})
    assert cleaned["0"].startswith("Two texts paired at random")
    assert cleaned["0.9"] == alike
    assert label_meanings({"task": task, "smoothing": 0, "augment": 2}) == label_meanings({"task": task})
    assert label_meanings({"task": load_task("topic").model_dump(mode="json")})["tech"] == (
        "A news headline about technology."
    )
    assert label_meanings({}) == label_meanings({"task": "sts"}) == {}
