"""The whole route as a recipe, on random models: planned, run, run again."""

import json
from collections import Counter

import numpy as np
import pytest
from tests.training.few import PLAYS, passage, reading, write

from pairsmith.cli import planning
from pairsmith.cli.planning import plan_recipe, plan_table
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core.progress import Progress, Silent
from pairsmith.runs import DatasetFolder
from pairsmith.steps.corpora.corpus import Unit
from pairsmith.steps.mine import plan as mine_plan
from pairsmith.steps.mine.plan import _products, _Sample, plan_mine
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.training import plan

pytestmark = pytest.mark.slow

RECIPE = """
name: small
steps:
  - name: biencoder
    step: train-biencoder
    settings: {kind: reading, seeds: ./seeds.jsonl, validation: ./test.jsonl, inputs: ./questions.jsonl,
               outputs: ./passages.jsonl, base: BASE, steps: 4, batch_size: 4}
  - name: mined
    step: mine
    settings: {kind: reading, inputs: ./questions.jsonl, outputs: ./passages.jsonl, encoder: "@biencoder", style: 0}
  - name: crossencoder
    step: train-crossencoder
    settings: {kind: reading, seeds: ./seeds.jsonl, base: BASE, mined: "@mined", encoder: "@biencoder", steps: 4}
  - name: kept
    step: filter
    settings: {pairs: "@mined", model: "@crossencoder", best: 3}
  - name: reader
    step: train-reader
    settings: {seeds: ./seeds.jsonl, added: "@kept", extra: 2, base: BASE, steps: 4, batch_size: 4}
  - name: measured
    step: evaluate-qa
    settings: {model: "@reader", data: ./test.jsonl, bootstrap: 10}
results:
  kept: "kept:rows"
  f1: measured/f1
"""


@pytest.fixture
def recipe(tmp_path, tiny_bert):
    reading(tmp_path / "seeds.jsonl", range(8))
    reading(tmp_path / "test.jsonl", range(8, 12))
    write(tmp_path / "questions.jsonl", [{"question": f"who plays the {play}?"} for play in PLAYS])
    write(tmp_path / "passages.jsonl", [{"text": passage(number)} for number in range(12)])
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE.replace("BASE", str(tiny_bert)))
    return load_recipe(path)


def test_the_route_runs_and_is_not_done_twice(recipe, tmp_path, capsys):
    figures = run_recipe(recipe, tmp_path / "run", Silent())
    assert figures["kept"] == 3
    assert 0 <= figures["f1"] <= 100
    assert "| added questions | 2 |" in (tmp_path / "run/reader/README.md").read_text()
    assert run_recipe(recipe, tmp_path / "run", Progress())["f1"] == figures["f1"]
    assert capsys.readouterr().err.count("already done") == 6


def test_texts_are_compared_within_their_group_if_the_style_lets_them():
    def sample(per_record, kept=1.0, **records):
        return _Sample([Unit("text", "here")], Counter(records), per_record * kept)

    assert _products(sample(1, a=2, b=3), sample(2, a=4, c=9)) == 2 * (4 * 2)
    assert _products(sample(0.5, a=10), sample(2, 0.25, a=100)) == 5 * 50


@pytest.mark.parametrize(
    ("retrieval", "count"),
    [("max", 3), ("intersection", 3), ("forward", 5), ("backward", 3), ("candidates", 32)],
)
def test_the_rule_decides_how_many_pairs_a_plan_expects(retrieval, count, tmp_path, monkeypatch):
    monkeypatch.setattr(mine_plan, "text_encoder", lambda *_: lambda texts: np.ones((len(texts), 2)))
    monkeypatch.setattr(mine_plan, "search_seconds", lambda *_: 0.0)
    inputs = write(tmp_path / "inputs.jsonl", [{"text": f"in {n}"} for n in range(5)])
    outputs = write(tmp_path / "outputs.jsonl", [{"text": f"out {n}"} for n in range(3)])
    settings = MineSettings(
        inputs=str(inputs), outputs=str(outputs), encoder=str(tmp_path), retrieval=retrieval
    )
    assert plan_mine(settings, {}).rows == {"train": count}


@pytest.mark.long
def test_its_plan_tells_what_comes_out(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "_in_new_process", lambda work, *arguments: work(*arguments))
    monkeypatch.setattr(plan, "TRIED_STEPS", 2)
    estimates = plan_recipe(recipe, Silent())
    assert not (tmp_path / "run").exists()
    assert list(estimates) == [planned.name for planned in recipe.steps]
    run_recipe(recipe, tmp_path / "run", Silent())
    mined = DatasetFolder.open(tmp_path / "run" / "mined").rows
    assert mined <= estimates["mined"].rows["train"] <= 12
    assert estimates["kept"].rows == {"train": 3}
    weights = json.loads((tmp_path / "run/biencoder/training.json").read_text())["files"]
    size = sum((tmp_path / "run/biencoder" / name).stat().st_size for name in weights)
    assert size <= estimates["biencoder"].disk <= size + 400_000
    assert all(estimate.seconds > 0 for estimate in estimates.values())
    monkeypatch.setattr(plan, "MOST_SECONDS", 0.0)  # every step is slow: a part of each is tried
    slow = plan_recipe(recipe, Silent())
    assert all(slow[name].disk == estimates[name].disk for name in ("biencoder", "crossencoder", "reader"))
    assert "crossencoder" in plan_table(estimates, 1)
