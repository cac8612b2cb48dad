"""The table of steps: every function that it names is there, and takes what it is called with."""

import inspect
import shlex
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from tests.documented import name_of, unknown_in

from pairsmith.cli.app import _MODELS, _SECTIONS
from pairsmith.cli.options import option_kind, settings_from
from pairsmith.cli.setting_texts import free_texts
from pairsmith.cli.steps import SOURCE_SETTINGS, STEPS
from pairsmith.core.errors import SettingsError
from pairsmith.core.paths import MANIFEST
from pairsmith.core.progress import Silent
from pairsmith.runs import Run
from pairsmith.steps.evaluate.classification_settings import EvaluateClassificationSettings
from pairsmith.steps.evaluate.evaluation import Evaluation
from pairsmith.steps.evaluate.retrieval_settings import EvaluateRetrievalSettings
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.retrieval.settings import FilterQueriesSettings, QueriesSettings
from pairsmith.steps.search.settings import SearchSettings
from pairsmith.steps.step import Step, imported
from pairsmith.steps.training.settings import TrainBiencoderSettings


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
        _, settings, *_ = inspect.signature(work.train, eval_str=True).parameters.values()
        assert settings.annotation is step.settings
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


@pytest.mark.parametrize("name", [name for name in STEPS if name.startswith("evaluate-")])
def test_an_evaluation_has_a_function_that_checks_its_data(name):
    step = STEPS[name]
    check = step.data_checker()
    if not step.data_check:
        assert check == step.function().check_data
        return
    settings, _ = inspect.signature(check, eval_str=True).parameters.values()
    assert settings.annotation is step.settings


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


NO_SOURCES = {
    *("annotator", "answers", "benchmark", "beside", "column", "corpus_column", "cue", "device"),
    *("document_prompt", "evaluation_column", "group_column", "index", "input_column", "instruction", "item"),
    *("keep_column", "keep_input_column", "keep_output_column", "label_column", "labels", "map", "marker"),
    *("name", "output_column", "positive_column", "query_column", "query_prompt", "question", "rank_by"),
    *("ray_address", "repo", "revision", "separator", "split", "suites", "task", "tasks", "text_column"),
    *("title_column", "vectors"),
}
"""Settings with any text that name no data to read. Tasks have built-in names; vectors are made if missing."""


def test_all_settings_with_any_text_are_known_to_name_a_source_or_a_model_or_neither():
    """A new setting that names a file or folder belongs into ``SOURCE_SETTINGS``, so that it is checked."""
    texts = {name for step in STEPS.values() for name in free_texts(step.settings)}
    assert texts - SOURCE_SETTINGS - _MODELS == NO_SOURCES
    assert texts >= SOURCE_SETTINGS | _MODELS
    # These have names of sources in other steps.
    assert not SOURCE_SETTINGS & free_texts(QueriesSettings) & {"queries", "against"}
    assert "questions" not in free_texts(STEPS["ask"].settings)


def test_a_setting_whose_values_are_texts_is_recognised_by_its_type():
    """Types of settings are few; a new one, such as ``tuple[str, ...]``, has to be added to free_texts."""
    for step in STEPS.values():
        others = step.settings.model_fields.keys() - free_texts(step.settings)
        assert not [name for name in others if _takes_any_text(step.settings.model_fields[name].annotation)]


def _takes_any_text(kind: object) -> bool:
    """Whether the type is, or contains, ``str`` or ``Path``; names in a Literal are no types."""
    return kind in (str, Path) or (
        get_origin(kind) is not Literal and any(map(_takes_any_text, get_args(kind)))
    )


def test_only_settings_that_a_step_has_are_checked():
    for name, step in STEPS.items():
        assert step.all_checks().keys() <= step.settings.model_fields.keys(), name
    assert "base" in STEPS["train-encoder"].all_checks()
    assert {"encoder", "judge"} <= STEPS["filter-queries"].all_checks().keys()
    assert "encoder" in STEPS["train-crossencoder"].all_checks()
    assert "model" in STEPS["generate"].all_checks()
    assert "model" not in STEPS["mine"].all_checks()


def settings_of(step, *, full, **values):
    """Settings of a step without validation: those required and, if ``full``, all that take a text or number."""
    for name, field in step.settings.model_fields.items():
        kind, shown = option_kind(field.annotation)
        if name not in values and (
            field.is_required() or (full and kind is not bool and field.default is None)
        ):
            values[name] = 64 if "number" in shown else ["given"] if kind == list[str] else "given"
        elif name not in values and full and field.default == []:
            values[name] = ["one given", "other"]
    return step.settings.model_construct(**values)


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", [name for name, step in STEPS.items() if step.next_commands])
def test_the_commands_that_may_follow_exist_and_can_be_given(name, full):
    """Each is parsed as the command line does it, and the settings of its step accept what it gives."""
    step = STEPS[name]
    variants = [{}]
    if name == "mine":
        variants = [{"kind": kind} for kind in get_args(step.settings.model_fields["kind"].annotation)]
    elif name == "evaluate-classification":
        first = {"against": None, "map": ["1=good", "0=bad"]}
        variants = [{**first, "name": names} for names in ([], ["good=a good film", "bad=a bad film"])]
    for variant in variants:
        settings = settings_of(step, full=full, **variant)
        for text in step.commands_after(settings, "the folder/"):
            command, rest = name_of(shlex.split(text)[1:])
            assert not unknown_in(shlex.split(text)[1:]), text
            values = command.make_context(command.name, rest).params
            after = {**STEPS, "search": Step(SearchSettings, "", "")}
            words = shlex.split(text)
            model = next(after[n] for n in ("-".join(words[1:3]), words[1]) if n in after).settings
            settings_from(model, {n: v for n, v in values.items() if n in model.model_fields and v != ()})
            assert values.get("out", "the folder-x").startswith("the folder-"), text


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


def test_commands_that_may_follow_name_what_the_step_was_given(tmp_path):
    settings = EvaluateRetrievalSettings(model="m", data="queries", corpus=["some chunks", "more"])
    (command,) = STEPS["evaluate-retrieval"].commands_after(settings, "out")
    assert command == "pairsmith search --model m --corpus 'some chunks' --corpus more"
    settings = EvaluateRetrievalSettings(model="bm25", data=str(tmp_path), language="german")
    (command,) = STEPS["evaluate-retrieval"].commands_after(settings, "out")
    assert command == f"pairsmith search --model bm25 --corpus {tmp_path} --language german"
    settings = EvaluateRetrievalSettings(
        model="m", data="of/the-hub", query_prompt="query: ", document_prompt=""
    )
    (command,) = STEPS["evaluate-retrieval"].commands_after(settings, "out")
    assert (
        command == "pairsmith search --model m --corpus CORPUS --query-prompt 'query: ' --document-prompt ''"
    )
    (command,) = STEPS["queries"].commands_after(QueriesSettings(chunks="chunks", model="m"), "written")
    assert (
        command
        == "pairsmith filter-queries --queries written --corpus chunks --encoder ENCODER --out written-kept"
    )


def test_commands_that_may_follow_have_the_columns_that_were_given():
    (command,) = STEPS["queries"].commands_after(QueriesSettings(chunks="c.csv", column="a body"), "q")
    assert " --corpus c.csv --corpus-column 'a body' --encoder " in command
    settings = FilterQueriesSettings(queries="q", corpus=["c.csv"], encoder="e", corpus_column="body")
    (command,) = STEPS["filter-queries"].commands_after(settings, "k")
    assert command == (
        "pairsmith negatives --pairs k --corpus c.csv --corpus-column body --encoder e --out k-negatives"
    )
    settings = EvaluateRetrievalSettings(model="m", data="d", corpus=["c.csv"], corpus_column="body")
    (command,) = STEPS["evaluate-retrieval"].commands_after(settings, "r")
    assert command == "pairsmith search --model m --corpus c.csv --corpus-column body"
    settings = TrainBiencoderSettings(
        seeds="s", base="b", kind="reading", inputs=["i"], outputs=["o"], input_column="q", output_column="p"
    )
    (command,) = STEPS["train-biencoder"].commands_after(settings, "e")
    assert " --outputs o --encoder e --input-column q --output-column p --out " in command


def test_after_the_evaluation_of_a_classifier_it_is_compared_with_another_one():
    settings = EvaluateClassificationSettings(
        model="c", data="d.csv", text_column="a body", map=["1=good", "0=bad"]
    )
    (command,) = STEPS["evaluate-classification"].commands_after(settings, "m")
    assert command == (
        "pairsmith evaluate classification --model embedded:all-minilm-l6-v2 --name LABEL=DESCRIPTION "
        "--name OTHER=DESCRIPTION --data d.csv --text-column 'a body' --map 1=good --map 0=bad --against m "
        "--out m-by-names"
    )
    settings = EvaluateClassificationSettings(model="e", data="d.csv", name=["good=a", "bad=b"])
    (command,) = STEPS["evaluate-classification"].commands_after(settings, "m")
    assert command == (
        "pairsmith evaluate classification --model CLASSIFIER --data d.csv --against m --out m-trained"
    )
    compared = settings.model_copy(update={"against": "m"})
    assert not STEPS["evaluate-classification"].commands_after(compared, "n")


@pytest.mark.parametrize(
    ("kind", "judge"),
    [
        ("pairs", "--judge margin --one-per"),
        ("reading", "--judge likelihood --model embedded:smollm2-135m-instruct --one-per"),
        ("summaries", "--judge likeness --model embedded:all-minilm-l6-v2 --seeds SEEDS --beside margin --"),
    ],
)
def test_after_mining_the_judge_follows_that_is_best_for_the_kind(kind, judge):
    settings = MineSettings(kind=kind, inputs=["i"], outputs=["o"], encoder="e")
    _, command = STEPS["mine"].commands_after(settings, "m")
    assert command.startswith(f"pairsmith filter --pairs m {judge}")
