import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Self

import pytest
import yaml
from pydantic import Field, ValidationError, model_validator
from tests.heard import Heard

import pairsmith
from pairsmith.cli.expansion import expanded_steps
from pairsmith.cli.recipes import PlannedStep, Recipe, find_recipe, load_recipe
from pairsmith.cli.running import _for_recipes, closing_lines, figure_of, run_recipe
from pairsmith.cli.setting_texts import texts_in
from pairsmith.cli.steps import STEPS
from pairsmith.cli.tables import results_table
from pairsmith.core.bundled import recipe_path
from pairsmith.core.errors import BusyError, FolderError, InputError, OtherWorkError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.core.settings import Settings, refuse
from pairsmith.data.sts import read_sts
from pairsmith.runs import lock
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.step import Step

pytestmark = pytest.mark.slow


class MakeSettings(Settings):
    inputs: str
    model: str = "some/model"
    top_p: float = Field(default=0.9, gt=0, le=1)
    seed: int = 1
    note: str = ""


class MeasureSettings(Settings):
    model: str = "m"
    data: str
    more: tuple[str, ...] = ()


class Calls(list):
    """What the stand-in steps were asked, in order; ``failing`` names a step to stop at, once it has begun."""

    failing = ""
    failing_early = ""

    def begin(self, run):
        if run.out.name == self.failing_early:
            raise InputError("stopped here")
        run.on_begun()
        if run.out.name == self.failing:
            raise InputError("stopped here")

    def make(self, settings, run):
        self.append(("make", run.out.name, settings, run.fresh))
        self.begin(run)
        run.out.mkdir(exist_ok=True)
        run.out.joinpath("manifest.json").write_text(
            '{"complete": true, "counts": {"rows": 1234, "rejects": 5}}'
        )
        run.out.joinpath("data").mkdir(exist_ok=True)
        run.out.joinpath("data", "train-00000.parquet").write_text(f"{settings.seed}\n")

    def measure(self, settings, run):
        self.append(("measure", run.out.name, settings, run.fresh))
        self.begin(run)
        run.out.mkdir(exist_ok=True)
        run.out.joinpath("results.json").write_text('{"graded": {"all": 71.234, "ci": [1.0, 2.0]}}')

    @property
    def names(self):
        return [name for _, name, _, _ in self]


@pytest.fixture
def calls():
    return Calls()


@pytest.fixture
def steps(calls):
    return {
        "make": Step(MakeSettings, calls.make, "Make rows."),
        "measure": Step(MeasureSettings, calls.measure, "Measure."),
    }


RECIPE = """\
name: small
seed: 7
steps:
  - {name: rows, step: make, settings: {inputs: ./texts.txt}}
  - name: other
    step: make
    settings:
      inputs: org/data
      seed: 3
  - name: after
    step: measure
    settings:
      model: "@rows"
      data: ./texts.txt
      more: ["@other/data", plain]
results:
  figure: after/graded.all
  rows: "rows:rows"
  dropped: "other:rejects"
"""


@pytest.fixture
def recipe(tmp_path):
    folder = tmp_path / "recipes"
    folder.mkdir()
    folder.joinpath("texts.txt").write_text("a\n")

    def writer(text=RECIPE):
        path = folder / "small.yaml"
        path.write_text(text)
        return path

    return writer


def faults(path, steps, **options):
    with pytest.raises(SettingsError) as caught:
        load_recipe(path, steps, **options)
    return [line.removeprefix(f"{path.parent}/") for line in str(caught.value).split("\n")]


# reading


def test_paths_are_beside_the_recipe_and_references_in_the_run(recipe, steps, tmp_path):
    path = recipe()
    plan = load_recipe(path, steps)
    rows, other, after = (planned.settings(tmp_path / "run") for planned in plan.steps)
    assert rows == MakeSettings(inputs=str(path.parent / "texts.txt"), seed=7)
    assert other == MakeSettings(inputs="org/data", seed=3)
    assert after == MeasureSettings(
        model=str(tmp_path / "run" / "rows"),
        data=str(path.parent / "texts.txt"),
        more=(str(tmp_path / "run" / "other" / "data"), "plain"),
    )


@pytest.mark.parametrize("name", ["sts", "org/data", "glove:words.txt"])
def test_a_name_is_no_path_even_where_a_folder_beside_the_recipe_has_it(recipe, steps, tmp_path, name):
    path = recipe(RECIPE.replace("seed: 3", f"note: {name}"))
    path.parent.joinpath(name).mkdir(parents=True)
    assert load_recipe(path, steps).steps[1].settings(tmp_path).note == name


@pytest.mark.parametrize(
    "name", ["corpus", "corpus:validation", "org/data", "run/rows/data", "s3://bucket/x"]
)
def test_data_may_be_a_folder_a_split_a_hub_id_or_a_url(recipe, steps, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    Path("corpus").mkdir()
    plan = load_recipe(recipe(RECIPE.replace("org/data", name)), steps)
    assert plan.steps[1].settings(tmp_path).inputs == name


def test_a_path_from_the_folder_above_the_recipes(recipe, steps, tmp_path):
    (tmp_path / "above.txt").write_text("b\n")
    plan = load_recipe(recipe(RECIPE.replace("org/data", "../above.txt")), steps)
    assert plan.steps[1].settings(tmp_path).inputs == str(tmp_path / "above.txt")


def test_a_path_from_the_current_folder(recipe, steps, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("here.txt").write_text("b\n")
    plan = load_recipe(recipe(RECIPE.replace("inputs: ./texts.txt", "inputs: here.txt")), steps)
    assert plan.steps[0].settings(tmp_path).inputs == "here.txt"
    plan = load_recipe(recipe(), steps, overrides=["rows.inputs=./here.txt"])
    assert plan.steps[0].settings(tmp_path).inputs == "./here.txt"


def test_a_seed_given_takes_the_place_of_the_recipes_not_of_a_steps_own(recipe, steps, tmp_path):
    plan = load_recipe(recipe(), steps, seed=11)
    assert [planned.settings(tmp_path).seed for planned in plan.steps[:2]] == [11, 3]


def test_overrides(recipe, steps, tmp_path):
    plan = load_recipe(
        recipe(), steps, overrides=["rows.top-p=0.5", "other.seed=4", "rows.note=a=b", "after.more=[x]"]
    )
    rows, other, after = (planned.settings(tmp_path) for planned in plan.steps)
    assert (rows.top_p, rows.note, other.seed, after.more) == (0.5, "a=b", 4, ("x",))


def test_an_override_without_a_step_is_for_the_only_one_that_gives_the_setting(recipe, steps, tmp_path):
    plan = load_recipe(recipe(), steps, overrides=["more=[x]"])
    assert plan.steps[2].settings(tmp_path).more == ("x",)


def test_an_override_of_all_steps_is_for_those_that_have_the_setting_and_no_override_of_their_own(
    recipe, steps, tmp_path
):
    plan = load_recipe(recipe(), steps, overrides=["*.top_p=0.5", "other.top_p=0.25", "*.seed=4"])
    rows, other, after = (planned.settings(tmp_path) for planned in plan.steps)
    assert [(settings.top_p, settings.seed) for settings in (rows, other)] == [(0.5, 4), (0.25, 4)]
    assert after == load_recipe(recipe(), steps).steps[2].settings(tmp_path)
    plan = load_recipe(recipe(), steps, overrides=["*.model=m"])
    assert [planned.values.get("model") for planned in plan.steps] == ["m", "m", "@rows"]
    assert faults(recipe(), steps, overrides=["*.top_p=2"]) == [
        f"--set {name}.top_p: should be less than or equal to 1, not 2" for name in ("rows", "other")
    ]


class RefusingSettings(MakeSettings):
    """Settings of which some have no effect beside others, and some cannot stand together."""

    @model_validator(mode="after")
    def _nothing_without_effect(self) -> Self:
        if self.note == "alone":
            refuse(self, ("top_p",), "alone")
        if self.note == "high" and self.top_p < 0.6:
            raise ValueError("top_p is below 0.6, which is not high")
        return self


@pytest.fixture
def refusing(steps):
    return steps | {"make": replace(steps["make"], settings=RefusingSettings)}


def test_an_override_of_all_steps_leaves_out_those_in_which_it_has_no_effect(recipe, refusing):
    plan = load_recipe(recipe(), refusing, overrides=["*.top_p=0.5", "other.note=alone"])
    assert [planned.values.get("top_p") for planned in plan.steps] == [0.5, None, None]
    (fault,) = faults(recipe(), refusing, overrides=["other.top_p=0.5", "other.note=alone"])
    assert "top_p has no effect alone; leave it out" in fault


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (
            ["*.top_p=0.5", "*.note=alone"],
            "--set *.top_p: has no effect in any step of the recipe; leave it out",
        ),
        (["*.top_p=0.5", "other.note=high"], "top_p is below 0.6, which is not high"),
        (["*.model=@nothing"], "--set rows.model: @nothing refers to no earlier step"),
        (["*.inputs=no.txt"], "--set rows.inputs: there is no no.txt in the current folder"),
    ],
)
def test_what_is_wrong_with_an_override_of_all_steps_is_told(recipe, refusing, overrides, expected):
    assert any(expected in fault for fault in faults(recipe(), refusing, overrides=overrides))


def test_an_override_that_is_given_twice_is_told(recipe, steps):
    (fault,) = faults(recipe(), steps, overrides=["rows.top_p=0.5", "rows.top-p=0.5"])
    assert fault == "--set rows.top-p is given more than once; give it once"


@pytest.mark.parametrize("value", ["[x]", "[y]"])
def test_overrides_of_one_value_with_and_without_the_steps_name_are_told(recipe, steps, value):
    for overrides in (["more=[x]", f"after.more={value}"], [f"after.more={value}", "more=[x]"]):
        (fault,) = faults(recipe(), steps, overrides=overrides)
        assert fault == "--set more and --set after.more set the same value; leave one of them out"


def test_settings_that_are_no_mapping_are_told_also_beside_an_override_without_a_step(recipe, steps):
    path = recipe(RECIPE.replace("settings: {inputs: ./texts.txt}", "settings: 5"))
    assert any("rows" in fault for fault in faults(path, steps, overrides=["more=[x]"]))


def test_an_override_without_a_step_is_not_for_one_that_takes_the_setting_from_an_earlier_step():
    plan = load_recipe(find_recipe("retriever"), overrides=["queries=1", "documents=[.]"])
    of = {planned.name: planned.values for planned in plan.steps}
    assert (of["written"]["queries"], of["kept"]["queries"]) == (1, "@written")


def test_a_source_that_is_not_there_is_told_before_the_first_step(recipe, steps):
    with pytest.raises(SettingsError) as caught:
        load_recipe(
            find_recipe("retriever"), overrides=["documents=my-documnts", 'kept.evaluation=["@words"]']
        )
    said = str(caught.value)
    assert "--set chunks.documents: my-documnts does not exist; check the path" in said
    assert "--set kept.evaluation: @words refers to no earlier step" in said


def test_an_override_mends_a_path_that_is_not_there(recipe, steps, tmp_path):
    path = recipe(RECIPE.replace("data: ./texts.txt", "data: ./missing"))
    assert faults(path, steps) == [
        f"small.yaml:14: after.data: there is no {path.parent}/missing; "
        "give its path with --set after.data=PATH"
    ]
    assert load_recipe(path, steps, overrides=[f"after.data={tmp_path}"]).steps[2].settings(
        tmp_path
    ).data == str(tmp_path)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "top=0.5",
            "--set top: no step of the recipe has this setting; expected STEP.SETTING=VALUE, for example pairs.top_k=10",
        ),
        (
            "model=x",
            "--set model: the steps rows, other all have this setting; expected STEP.SETTING=VALUE, for example rows.model=VALUE, or *.model=VALUE for all of them",
        ),
        (
            "inputs=x",
            "--set inputs: the steps rows, other all give this setting; expected STEP.SETTING=VALUE, for example rows.inputs=VALUE, or *.inputs=VALUE for all of them",
        ),
        ("*.top=1", "--set *.top: no step of the recipe has this setting"),
        (".top_p=1", "--set .top_p=1: expected STEP.SETTING=VALUE, for example pairs.top_k=10"),
        ("rows.top_p", "--set rows.top_p: expected STEP.SETTING=VALUE, for example pairs.top_k=10"),
        (
            "row.top_p=1",
            "--set row: the recipe has no such step; did you mean 'rows'? known: after, other, rows",
        ),
        ("rows.top_p=2", "--set rows.top_p: should be less than or equal to 1, not 2"),
        (
            "rows.top=2",
            "--set rows.top: unknown key; did you mean 'top_p'? known: inputs, model, note, seed, top_p",
        ),
        ("rows.inputs=no.txt", "--set rows.inputs: there is no no.txt in the current folder"),
        ("rows.inputs=./no", "--set rows.inputs: there is no ./no in the current folder"),
        ("rows.inputs=/no/where", "--set rows.inputs: there is no /no/where"),
        ("rows.model=@after", "--set rows.model: @after refers to no earlier step; this is the first step"),
        ("rows.note=[", "--set rows.note"),
    ],
)
def test_a_fault_in_an_override_names_the_override(recipe, steps, override, words):
    if override.endswith("["):
        assert load_recipe(recipe(), steps, overrides=[override]).steps[0].values["note"] == "["
        return
    (only,) = faults(recipe(), steps, overrides=[override])
    assert words in only


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("step: measure", "step: mesure", "small.yaml:11: after.step: no step is called 'mesure'; did you mean 'measure'? known: make, measure"),
        ("name: other", "name: rows", "small.yaml:5: rows.name: two steps are called rows; rename one of them"),
        ("name: other", "name: ../x", "small.yaml:5: ../x.name: must be 1 to 64 letters, digits, hyphens or underscores, not '../x'"),
        ("    step: make\n", "", "small.yaml:5: other.step: missing; it has no default, so add it"),
        ("  - name: other\n    step: make\n", "  - step: make\n", "small.yaml:5: step 2.name: missing; it has no default, so add it"),
        ("seed: 3\n", "seed: 3\n      seed: 4\n", "small.yaml:9: other.seed: 'seed' is given twice (lines 9 and 10); keep one of them"),
        ("seed: 3\n", "seed: x\n", "small.yaml:9: other.seed: should be a whole number, not 'x'"),
        ("inputs: org/data", "input: org/data", "small.yaml:8: other.input: unknown key; did you mean 'inputs'? known: inputs, model, note, seed, top_p"),
        ("inputs: org/data", "top_p: 3", "small.yaml:8: other.top_p: should be less than or equal to 1, not 3"),
        ("inputs: org/data", "top_p: 1", "small.yaml:7: other.inputs: missing; it has no default, so add it"),
        ('"@rows"', '"@row"', "small.yaml:13: after.model: @row refers to no earlier step; did you mean 'rows'? known: other, rows"),
        ('"@rows"', '"@after"', "small.yaml:13: after.model: @after refers to no earlier step; did you mean 'other'? known: other, rows"),
        ("inputs: org/data", "inputs: ''\n      note: '@after'", "small.yaml:9: other.note: @after refers to no earlier step; known: rows"),
        ("inputs: org/data", "inputs: no.txt", "small.yaml:8: other.inputs: there is no no.txt in the current folder (a path in the recipe's folder starts with ./); give its path with --set other.inputs=PATH"),
        ("inputs: org/data", "inputs: corpus", "small.yaml:8: other.inputs: corpus does not exist; check the path (a path in the recipe's folder starts with ./); give its path with --set other.inputs=PATH"),
        ("inputs: org/data", "inputs: /no/data", "small.yaml:8: other.inputs: there is no /no/data; give its path with --set other.inputs=PATH"),
        ("inputs: org/data", r'inputs: "a\0b"', r"small.yaml:8: other.inputs: 'a\x00b' contains a NUL character, which no name may contain; remove it"),
        ("after/graded.all", "after", "small.yaml:17: results.figure: expected `step/key.key`, `step:rows` or `step:rejects`, not 'after'"),
        ("after/graded.all", "after:words", "small.yaml:17: results.figure: expected `step/key.key`, `step:rows` or `step:rejects`, not 'after:words'"),
        ('"rows:rows"', "'row:rows'", "small.yaml:18: results.rows: the recipe has no step 'row'; did you mean 'rows'? known: after, other, rows"),
        ('"rows:rows"', "3", "small.yaml:18: results.rows: should be a valid string, not 3"),
        ("seed: 7", "seed: -1", "small.yaml:2: seed: should be greater than or equal to 0, not -1"),
        ("seed: 7", "sed: 7", "small.yaml:2: sed: unknown key; did you mean 'seed'? known: description, extras, name, results, seed, steps"),
        ("seed: 7", "name: again", "small.yaml:1: name: 'name' is given twice (lines 1 and 2); keep one of them"),
        ("    settings:\n      inputs: org/data\n      seed: 3\n", "    settings: 3\n", "small.yaml:7: other.settings: should be a mapping of keys to values, not 3"),
    ],
)  # fmt: skip
def test_each_fault_has_its_line_and_a_remedy(recipe, steps, old, new, expected, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")  # so that no message proposes a similar name
    assert old in RECIPE
    assert expected in faults(recipe(RECIPE.replace(old, new, 1)), steps)


EACH = """\
name: several
steps:
  - name: "{size}-{n}"
    each: {size: [small, large], n: [1, 2]}
    step: make
    settings: {inputs: "org/{size}", seed: "{n}"}
  - name: "after-{size}"
    each: {size: [small, large]}
    step: measure
    settings: {model: "@{size}-2", data: ./texts.txt, more: ["{other} of {size}"]}
    results: {"figure, {size}": graded.all}
results: {rows: "large-1:rows"}
"""


def test_a_step_for_each_combination_of_values(recipe, steps, calls, tmp_path):
    plan = load_recipe(recipe(EACH), steps)
    settings = {planned.name: planned.settings(tmp_path) for planned in plan.steps}
    assert list(settings) == ["small-1", "small-2", "large-1", "large-2", "after-small", "after-large"]
    assert [(settings[f"{size}-{n}"].inputs, settings[f"{size}-{n}"].seed) for size in ("small", "large") for n in (1, 2)] == [
        ("org/small", 1), ("org/small", 2), ("org/large", 1), ("org/large", 2),
    ]  # fmt: skip
    assert settings["after-large"].model == str(tmp_path / "large-2")
    assert list(settings["after-large"].more) == ["{other} of large"]  # braces around anything else stay
    assert plan.results == {
        "figure, small": "after-small/graded.all", "figure, large": "after-large/graded.all", "rows": "large-1:rows",
    }  # fmt: skip
    run_recipe(plan, tmp_path / "run", Silent())
    assert calls.names == list(settings)
    changed = load_recipe(recipe(EACH), steps, overrides=["small-2.seed=9"])
    assert [planned.values["seed"] for planned in changed.steps[:4]] == [1, 9, 1, 2]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "n: [1, 2]",
            "n: [1, 1]",
            [
                "small.yaml:3: {size}-{n}.name: two steps are called small-1; rename",
                "two steps are called large-1",
            ],
        ),
        ("n: [1, 2]", "n: []", ["small.yaml:4: {size}-{n}.each.n: "]),
        (
            "n: [1, 2]",
            f"n: {list(range(6000))}",
            [
                "small.yaml:4: {size}-{n}.each: stands for 12,000 steps, more than the 10,000 allowed; give fewer values"
            ],
        ),
        (
            '"{size}-{n}"',
            '"{sise}-{n}"',
            ["must be 1 to 64 letters, digits, hyphens or underscores, not '{sise}-1'"],
        ),
        (
            "figure, {size}",
            "figure",
            ["small.yaml:11: after-{size}.results: two figures are called figure; rename"],
        ),
        (
            "graded.all}",
            '""}',
            ["figure, small: expected key.key of the step's results.json, not ''", "figure, large"],
        ),
        ("graded.all}", '"a:rows"}', ["figure, small: expected key.key", "figure, large: expected key.key"]),
        (
            "results: {rows:",
            "results: {'figure, small':",
            ["a step has a figure called figure, small, too; rename"],
        ),
        ('"after-{size}"', '"LARGE-1"', ["two steps are called LARGE-1; rename one of them"]),
        ("./texts.txt", "./none.txt", ["there is no"]),
        (
            '"@{size}-2"',
            '"@{size}-3"',
            ["@small-3 refers to no earlier step", "@large-3 refers to no earlier step"],
        ),
        ('seed: "{n}"', "seeds: 1", ["small.yaml:6: {size}-{n}.seeds: "]),
    ],
)
def test_faults_of_several_steps_have_the_line_of_their_entry(recipe, steps, old, new, expected):
    said = faults(recipe(EACH.replace(old, new)), steps)
    for text in expected:
        assert sum(text in line for line in said) == 1, said


def test_a_key_with_nothing_behind_it_is_an_empty_mapping(recipe, steps):
    path = recipe("name: n\nsteps:\n  - {name: a, step: measure, settings: {data: org/d}}\nresults:\n")
    assert load_recipe(path, steps).results == {}
    fault = "small.yaml:3: a.data: missing; it has no default, so add it"
    assert faults(recipe("name: n\nsteps:\n  - {name: a, step: measure, settings: }\n"), steps) == [fault]


def test_merge_keys_are_merged_and_lines_are_those_written(recipe, steps):
    text = """\
name: merged
steps:
  - name: a
    step: make
    settings: &shared
      inputs: org/data
      seed: 3
  - name: b
    step: make
    settings:
      <<: *shared
      seed: 4
"""
    a, b = load_recipe(recipe(text), steps).steps
    assert (a.values["seed"], b.values["seed"], b.values["inputs"]) == (3, 4, "org/data")
    wrong = recipe(text.replace("seed: 4", "seed: x"))
    assert faults(wrong, steps) == ["small.yaml:12: b.seed: should be a whole number, not 'x'"]


def test_one_faulty_step_is_one_fault(recipe, steps):
    assert faults(recipe("name: n\nsteps:\n  - {name: a}\n"), steps) == [
        "small.yaml:3: a.step: missing; it has no default, so add it"
    ]


def test_what_a_steps_own_checks_refuse_is_a_fault_before_anything_runs(recipe, calls, tmp_path):
    def refuse(value):
        if value == "bad":
            raise InputError("there is no such thing")

    make = Step(MakeSettings, calls.make, "Make rows.", checks={"inputs": refuse, "note": refuse})
    entry = "name: n\nsteps:\n  - {{name: a, step: make, settings: {{inputs: {}, note: fine}}}}\n"
    load_recipe(recipe(entry.format("good")), {"make": make})
    path = recipe(entry.format("bad"))
    assert faults(path, {"make": make}) == ["small.yaml:3: a.inputs: there is no such thing"]
    assert faults(recipe(entry.format("good")), {"make": make}, overrides=["a.note=bad"]) == [
        "--set a.note: there is no such thing"
    ]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("{task: stz, model: 'pairsmith:tiny'}", "small.yaml:3: a.task: no built-in task is called 'stz'; did you mean"),
        ("{task: sts, model: 'pairsmith:tinny'}", "small.yaml:3: a.model: no bundled model is called 'pairsmith:tinny'"),
        ("{task: sts, model: ./none}", "small.yaml:3: a.model: there is no "),
    ],
)  # fmt: skip
def test_generate_in_a_recipe_is_checked_for_its_task_and_model(recipe, settings, expected):
    messages = faults(
        recipe(f"name: n\nsteps:\n  - {{name: a, step: generate, settings: {settings}}}\n"), STEPS
    )
    assert [fault.startswith(expected) for fault in messages] == [True], messages


GROWING = """\
name: growing
steps:
  - {name: pairs, step: generate, settings: {inputs: ./in.txt, per_input: 1, max_tokens: 25}}
  - {name: clean, step: postprocess, settings: {data: "@pairs"}}
results: {rows: "clean:rows"}
"""


def growing(folder, lines, change=""):
    folder.joinpath("in.txt").write_text(
        "".join(f"The man saw {n} dogs in the street.\n" for n in range(lines))
    )
    folder.joinpath("growing.yaml").write_text(GROWING.replace('"@pairs"', f'"@pairs"{change}'))
    return load_recipe(folder / "growing.yaml")


def test_when_a_step_has_grown_what_follows_is_made_anew(tmp_path):
    few = run_recipe(growing(tmp_path, 6), tmp_path / "run", Silent())
    more = run_recipe(growing(tmp_path, 9), tmp_path / "run", Silent())
    whole = run_recipe(growing(tmp_path, 9), tmp_path / "whole", Silent())
    assert few["rows"] < more["rows"] == whole["rows"]
    changed = growing(tmp_path, 9, ", augment: 1")
    with pytest.raises(
        FolderError,
        match="augment: 2 there, 1 here\ngive --fresh-step clean to pairsmith run or compare to make this step",
    ) as caught:
        run_recipe(changed, tmp_path / "run", Silent())
    assert "--fresh would start every step" in str(caught.value)
    again = run_recipe(changed, tmp_path / "run", Silent(), fresh_steps=["clean"])  # as the message says
    assert again["rows"] < more["rows"]


@pytest.mark.parametrize("kept", ["", "what is unchanged in its folders inputs, outputs is used again"])
def test_a_changed_step_of_a_recipe_says_what_a_fresh_start_uses_again(kept):
    alone = "give another folder as --out, or --fresh to start over in this one" + (
        f"; {kept}" if kept else ""
    )
    told = str(_for_recipes(OtherWorkError(f"run/a holds a run: k: 1 there, 2 here\n{alone}"), Path("run/a")))
    remedy = (
        "give --fresh-step a to pairsmith run or compare to make this step anew, and all steps that read it"
    )
    remedy += f" ({kept})" if kept else ""
    assert told == (
        f"run/a holds a run: k: 1 there, 2 here\n{remedy}, or give another --out; --fresh would start every "
        "step of the recipe over"
    )
    other_step = OtherWorkError("run/a holds a run of mine, not of filter; give another folder as --out")
    assert _for_recipes(other_step, Path("run/a")) is other_step


def test_a_fresh_start_that_was_stopped_is_still_fresh_for_the_steps_to_come(recipe, steps, calls, tmp_path):
    plan = load_recipe(recipe(), steps)
    run_recipe(plan, tmp_path / "run", Silent())
    calls.clear()
    calls.failing = "rows"
    with pytest.raises(InputError):
        run_recipe(plan, tmp_path / "run", Silent(), fresh=True)
    calls.failing = ""
    run_recipe(plan, tmp_path / "run", Silent())
    assert [(name, fresh) for _, name, _, fresh in calls] == [
        *[("rows", True)],  # stopped
        *[("rows", False), ("other", True), ("after", True)],
    ]


def test_all_faults_are_reported_at_once(recipe, steps):
    text = RECIPE.replace("./texts.txt}", "no.txt, top_p: 2, x: 1}").replace("step: measure", "step: mesure")
    assert [line.split(": ")[:2] for line in faults(recipe(text), steps)] == [
        ["small.yaml:4", "rows.inputs"],
        ["small.yaml:4", "rows.top_p"],
        ["small.yaml:4", "rows.x"],
        ["small.yaml:11", "after.step"],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "steps: []\nname: x\n",
        "steps: 3\nname: x\n",
        "name: x\n",
        "steps: [3]\nname: x\n",
        "steps: {a: 1, a: 2}\n",
    ],
)
def test_a_recipe_without_steps(recipe, steps, text):
    assert any(": step" in line for line in faults(recipe(text), steps))


def test_a_recipe_is_a_path_or_the_name_of_one_that_ships(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_recipe("quickstart") == recipe_path("quickstart")
    assert find_recipe("mine.yaml") == Path("mine.yaml")
    assert find_recipe("./quickstart") == Path("./quickstart")
    with pytest.raises(SettingsError, match="did you mean 'quickstart'"):
        find_recipe("quikstart")
    with pytest.raises(SettingsError, match=r"there is no file mine\.yaml"):
        load_recipe(find_recipe("mine.yaml"))


# running


def test_a_run_does_the_steps_in_order_and_writes_the_figures(recipe, steps, calls, tmp_path):
    out = tmp_path / "run"
    figures = run_recipe(load_recipe(recipe(), steps), out, Silent())
    assert calls.names == ["rows", "other", "after"]
    assert figures == {"figure": 71.234, "rows": 1234, "dropped": 5, "seconds": figures["seconds"]}
    assert 0 <= figures["seconds"] < 60
    assert json.loads((out / "results.json").read_text()) == figures


def test_each_step_has_a_header(recipe, steps, tmp_path, capsys):
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Progress())
    assert capsys.readouterr().err.splitlines() == [
        f"step 1/3 · make → {tmp_path}/run/rows",
        f"step 2/3 · make → {tmp_path}/run/other",
        f"step 3/3 · measure → {tmp_path}/run/after",
    ]


def test_what_is_finished_is_not_done_again(recipe, steps, calls, tmp_path, capsys):
    plan = load_recipe(recipe(), steps)
    first = run_recipe(plan, tmp_path / "run", Silent())
    calls.clear()
    again = run_recipe(plan, tmp_path / "run", Progress())
    assert calls == []
    assert "step 3/3 · measure → " in (said := capsys.readouterr().err)
    assert said.count("already done") == 3
    assert again == first


def test_the_seconds_are_those_of_the_steps_whenever_they_ran(recipe, steps, calls, tmp_path, monkeypatch):
    plan = load_recipe(recipe(), steps)
    ticks = iter(range(0, 1000, 2))
    monkeypatch.setattr("pairsmith.cli.running.time.monotonic", lambda: float(next(ticks)))
    assert run_recipe(plan, tmp_path / "run", Silent())["seconds"] == 6.0
    assert run_recipe(plan, tmp_path / "run", Silent())["seconds"] == 6.0


def test_a_fresh_start_that_was_stopped_before_a_step_had_begun_is_still_owed(recipe, steps, calls, tmp_path):
    """The step hashes its inputs first, which can take long; until it says that it has begun, it has not."""
    plan = load_recipe(recipe(), steps)
    run_recipe(plan, tmp_path / "run", Silent())
    calls.failing_early = "other"
    with pytest.raises(InputError):
        run_recipe(plan, tmp_path / "run", Silent(), fresh=True)
    calls.failing_early = ""
    calls.clear()
    run_recipe(plan, tmp_path / "run", Silent())
    assert [(name, fresh) for _, name, _, fresh in calls] == [("other", True), ("after", True)]


def test_a_run_that_stopped_goes_on_at_the_step_that_stopped(recipe, steps, calls, tmp_path):
    plan = load_recipe(recipe(), steps)
    calls.failing = "other"
    with pytest.raises(InputError):
        run_recipe(plan, tmp_path / "run", Silent())
    assert not (tmp_path / "run" / "results.json").exists()
    calls.clear()
    calls.failing = ""
    run_recipe(plan, tmp_path / "run", Silent())
    assert calls.names == ["other", "after"]


def test_a_run_that_was_moved_is_still_finished(recipe, steps, calls, tmp_path):
    plan = load_recipe(recipe(), steps)
    run_recipe(plan, tmp_path / "run", Silent())
    calls.clear()
    (tmp_path / "run").rename(tmp_path / "moved")
    run_recipe(plan, tmp_path / "moved", Silent())
    assert calls == []


def test_a_changed_setting_does_its_step_and_what_its_output_leads_to(recipe, steps, calls, tmp_path):
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent())
    calls.clear()
    run_recipe(load_recipe(recipe(), steps, seed=8), tmp_path / "run", Silent())
    assert calls.names == ["rows", "after"]


def test_a_changed_setting_that_changes_no_output_does_its_step_only(recipe, steps, calls, tmp_path):
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent())
    calls.clear()
    run_recipe(load_recipe(recipe(), steps, overrides=["rows.note=x"]), tmp_path / "run", Silent())
    assert calls.names == ["rows"]


def test_a_changed_input_file_does_the_steps_that_read_it(recipe, steps, calls, tmp_path):
    path = recipe()
    run_recipe(load_recipe(path, steps), tmp_path / "run", Silent())
    calls.clear()
    path.parent.joinpath("texts.txt").write_text("b\n")
    run_recipe(load_recipe(path, steps), tmp_path / "run", Silent())
    assert calls.names == ["rows", "after"]


@pytest.mark.parametrize("changed", ["a", "b"])
def test_files_of_the_same_name_in_two_folders_are_told_apart(recipe, steps, calls, tmp_path, changed):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.txt").write_text("x\n")
    both = [str(tmp_path / folder / "x.txt") for folder in ("a", "b")]
    overrides = [f"after.more={json.dumps(both)}"]
    run_recipe(load_recipe(recipe(), steps, overrides=overrides), tmp_path / "run", Silent())
    calls.clear()
    (tmp_path / changed / "x.txt").write_text("y\n")
    run_recipe(load_recipe(recipe(), steps, overrides=overrides), tmp_path / "run", Silent())
    assert calls.names == ["after"]


def test_a_split_of_an_earlier_step(recipe, steps, calls, tmp_path):
    path = recipe(RECIPE.replace("@other/data", "@other:train"))
    run_recipe(load_recipe(path, steps), tmp_path / "run", Silent())
    assert calls[-1][2].more == (f"{tmp_path / 'run' / 'other'}:train", "plain")
    calls.clear()
    run_recipe(load_recipe(path, steps, overrides=["other.seed=4"]), tmp_path / "run", Silent())
    assert calls.names == ["other", "after"]
    assert faults(recipe(RECIPE.replace("@other/data", "@othre:train")), steps) == [
        "small.yaml:15: after.more: @othre:train refers to no earlier step; did you mean 'other'? "
        "known: other, rows"
    ]


def test_a_step_whose_folder_is_gone_is_done_again(recipe, steps, calls, tmp_path):
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent())
    calls.clear()
    (tmp_path / "run" / "after" / "results.json").unlink()
    (tmp_path / "run" / "after").rmdir()
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent())
    assert calls.names == ["after"]


def test_a_step_whose_folder_was_changed_is_done_again(recipe, steps, calls, tmp_path):
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent())
    calls.clear()
    (tmp_path / "run" / "other" / "data" / "train-00000.parquet").write_text("half")
    (tmp_path / "run" / "after" / "results.json").write_text("{}")
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent())
    assert calls.names == ["other", "after"]


def test_fresh_does_everything_again(recipe, steps, calls, tmp_path):
    plan = load_recipe(recipe(), steps)
    run_recipe(plan, tmp_path / "run", Silent())
    calls.clear()
    run_recipe(plan, tmp_path / "run", Silent(), fresh=True)
    assert calls.names == ["rows", "other", "after"]
    assert all(fresh for *_, fresh in calls)


def test_a_step_is_started_over_in_its_folder_and_what_reads_it_is_made_anew(recipe, steps, calls, tmp_path):
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent())
    calls.clear()
    changed = load_recipe(recipe(), steps, overrides=["rows.seed=8"])
    calls.failing_early = "rows"
    with pytest.raises(InputError):
        run_recipe(changed, tmp_path / "run", Silent(), fresh_steps=["rows"])
    calls.failing_early = ""
    run_recipe(changed, tmp_path / "run", Silent())  # still to be started over
    assert [(name, fresh) for _, name, _, fresh in calls] == [
        ("rows", True),
        ("rows", True),
        ("after", False),
    ]
    with pytest.raises(
        SettingsError, match="--fresh-step row: the recipe has no such step; did you mean 'rows'"
    ):
        run_recipe(changed, tmp_path / "run", Silent(), fresh_steps=["row"])


def test_a_finished_step_is_started_over_and_what_reads_it_stays_if_its_result_is_the_same(
    recipe, steps, calls, tmp_path
):
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent())
    calls.clear()
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent(), fresh_steps=["rows"])
    assert [(name, fresh) for _, name, _, fresh in calls] == [("rows", True)]
    calls.clear()
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent())
    assert calls == []


@pytest.mark.parametrize("fresh", [False, True])
def test_a_folder_that_holds_something_else_is_refused(recipe, steps, calls, tmp_path, fresh):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(
        FolderError, match=r"run holds something other than a recipe's run; give another --out"
    ):
        run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent(), fresh=fresh)
    assert calls == []
    with pytest.raises(FolderError, match="holds something other"):
        run_recipe(load_recipe(recipe(), steps), tmp_path / "run" / "thesis.txt", Silent(), fresh=fresh)


def test_a_run_that_is_moved_in_the_middle_leaves_nothing_behind(recipe, steps, calls, tmp_path):
    def begin(run):
        (tmp_path / "run").rename(tmp_path / "moved")
        raise FolderError("it was moved")

    calls.begin = begin
    with pytest.raises(FolderError, match="it was moved"):
        run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    del calls.begin
    run_recipe(load_recipe(recipe(), steps), tmp_path / "moved", Silent())


def test_a_run_that_is_moved_while_a_step_ends_leaves_nothing_behind(recipe, steps, calls, tmp_path):
    def measure(settings, run):
        calls.measure(settings, run)
        (tmp_path / "run").rename(tmp_path / "moved")

    moving = {**steps, "measure": Step(MeasureSettings, measure, "Measure.")}
    with pytest.raises(FolderError, match="/run was moved or removed"):
        run_recipe(load_recipe(recipe(), moving), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()
    calls.clear()
    run_recipe(load_recipe(recipe(), steps), tmp_path / "moved", Silent())
    assert calls.names == ["after"]


def test_what_another_process_finished_before_the_lock_was_given_is_not_made_again(
    recipe, steps, calls, tmp_path, monkeypatch
):
    plan, out = load_recipe(recipe(), steps), tmp_path / "run"
    figures = run_recipe(plan, out, Silent())
    finished = (out / "run.json").read_bytes()
    (out / "run.json").write_text('{"recipe": "small", "steps": {}}')
    calls.clear()
    monkeypatch.setattr(lock, "acquire", lambda *_: (out / "run.json").write_bytes(finished))
    assert run_recipe(plan, out, Silent()) == figures
    assert calls == []


def test_a_run_that_another_process_makes_is_left_alone(recipe, steps, calls, tmp_path):
    """Else ``--fresh`` would start a step over whose rows the other process reads."""
    fcntl = pytest.importorskip("fcntl")
    plan, out = load_recipe(recipe(), steps), tmp_path / "run"
    run_recipe(plan, out, Silent())
    before = (out / "run.json").read_bytes()
    calls.clear()
    other = os.open(out, os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a finished run has given its folder free
    with pytest.raises(BusyError, match="another run is writing to"):
        run_recipe(plan, out, Silent(), fresh=True)
    os.close(other)
    assert calls == []
    assert (out / "run.json").read_bytes() == before
    run_recipe(plan, out, Silent())


def test_a_run_that_another_thread_makes_is_left_alone(recipe, steps, calls, tmp_path):
    """A lock is of a process: a second thread would take over the folder, as a notebook's next cell may."""
    refused = []

    def make(settings, run):
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(run_recipe, load_recipe(recipe(), steps), tmp_path / "run", Silent())
        with pytest.raises(BusyError, match="another run is writing to") as error:
            second.result()
        refused.append(error.value)
        raise InputError("the first step fails")

    failing = {**steps, "make": replace(steps["make"], work=make)}
    with pytest.raises(InputError, match="the first step fails"):
        run_recipe(load_recipe(recipe(), failing), tmp_path / "run", Silent())
    assert len(refused) == 1
    with ThreadPoolExecutor(1) as pool:  # the folder is free again, for any thread
        pool.submit(run_recipe, load_recipe(recipe(), steps), tmp_path / "run", Silent()).result()
    assert calls.names[0] == "rows"


@pytest.mark.parametrize("text", ["{", "[]", '{"recipe": "a", "steps": {"a": []}}'])
def test_a_record_that_was_changed_by_hand(recipe, steps, tmp_path, text):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.raises(FolderError, match=r"run\.json is not a valid record of a run; give --fresh"):
        run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent())
    run_recipe(load_recipe(recipe(), steps), tmp_path / "run", Silent(), fresh=True)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("after/graded.al", r"has no graded\.al: no 'al'; did you mean 'all'\? known: all, ci"),
        ("after/graded.all.x", r"has no graded\.all\.x: no 'x'; only the value 71\.234"),
        ("rows/x", r"results\.figure: the step rows wrote no results\.json"),
    ],
)
def test_a_figure_that_is_not_there(recipe, steps, tmp_path, source, words):
    plan = load_recipe(recipe(RECIPE.replace("after/graded.all", source)), steps)
    with pytest.raises(SettingsError, match=words):
        run_recipe(plan, tmp_path / "run", Silent())


SUMMED_UP = """\
name: summed-up
steps:
  - {name: a, step: measure, settings: {data: ./texts.txt}}
  - {name: b, step: make, settings: {inputs: ./texts.txt}}
  - {name: page, step: look, settings: {data: "@"}}
results: {right: a/graded.all, wrong: a/all, rows: "b:rows"}
"""


def test_a_figure_that_is_not_there_is_told_at_once_and_stops_nothing(recipe, steps, calls, tmp_path, capsys):
    """The later steps run, the other figures are written, and the mended recipe makes only the page anew."""
    steps = {**steps, "look": Step(MeasureSettings, calls.measure, "Look at all.", of_runs=True)}
    out = tmp_path / "run"
    with pytest.raises(SettingsError, match=r"results\.wrong: .* has no all"):
        run_recipe(load_recipe(recipe(SUMMED_UP), steps), out, Progress())
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0].split(" ·")[0] for line in told] == [
        *["step 1/3", "results.wrong", "step 2/3", "step 3/3"],
    ]
    assert calls.names == ["a", "b", "page"]
    figures = json.loads((out / "results.json").read_text())
    assert (figures["right"], figures["rows"], "wrong" in figures) == (71.234, 1234, False)
    calls.clear()
    mended = recipe(SUMMED_UP.replace("wrong: a/all", "wrong: a/graded.all"))
    assert run_recipe(load_recipe(mended, steps), out, Silent())["wrong"] == 71.234
    assert calls.names == ["page"]


def test_the_table_is_plain():
    table = results_table({"spearman_before": 30.456, "pairs": 1234, "ci": [1.0, 2.5], "seconds": 61.2})
    assert table.splitlines() == [
        "spearman_before       30.46",
        "pairs                 1,234",
        "ci               [1.0, 2.5]",
        "seconds               61.20",
    ]


# the recipes that ship


def test_the_quickstart_recipe_is_sound_and_finds_its_files(tmp_path):
    plan = load_recipe(recipe_path("quickstart"))
    kinds = {planned.name: planned.kind for planned in plan.steps}
    assert kinds == {
        "sample": "generate",
        "without-debiasing": "generate",
        "labels": "evaluate-labels",
        "labels-without": "evaluate-labels",
        "pairs": "generate",
        "clean": "postprocess",
        "before": "evaluate-sts",
        "before-six-layers": "evaluate-sts",
        "encoder": "train-encoder",
        "after": "evaluate-sts",
        "page": "report",
    }
    assert list(kinds)[-1] == "page"  # it is about all of the others
    of = {planned.name: planned.settings(tmp_path) for planned in plan.steps}
    assert Path(of["pairs"].inputs[0]).is_file()
    assert of["pairs"].inputs == of["sample"].inputs == of["without-debiasing"].inputs
    assert (of["pairs"].decay, of["sample"].decay, of["without-debiasing"].decay) == (None, None, 0)
    assert of["pairs"].labels == ["1", "0"]
    assert Path(of["before"].data).is_file()
    assert of["before"].data == of["before-six-layers"].data == of["after"].data
    assert of["before-six-layers"].layers == of["encoder"].layers
    assert of["encoder"].data == str(tmp_path / "clean")
    assert of["page"].data == str(tmp_path)
    assert of["after"].model == str(tmp_path / "encoder")


@pytest.mark.parametrize(
    ("given", "labels"),
    [([1, 0.5, -0.0], ["1", "0.5", "0"]), (1, ["1"]), ("good", ["good"]), (["1", 0], ["1", "0"])],
)
def test_labels_may_be_numbers(given, labels):
    assert GenerateSettings(labels=given).labels == labels


@pytest.mark.parametrize("given", [[True], [10**400], [None]])
def test_labels_that_are_none_are_told(given):
    with pytest.raises(ValidationError, match=r"label"):
        GenerateSettings(labels=given)


MEASURED = """\
name: measured
steps:
  - {name: rows, step: make, settings: {inputs: ./texts.txt}}
  - name: "graded-{n}"
    each: {n: [1, 2]}
    step: evaluate-sts
    settings: {model: "pairsmith:tiny", data: ./graded.tsv}
    results: {"all {n}": FIGURE}
  - name: again
    step: evaluate-labels
    settings: {model: "pairsmith:tiny", data: "@rows"}
results: {gap: again/GAP}
"""


def measured(recipe, steps, figure, gap):
    """A recipe with two evaluations, and the table of steps that it needs."""
    path = recipe(MEASURED.replace("FIGURE", figure).replace("GAP", gap))
    path.with_name("graded.tsv").write_text(
        "sentence1\tsentence2\tscore\n" + "".join(f"a {n}\tb {n}\t{n % 3}\n" for n in range(9))
    )
    return path, steps | {name: STEPS[name] for name in ("evaluate-sts", "evaluate-labels")}


@pytest.mark.parametrize(
    ("figure", "gap", "told"),
    [
        ("graded.al", "gap", "results.all 1: evaluate-sts gives no number 'graded.al'; did you mean 'graded.all'? known: "),
        ("grded.all_ci", "gap", "results.all 1: evaluate-sts gives no number 'grded.all_ci'; "),
        ("graded.all", "labels.0.5.men", "results.gap: evaluate-labels gives no number 'labels.0.5.men'; "),
    ],
)  # fmt: skip
def test_a_figure_that_an_evaluation_does_not_give_is_told_before_the_first_step(
    recipe, steps, figure, gap, told
):
    (fault,) = faults(*measured(recipe, steps, figure, gap))
    assert fault.startswith(f"small.yaml: {told}")


@pytest.mark.parametrize(("figure", "gap"), [("graded.all", "gap"), ("graded.all_ci", "labels.0.5.mean_ci")])
def test_figures_and_their_intervals_are_accepted(recipe, steps, figure, gap):
    recipe = load_recipe(*measured(recipe, steps, figure, gap))
    assert recipe.results == {
        "all 1": f"graded-1/{figure}",
        "all 2": f"graded-2/{figure}",
        "gap": f"again/{gap}",
    }


def test_the_names_of_test_sets_are_read_once_for_all_figures(recipe, steps, monkeypatch):
    reads = []
    monkeypatch.setattr(
        "pairsmith.data.sts.read_sts", lambda data, names: reads.append(data) or read_sts(data, names)
    )
    load_recipe(*measured(recipe, steps, "graded.all", "labels.0.5.mean"))
    assert len(reads) == 1


def test_a_figure_may_have_a_dot_in_a_key(tmp_path):
    (tmp_path / "labels").mkdir()
    figures = {"labels": {"0.5": {"mean": 0.4}, "0": {"mean": 0.1}}}
    (tmp_path / "labels" / "results.json").write_text(json.dumps(figures))
    assert figure_of("labels/labels.0.5.mean", tmp_path, "x") == 0.4
    assert figure_of("labels/labels.0.mean", tmp_path, "x") == 0.1
    with pytest.raises(SettingsError, match=r"has no labels\.2\.mean: no '2'; "):
        figure_of("labels/labels.2.mean", tmp_path, "x")
    (tmp_path / "labels" / "results.json").write_text("{")
    with pytest.raises(FolderError, match=r"results\.json is damaged; remove .*labels and run the same"):
        figure_of("labels/labels.0.mean", tmp_path, "x")


DINO = ("dino-x2", "dino-x1x2", "dino-tables")


def of_dino(name, tmp_path):
    """The settings of a recipe's steps by name, read from a folder that has its files."""
    path = tmp_path / f"{name}.yaml"
    path.write_text(recipe_path(name).read_text(encoding="utf-8"))
    (tmp_path / "sts").mkdir(exist_ok=True)
    (tmp_path / "glove.txt").touch()
    given = [f"glove.model=glove:{tmp_path}/glove.txt"] if name == "dino-tables" else []
    return {
        planned.name: planned.settings(tmp_path / "run")
        for planned in load_recipe(path, overrides=given).steps
    }


@pytest.mark.parametrize("name", [stem + size for stem in DINO for size in ("", "-small")])
def test_the_recipes_of_dino_are_the_papers(name, tmp_path):
    small = name.endswith("-small")
    steps = of_dino(name, tmp_path)
    for key, step in steps.items():
        if key.startswith("pairs"):
            drawn = (step.top_k, step.top_p, step.max_tokens, step.per_input, step.tries)
            assert drawn == (5, 0.9, 40, 2, 5)
            assert step.model == ("embedded:smollm2-135m-instruct" if small else "openai-community/gpt2-xl")
        if key.startswith("clean"):
            assert (step.validation, step.near_copies) == (0.1, "keep")
        if key.startswith("encoder"):
            assert (step.batch_size, step.epochs, step.warmup, step.eval_steps) == (32, 1, 0.1, 100)
            assert step.objective == "cosine"
            if not small:
                assert (step.base, step.pooling, step.learning_rate) == (
                    "FacebookAI/roberta-base",
                    "mean",
                    2e-5,
                )
    if "x1x2" in name:
        assert (steps["sentences"].top_k, steps["sentences"].top_p) == (0, 0.9)
        assert small or 3 * steps["sentences"].per_input == 15_000
    else:
        assert all(step.column == ["sentence1", "sentence2"] for key, step in steps.items() if "pairs" in key)


def test_the_recipe_of_dinos_tables_has_every_row_of_table_2(tmp_path):
    steps = of_dino("dino-tables", tmp_path)
    assert [steps[f"pairs-{decay}"].decay for decay in (100, 0, 200)] == [100, 0, 200]
    cleaned = {
        key: (step.data[-9:], step.smoothing, step.augment) for key, step in steps.items() if "clean" in key
    }
    assert cleaned == {
        "clean-paper": ("pairs-100", 0.2, 2),
        "clean-decay-0": ("n/pairs-0", 0.2, 2),
        "clean-decay-200": ("pairs-200", 0.2, 2),
        "clean-no-smoothing": ("pairs-100", 0.0, 2),
        "clean-no-augmentation": ("pairs-100", 0.2, 0),
    }


def test_the_recipe_of_dinos_tables_has_the_baselines_that_need_no_data(tmp_path):
    steps = of_dino("dino-tables", tmp_path)
    assert steps["glove"].model.startswith("glove:")
    for pooling in ("mean", "cls"):
        baseline = steps[f"bert-{pooling}"]
        assert (baseline.model, baseline.pooling) == ("google-bert/bert-base-uncased", pooling)


def test_the_dino_recipe_says_how_to_give_its_data_also_by_its_old_name():
    for name in ("dino-x2", "dino"):
        with pytest.raises(SettingsError, match="give its path with --set untrained.data=PATH\n"):
            load_recipe(recipe_path(name))


MINING = {"mining-squad": "mining-squad", "mining-squad-small": "mining-squad",
          "mining-ablation-small": "mining-squad", "mining-xsum": "mining-xsum",
          "mining-news-small": "mining-news", "mining-ablation-news-small": "mining-news"}  # fmt: skip
QUIP = dict.fromkeys(("quip", "quip-tables", "quip-smollm2", "quip-small", "quip-people"), "quip")


@pytest.fixture
def beside(tmp_path):
    """Reads a recipe from a folder that has its files."""

    def read(name):
        path = tmp_path / f"{name}.yaml"
        path.write_text(recipe_path(name).read_text(encoding="utf-8"))
        folder = (MINING | QUIP)[name]
        steps = [
            step for entry in yaml.safe_load(path.read_text())["steps"] for step in expanded_steps(entry)
        ]
        for file in re.findall(rf"'\./({folder}/[\w./-]+)'", str(steps)):
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).touch()
        return load_recipe(path)

    return read


@pytest.mark.parametrize("name", MINING)
def test_the_mining_recipes_are_sound_and_name_files_beside_them(name, beside, tmp_path):
    plan = beside(name)
    kinds = {planned.name: planned.kind for planned in plan.steps if not planned.name.endswith("-start")}
    assert list(kinds.values())[:4] == [
        "train-biencoder",
        "mine",
        "train-crossencoder",
        "filter",
    ]
    for planned in plan.steps:
        for value in planned.settings(tmp_path / "run").model_dump().values():
            for text in texts_in(value):
                assert not text.startswith("./")
    with pytest.raises(SettingsError, match="give its path with --set biencoder.seeds=PATH"):
        load_recipe(recipe_path(name))


RATES = [5e-6, 1e-5, 2e-5, 3e-5, 4e-5, 5e-5]


SIZES = (50, 100, 200, 500)
WAYS = {"full": "kept", "biencoder": "by-margin", "gen": "written"}


@pytest.mark.parametrize("name", ["mining-squad", "mining-xsum"])
def test_the_mining_recipes_are_the_papers(name, beside, tmp_path):
    settings = {planned.name: planned.settings(tmp_path) for planned in beside(name).steps}
    biencoder, mined, cross, kept = (settings[n] for n in ("biencoder", "mined", "crossencoder", "kept"))
    assert (biencoder.steps, cross.steps) == ((200, 1000) if name == "mining-squad" else (100, 200))
    assert (mined.margin, mined.verbatim, mined.retrieval) == ("ratio", "drop", "candidates")
    assert (cross.loss, kept.best, kept.one_per) == ("auto", 500, "both")
    if name == "mining-xsum":
        assert (mined.kind, mined.min_sentences, mined.group_column) == ("summaries", 4, "date")
    for way in (*WAYS, "gold"):
        for size in SIZES:
            trained = settings[f"{way}-{size}"]
            assert (trained.steps, trained.extra) == (200, size)
            assert trained.max_length == 1024  # passages and documents are read whole
            source = WAYS.get(way, "gold.jsonl")
            assert trained.added[0].endswith(source)
    trained = [biencoder, cross, settings["seeds-0"], settings["gold-50"]]
    assert all(step.learning_rate == RATES for step in trained)
    assert {step.base for step in trained} == {"facebook/bart-large"}


@pytest.mark.parametrize("name", QUIP)
def test_the_recipes_of_questions_are_sound_and_name_files_beside_them(name, beside, tmp_path):
    plan = beside(name)
    for planned in plan.steps:
        for value in planned.settings(tmp_path / "run").model_dump().values():
            assert not any(text.startswith("./") for text in texts_in(value))
    with pytest.raises(SettingsError, match=r"give its path with --set \w+\.data=PATH"):
        load_recipe(recipe_path(name))


def test_the_recipe_of_questions_is_the_papers(beside, tmp_path):
    plan = beside("quip")
    asker, teacher, asking, answered, student, *_ = (planned.settings(tmp_path) for planned in plan.steps)
    assert (asker.base, teacher.base, student.base) == (
        "facebook/bart-large",
        "FacebookAI/roberta-large",
        "FacebookAI/roberta-large",
    )
    assert (asking.questions, asking.top_p, asking.max_length, asking.decoding) == (10, 0.6, 456, "nucleus")
    assert (answered.top, answered.max_answer_tokens) == (8, 17)
    assert (student.labels, student.negatives, student.epochs, student.learning_rate) == (
        "teacher",
        "passage",
        2,
        [1e-5],
    )
    assert set(plan.results) >= {"squad-f1", "mrpc-auroc", "conll-f1", "wnut-f1", "sst2-accuracy"}


def test_the_tables_of_questions_have_all_their_rows(beside, tmp_path):
    plan = beside("quip-tables")
    steps = {planned.name: planned.settings(tmp_path) for planned in plan.steps}
    students = {"student", "untaught", "direct", "clozed", "joined", "hard", "beamed"}
    changed = {
        name: {
            key: value
            for key, value in steps[name].model_dump().items()
            if value != getattr(steps["student"], key)
        }
        for name in students
    }
    assert {name: set(changes) for name, changes in changed.items()} == {
        "student": set(), "untaught": {"labels"}, "direct": {"data", "labels"}, "clozed": {"data", "labels"},
        "joined": {"negatives"}, "hard": {"labels"}, "beamed": {"data"},
    }  # fmt: skip
    assert steps["crossed"].labels == "hard"
    assert steps["crossed"].base == steps["teacher"].base == steps["student"].base
    assert (steps["asked"].sample, steps["joined"].together, steps["searched"].beams) == (2_000_000, 9, 20)
    sets = ["HotpotQA", "NaturalQuestions", "NewsQA", "SQuAD", "SearchQA", "TriviaQA", "BioASQ", "TextbookQA", "DuoRC", "RACE", "RelationExtraction", "DROP"]  # fmt: skip
    of_qa = {
        f"mrqa-{name}-{model}"
        for name in sets
        for model in ("teacher", "crossed", *students - {"joined", "hard", "beamed"})
    }
    assert of_qa | {f"squad-{model}" for model in (*students, "teacher", "crossed")} <= steps.keys()
    everyone = (*students, "teacher", "crossed", "roberta")
    pairs = {f"{name}-{model}" for name in ("QQP", "MRPC", "paws-wiki", "paws-qqp") for model in everyone}
    names = {f"{name}-{model}" for name in ("conll2003", "wnut17") for model in everyone}
    opinions = {
        f"{name}-{model}" for name in ("sst2", "mr", "cr") for model in ("roberta", "student", "crossed")
    }
    assert pairs | names | opinions <= steps.keys()
    assert steps["QQP-student"].tune
    of_all = [
        steps[f"{name}-whole-{model}"] for name in ("conll2003", "wnut17") for model in ("roberta", "student")
    ]
    assert all((step.whole, step.epochs) == (True, 3) for step in of_all)  # Table 10
    assert (steps["cr-student"].item, steps["sst2-student"].item) == ("product", "movie")
    assert {"SQuAD 1.1 F1, hard", "paws-qqp AUROC, beamed", "wnut17 F1 from questions, joined"} <= set(
        plan.results
    )
    assert plan.results["DROP EM, clozed"] == "mrqa-DROP-clozed/exact"


def test_the_recipe_of_peoples_questions_compares_passages_joined_and_alone(beside, tmp_path):
    plan = beside("quip-people")
    steps = {planned.name: planned.settings(tmp_path) for planned in plan.steps}
    direct, joined = steps["direct"].model_dump(), steps["joined"].model_dump()
    assert {key for key in direct if direct[key] != joined[key]} == {"negatives"}
    assert (direct["labels"], joined["negatives"]) == ("answers", "batch")
    evaluated = {name: settings for name, settings in steps.items() if "direct" in name and name != "direct"}
    assert len(evaluated) == 9
    for name, settings in evaluated.items():
        other = steps[name.replace("direct", "joined")].model_dump()
        assert {k: v for k, v in settings.model_dump().items() if other[k] != v}.keys() == {"model"}


def test_the_small_recipe_of_questions_compares_students_that_learn_alike(beside, tmp_path):
    plan = beside("quip-small")
    steps = {planned.name: planned.settings(tmp_path) for planned in plan.steps}
    students = {name: steps[name] for name in ("student", "hard", "untaught", "clozed", "direct")}
    rest = {
        name: {
            k: v for k, v in student.model_dump().items() if k not in {"data", "labels", "epochs"}
        }  # people asked fewer questions
        for name, student in students.items()
    }
    assert all(settings == rest["student"] for settings in rest.values())
    assert {name: student.labels for name, student in students.items()} == {
        "student": "teacher",
        "hard": "hard",
        "untaught": "answers",
        "clozed": "answers",
        "direct": "answers",
    }


def test_every_recipe_that_ships_is_tested_here():
    shipped = {path.stem for path in recipe_path("quickstart").parent.glob("*.yaml")}
    small = {f"{name}-small" for name in DINO}
    assert shipped == {"quickstart", *DINO, *small, *MINING, *QUIP, "retriever", "classifier"}


def test_the_retriever_is_measured_on_queries_that_it_has_not_learned(tmp_path):
    path = tmp_path / "retriever.yaml"
    path.write_text(recipe_path("retriever").read_text(encoding="utf-8"))
    (tmp_path / "documents").mkdir()
    plan = load_recipe(path)
    steps = {planned.name: planned.settings(tmp_path) for planned in plan.steps}
    assert steps["kept"].held_back > 0
    assert steps["negatives"].pairs.endswith(":train")
    assert {steps[name].data.rpartition(":")[2] for name in ("words", "before", "after")} == {"test"}
    assert steps["before"].model == steps["retriever"].base
    assert steps["after"].data == steps["before"].data
    assert steps["after"].against == str(tmp_path / "before")


def test_the_classifier_is_measured_on_texts_that_it_has_not_learned(tmp_path):
    steps = {
        planned.name: planned.settings(tmp_path) for planned in load_recipe(recipe_path("classifier")).steps
    }
    assert steps["classifier"].data == str(tmp_path / "clean") + ":train"
    assert steps["measured"].data == str(tmp_path / "clean") + ":validation"
    assert steps["measured"].model == str(tmp_path / "classifier")
    assert steps["classifier"].validation is None
    given = ["measured.data=README.md", "measured.map={1: positive, 0: negative}"]
    mapped = load_recipe(recipe_path("classifier"), overrides=given).steps[-1].settings(tmp_path)
    assert mapped.mapping() == {"1": "positive", "0": "negative"}


def test_the_example_on_the_page_is_sound(tmp_path):
    page = Path(__file__).parent.parent.parent / "docs" / "recipes.md"
    example = tmp_path / "mine.yaml"
    example.write_text(page.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0])
    plan = load_recipe(example)
    assert [planned.kind for planned in plan.steps] == ["generate", "postprocess", "train-encoder"]


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (
            "nli",
            "encoder: train-encoder needs pairs with scores, but the task nli writes pairs whose labels",
        ),
        ("topic", "the task topic writes single texts; use train-classifier"),
        ("far.yaml", "encoder: the labels of far range from 1 to 5"),
        ("sts", None),
    ],
)
def test_labels_that_the_encoder_of_a_recipe_cannot_learn(tmp_path, task, message):
    instruction = r'{instruction: "Same: \"<X1>\" and \""}'
    (tmp_path / "far.yaml").write_text(
        f"name: far\nkind: pair\nlabels:\n  5: {instruction}\n  1: {instruction}"
    )
    (tmp_path / "recipe.yaml").write_text(
        f"""
name: r
steps:
  - {{name: pairs, step: generate, settings: {{task: {task if task != "far.yaml" else "./far.yaml"}}}}}
  - {{name: clean, step: postprocess, settings: {{data: "@pairs"}}}}
  - {{name: encoder, step: train-encoder, settings: {{base: "pairsmith:tiny", data: "@clean:train"}}}}
"""
    )
    if message is None:
        assert len(load_recipe(tmp_path / "recipe.yaml").steps) == 3
    else:
        with pytest.raises(SettingsError, match=message):
            load_recipe(tmp_path / "recipe.yaml")


def test_an_evaluation_to_compare_with_has_to_be_there(recipe, tmp_path):
    rows = {"data": '{"query": "a", "chunk": "b"}', "corpus": '{"id": "b", "text": "c"}'}
    for name, row in rows.items():
        (tmp_path / f"{name}.jsonl").write_text(f"{row}\n")
    given = {name: str(tmp_path / f"{name}.jsonl") for name in rows} | {"model": "bm25", "against": "nowhere"}
    step = {"name": "after", "step": "evaluate-retrieval", "settings": given}
    path = recipe(yaml.safe_dump({"name": "r", "description": "Some.", "steps": [step]}))
    with pytest.raises(SettingsError, match="nowhere does not exist"):
        load_recipe(path)


def test_a_finished_run_says_what_it_made():
    kinds = {"parts": "chunk", "learned": "train-retriever", "student": "infuse", "page": "report"}
    planned = (PlannedStep(name, kind, STEPS[kind], {}) for name, kind in kinds.items())
    assert list(closing_lines(Recipe("r", tuple(planned), {}), Path("my runs"))) == [
        "model: my runs/learned",
        "model: my runs/student",
        "page:  my runs/page/report.html",
        "next:  pairsmith search --model 'my runs/learned' --corpus 'my runs/parts'",
    ]


def test_faults_in_data_to_measure_on_are_told_before_anything_is_made(tmp_path):
    (tmp_path / "texts.csv").write_text("text,label\nGood film.,good\nBad film.,\n")
    text = """\
        name: late
        steps:
          - name: texts
            step: generate
            settings: {task: movie-reviews, model: "pairsmith:tiny"}
          - name: classifier
            step: train-classifier
            settings: {base: "embedded:all-minilm-l6-v2", data: "@texts"}
          - name: after
            step: evaluate-classification
            settings: {model: "@classifier", data: ./texts.csv}
        """
    (tmp_path / "late.yaml").write_text(dedent(text))
    with pytest.raises(InputError, match=r"texts\.csv:3: .*label"):
        run_recipe(load_recipe(tmp_path / "late.yaml"), tmp_path / "run", Silent())
    assert not (tmp_path / "run" / "texts").exists()


@pytest.mark.parametrize(
    ("step", "settings", "score", "told"),
    [
        ("evaluate-sts", {"against": "@before"}, "high", r"rows\.tsv:3: the score is 'high'"),
        ("evaluate-labels", {}, "", r"rows\.tsv:3: the score is '', not a number"),
        ("evaluate-retrieval", {"corpus": ["./rows.tsv"]}, "1", "2 of the 2 texts .* are not among those of"),
        ("evaluate-mteb", {}, "high", r"rows\.tsv:3: the score is 'high'"),
    ],
)
def test_every_evaluation_tells_faults_in_its_data_before_anything_is_made(
    step, settings, score, told, tmp_path
):
    (tmp_path / "rows.tsv").write_text(f"sentence1\tsentence2\tscore\na\tb\t1\nc\td\t{score}\n")
    (tmp_path / "graded.tsv").write_text("sentence1\tsentence2\tscore\na\tb\t1\nc\td\t0\n")
    before = {"model": "pairsmith:tiny", "data": "./graded.tsv"}
    after = {"model": "@trained", "data": "./rows.tsv", **settings}
    steps = [
        {"name": "before", "step": "evaluate-sts", "settings": before},
        {"name": "trained", "step": "train-encoder", "settings": {"base": "pairsmith:tiny", "data": "./graded.tsv"}},
        {"name": "after", "step": step, "settings": after},
    ]  # fmt: skip
    (tmp_path / "late.yaml").write_text(yaml.safe_dump({"name": "late", "steps": steps}))
    with pytest.raises(InputError, match=told):
        run_recipe(load_recipe(tmp_path / "late.yaml"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("first", "settings", "told"),
    [
        (
            "step: train-classifier\n    settings: {base: 'pairsmith:tiny', data: ./train.csv}",
            "model: '@first'",
            "does not know the labels ugly; it knows bad, good; .*, as after.map ugly=LABEL$",
        ),
        (
            "step: train-classifier\n    settings: {base: 'pairsmith:tiny', data: '@clean'}",
            "model: '@first'",
            "does not know the labels ugly; it knows bad, good",
        ),
        (
            "step: train-classifier\n    settings: {base: 'pairsmith:tiny', data: ./train.csv}",
            "model: '@first', map: {uggly: bad}",
            "^after.map uggly=bad: no row of .*test.csv has this label; did you mean 'ugly'",
        ),
        (
            "step: mix\n    settings: {data: [./train.csv]}",
            "model: 'pairsmith:tiny', name: {good: A good film., bad: A bad film.}",
            "does not know the labels ugly; after.name describes bad, good",
        ),
    ],
)
def test_labels_that_a_classifier_will_not_know_are_told_before_it_is_trained(
    tmp_path, first, settings, told
):
    rows = "".join(f"Good film {n}.,good\nBad film {n}.,bad\n" for n in range(8))
    (tmp_path / "train.csv").write_text(f"text,label\n{rows}")
    (tmp_path / "test.csv").write_text("text,label\nGood film.,good\nBad film.,bad\nUgly film.,ugly\n")
    text = f"""\
name: late
steps:
  - name: texts
    step: generate
    settings: {{task: movie-reviews, model: "pairsmith:tiny", rows: 10}}
  - name: clean
    step: postprocess
    settings: {{data: "@texts"}}
  - name: first
    {first}
  - name: after
    step: evaluate-classification
    settings: {{data: ./test.csv, {settings}}}
"""
    (tmp_path / "late.yaml").write_text(text)
    with pytest.raises(InputError, match=told):
        run_recipe(load_recipe(tmp_path / "late.yaml"), tmp_path / "run", Silent())
    assert not (tmp_path / "run").exists()


def test_a_fault_in_the_data_of_a_classifier_names_keys_of_the_recipe(tmp_path):
    (tmp_path / "train.csv").write_text("opinion,stars\nGood film.,good\n")
    (tmp_path / "test.csv").write_text("text,label\nGood film.,good\n")
    text = """\
        name: late
        steps:
          - name: first
            step: train-classifier
            settings: {base: "pairsmith:tiny", data: ./train.csv}
          - name: after
            step: evaluate-classification
            settings: {model: "@first", data: ./test.csv}
        """
    (tmp_path / "late.yaml").write_text(dedent(text))
    with pytest.raises(InputError, match="train.csv") as caught:
        run_recipe(load_recipe(tmp_path / "late.yaml"), tmp_path / "run", Silent())
    assert "first.text_column" in str(caught.value)
    assert "--" not in str(caught.value)


def test_faults_name_keys_of_the_recipe_and_not_options_of_a_command(recipe):
    settings = "{model: 'pairsmith:tiny', pairs: org/rows, cue: x, best: 3}"
    path = recipe(f"name: a\nsteps:\n  - {{name: b, step: filter, settings: {settings}}}\n")
    assert faults(path, STEPS) == [
        "small.yaml:3: b.settings: cue has no effect without judge likelihood; leave it out"
    ]


def test_messages_name_keys_of_the_recipe_and_not_options_of_a_command(recipe, calls, steps, tmp_path):
    def make(settings, run):
        run.progress.say("a larger --top-p gives more; --fresh starts over")
        run.progress.result("--top-p")
        with run.progress.task("make", 1, "rows") as bar:
            bar.advance()
        calls.make(settings, run)

    steps["make"] = replace(steps["make"], work=make)
    path = recipe("name: a\nsteps:\n  - {name: rows, step: make, settings: {inputs: ./texts.txt}}\n")
    heard = Heard()
    run_recipe(load_recipe(path, steps), tmp_path / "run", heard)
    assert "a larger rows.top_p gives more; --fresh starts over" in heard.lines
    assert any(line.startswith("make: 1/1 rows") for line in heard.lines)


def test_a_seed_that_a_step_refuses_is_that_of_the_call(recipe):
    path = recipe("name: a\nsteps:\n  - {name: b, step: mix, settings: {data: org/rows}}\n")
    assert faults(path, STEPS, seed=2**40) == ["--seed: should be less than 4294967296, not 1099511627776"]
    with pytest.raises(SettingsError) as caught:
        pairsmith.run_recipe(path, path.parent / "run", seed=2**40)
    assert str(caught.value) == "seed: should be less than 4294967296, not 1099511627776"
    with pytest.raises(SettingsError, match=r"^seed must be a whole number, not 'a'$"):
        pairsmith.run_recipe(path, path.parent / "run", seed="a")
    with pytest.raises(SettingsError, match=r"^overrides b\.row: unknown key"):
        pairsmith.run_recipe(path, path.parent / "run", overrides=["b.row=1"])
