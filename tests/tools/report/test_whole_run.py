"""The page about a whole run: of a recipe's folder, and as a recipe's last step."""

import json

import pytest
from tests.heard import Heard
from tests.tools.report.test_report import page_of, text_of, warnings_in
from tests.tools.report.test_rows import SHARDS, folder

from pairsmith.cli.planning import plan_recipe
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core.errors import SettingsError
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import ScoredPair

pytestmark = pytest.mark.slow

RECIPE = """\
name: one
description: >-
  Rows are cleaned,
  and that is all.
seed: 1
steps:
  - {name: clean, step: postprocess, settings: {data: ./in}}
  - {name: page, step: report, settings: {data: "@"}}
results:
  rows left: "clean:rows"
"""


def ran(path):
    """Run the recipe, and what was said of each step."""
    heard = Heard()
    run_recipe(load_recipe(path), path.parent / "run", heard)
    return [line for line in heard.lines if line.startswith("step ")]


@pytest.fixture
def recipe(tmp_path):
    folder(tmp_path / "in", SHARDS)
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return path


def test_a_recipe_ends_with_a_page_about_itself(recipe, tmp_path):
    first = ran(recipe)
    page = tmp_path / "run" / "page" / "report.html"
    text = text_of(page.read_text(encoding="utf-8"))
    assert "one Rows are cleaned, and that is all. 1 finished step, " in text
    assert "postprocess: clean, smooth and split generated rows; add negatives" in text
    assert "rows left" in text
    assert "found nothing wrong, but the rows of clean are so few that this proves little" in text
    assert "page is not finished" not in text
    assert not any("already done" in line for line in first)
    before = page.read_bytes()
    assert all("already done" in line for line in ran(recipe))
    page.unlink()
    ran(recipe)
    assert page.read_bytes() == before
    rows = [ScoredPair(str(i), f"new {i}", f"text {i}", i % 2 / 1) for i in range(9)]
    again = folder(tmp_path / "other", [{"train": rows}])
    recipe.write_text(RECIPE.replace("./in", "./other"))
    for name in ("clean", "page"):
        for file in sorted((tmp_path / "run" / name).rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
    assert not any("already done" in line for line in ran(recipe))
    assert again.rows == 9
    assert page.read_bytes() != before


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("{data: ./in}", '{data: "@"}', "@ refers to no earlier step; this is the first step"),
        ('page, step: report, settings: {data: "@"}', 'page, step: postprocess, settings: {data: "@"}',
         "@ refers to no earlier step"),
    ],
)  # fmt: skip
def test_only_a_report_can_read_a_run_and_only_with_steps_before_it(recipe, old, new, fault):
    recipe.write_text(RECIPE.replace(old, new))
    with pytest.raises(SettingsError, match=fault):
        load_recipe(recipe)


def test_a_plan_counts_all_rows_of_the_run_for_its_page(recipe, monkeypatch):
    monkeypatch.setattr("pairsmith.cli.planning._in_new_process", lambda work, *given: work(*given))
    estimates = plan_recipe(load_recipe(recipe), Silent())
    assert estimates["page"].seconds == pytest.approx(1.0, abs=0.01)


def evaluated(path, value, **about):
    path.mkdir(parents=True)
    about = {"step": "evaluate sts", "inputs": {"data": "x"}, "data": "graded.tsv", **about}
    results = {"graded": {"all": value, "all_ci": [value - 1, value + 1], "pairs": 900}, "about": about}
    (path / "results.json").write_text(json.dumps(results))


def a_run(path, names, **more):
    record = {"recipe": "r", "planned": names, "spent": {}, "steps": {name: {} for name in names}, **more}
    (path / "run.json").write_text(json.dumps(record))
    return path


def test_evaluations_of_one_kind_stand_side_by_side(tmp_path):
    run = tmp_path / "run"
    evaluated(run / "before", 40.0, model="org/base")
    evaluated(run / "after", 61.5, model="/somewhere/encoder")
    text = text_of(page_of(a_run(run, ["before", "after"]), tmp_path / "page"))
    assert "stepmodelgraded · all" in text
    assert "beforeorg/base40.00 (39.00 to 41.00)" in text
    assert "afterencoder61.50 (60.50 to 62.50)" in text
    assert "/somewhere" not in text
    assert "100 if both order the pairs alike" in text


def test_an_evaluation_that_was_compared_with_an_earlier_one_says_so(tmp_path):
    run = tmp_path / "run"
    difference = {"difference": 1.4, "difference_ci": [-0.2, 3.04], "verdict": "within noise"}
    against = {"folder": "/somewhere/before", "model": "org/base", "ndcg@10": difference}
    for name, more in (("before", {}), ("after", {"against": against})):
        evaluated(run / name, 40.0)
        results = json.loads((run / name / "results.json").read_text())
        (run / name / "results.json").write_text(json.dumps(results | more))
    for source in (run / "after", a_run(run, ["before", "after"])):
        text = text_of(page_of(source, tmp_path / source.name / "page"))
        assert text.count("Compared with before (org/base)") == 2  # in the lines below the title, and a table
        assert "ndcg@10 +1.40, 95 % interval -0.20 to +3.04: within noise." in text
        assert "figureverdictdifference95 % interval ndcg@10within noise+1.40-0.20 to +3.04" in " ".join(
            text.split()
        )
        assert "/somewhere" not in text
    suites = {"graded": {"all": difference | {"verdict": "better"}}}
    sts = {"against": {"folder": "/somewhere/before", "model": "org/base", "suites": suites}}
    (run / "after" / "results.json").write_text(json.dumps(results | sts))
    text = text_of(page_of(run / "after", tmp_path / "sts"))
    assert "graded · all +1.40, 95 % interval -0.20 to +3.04: better." in text
    assert "over the same pairs" in text
    (run / "after" / "results.json").write_text(json.dumps(results | {"against": {"folder": "x"}}))
    assert "Compared with" not in text_of(page_of(run / "after", tmp_path / "other"))


def test_what_a_step_lacks_is_named_with_its_step_and_what_to_do(tmp_path):
    run = tmp_path / "run"
    folder(run / "pairs", [{"train": [ScoredPair(str(i), f"a {i}", f"A {i}", 1.0) for i in range(20)]}])
    page = page_of(a_run(run, ["pairs"], planned=["pairs", "later"]), tmp_path / "page")
    assert warnings_in(tmp_path / "page") == [
        "pairs: 100.0 % of the pairs are near-copies",
        "the step later is not finished",
    ]
    text = text_of(page)
    assert "Look at these 2 points:" in text
    assert "pairsmith postprocess --near-copies drop leaves them out" in text
    assert "Give the same command again to finish it." in text
    page_of(a_run(run, ["pairs"], planned=["pairs", "later", "last"]), tmp_path / "page")
    assert warnings_in(tmp_path / "page")[1] == "the steps later, last are not finished"
