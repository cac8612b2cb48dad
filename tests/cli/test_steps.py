"""The table of steps: every function that it names is there, and takes what it is called with."""

import inspect

import pytest
from tests.documented import unknown_in

from pairsmith.cli.app import _SECTIONS
from pairsmith.cli.steps import STEPS
from pairsmith.core.errors import SettingsError
from pairsmith.core.paths import MANIFEST
from pairsmith.core.progress import Silent
from pairsmith.runs import Run
from pairsmith.steps.evaluate.evaluation import Evaluation
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.retrieval.settings import QueriesSettings
from pairsmith.steps.step import Step, imported


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_step_names_functions_that_take_its_settings(step: Step) -> None:
    assert isinstance(step.work, str)
    work = imported(step.work)
    if isinstance(work, Evaluation):  # which plans itself
        assert not step.plan
        assert STEPS[work.name.replace("evaluate ", "evaluate-")] is step
        for function in (work.read, work.compute, work.planner):
            settings, *_ = inspect.signature(function, eval_str=True).parameters.values()
            assert settings.annotation is step.settings
        return
    if not inspect.isfunction(work):  # a training, which plans itself
        assert work.settings is step.settings
        assert not step.plan
        assert STEPS[work.name] is step
        return
    settings, _ = inspect.signature(work, eval_str=True).parameters.values()
    assert settings.annotation is step.settings
    if step.planned_rows_setting:  # it is run on some of its rows
        assert step.planned_rows_setting in step.settings.model_fields
        assert not step.plan
        return
    planned, *_ = inspect.signature(step.planner(), eval_str=True).parameters.values()
    assert issubclass(step.settings, planned.annotation)


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_the_settings_that_a_step_names_are_its_own(step: Step) -> None:
    named = {
        step.preview_setting,
        step.folder_setting,
        step.planned_rows_setting,
        *step.checks,
    } - {""}
    assert named <= set(step.settings.model_fields)


def test_every_step_is_in_a_section_of_the_help():
    in_sections = {name for names in _SECTIONS.values() for name in names}
    lacking = [name for name in STEPS if not name.startswith("evaluate-") and name not in in_sections]
    assert not lacking, f"add {', '.join(lacking)} to a section of _SECTIONS in cli/app.py"


def test_only_settings_that_a_step_has_are_checked():
    for name, step in STEPS.items():
        assert step.all_checks().keys() <= step.settings.model_fields.keys(), name
    assert "base" in STEPS["train-encoder"].all_checks()
    assert {"encoder", "judge"} <= STEPS["filter-queries"].all_checks().keys()
    assert "encoder" in STEPS["train-crossencoder"].all_checks()
    assert "model" in STEPS["generate"].all_checks()
    assert "model" not in STEPS["mine"].all_checks()


@pytest.mark.parametrize("name", [name for name, step in STEPS.items() if step.next_commands])
def test_the_commands_that_may_follow_exist(name):
    given = dict.fromkeys(STEPS[name].settings.model_fields, "given")
    for command in STEPS[name].next_commands:
        words = command.format_map(given | {"out": "out"}).split()[1:]
        assert not unknown_in(words), command
        step = next((STEPS[known] for known in (words[0], "-".join(words[:2])) if known in STEPS), None)
        required = [n for n, f in step.settings.model_fields.items() if f.is_required()] if step else []
        assert not [n for n in required if f"--{n.replace('_', '-')}" not in words], command


def test_a_cluster_that_does_not_answer_leaves_no_begun_folder(tmp_path):
    settings = GenerateSettings(executor="ray", ray_address="127.0.0.1:1")
    with pytest.raises(SettingsError, match="--ray-address 127.0.0.1:1: nothing answers there"):
        STEPS["generate"].run(settings, Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MANIFEST).touch()
    seen = []
    Step(GenerateSettings, lambda *given: seen.append(given), "").run(
        settings, Run(tmp_path / "out", Silent())
    )
    assert len(seen) == 1  # the step may be finished


def test_commands_that_may_follow_name_what_the_step_was_given():
    settings = EvaluateRetrievalSettings(model="m", data="queries", corpus=["some chunks", "more"])
    (command,) = STEPS["evaluate-retrieval"].commands_after(settings, "out")
    assert command == "pairsmith search --model m --corpus 'some chunks' --corpus more"
    (command,) = STEPS["queries"].commands_after(QueriesSettings(chunks="chunks", model="m"), "written")
    assert (
        command
        == "pairsmith filter-queries --queries written --corpus chunks --encoder ENCODER --out written-kept"
    )
