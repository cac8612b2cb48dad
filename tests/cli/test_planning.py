"""What ``pairsmith plan`` says, against what then happens."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
from tests.trials import refuse, say_where

from pairsmith.cli import planning
from pairsmith.cli.app import main
from pairsmith.cli.planning import Prices, plan_recipe, plan_table
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core.errors import SettingsError, WorkerError
from pairsmith.core.progress import Silent
from pairsmith.runs import DatasetFolder
from pairsmith.runs.estimate import Estimate
from pairsmith.runs.executors import how_it_ended
from pairsmith.steps.generate import plan as generate_plan

pytestmark = pytest.mark.slow

RECIPE = """
name: small
steps:
  - name: own
    step: generate
    settings: {task: sts-x1, model: "pairsmith:tiny", per_input: 5, max_tokens: 25}
  - name: pairs
    step: generate
    settings: {task: sts, model: "pairsmith:tiny", inputs: [./in.txt, "@own"], max_tokens: 25, shard_size: 15}
  - name: clean
    step: postprocess
    settings: {data: "@pairs"}
  - name: encoder
    step: train-encoder
    settings: {base: "pairsmith:tiny", data: "@clean"}
  - name: after
    step: evaluate-sts
    settings: {model: "@encoder", data: ./graded.tsv, bootstrap: 10}
"""


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"The man saw {i} dogs in the street.\n" for i in range(12)))
    graded = "".join(f"text {i}\tword {i}\t{i % 5}\n" for i in range(20))
    (tmp_path / "graded.tsv").write_text("sentence1\tsentence2\tscore\n" + graded)
    path = tmp_path / "small.yaml"
    path.write_text(RECIPE)
    return load_recipe(path)


def in_this_process(work, *arguments):
    """In this process, which is quicker."""
    return work(*arguments)


@pytest.mark.long
def test_rows_are_about_those_that_come_out(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "_in_new_process", in_this_process)
    monkeypatch.setattr(generate_plan, "CALIBRATION_SECONDS", 2.0)
    estimates = plan_recipe(recipe, Silent())
    assert not (tmp_path / "run").exists()
    run_recipe(recipe, tmp_path / "run", Silent())
    for name in ("own", "pairs", "clean"):
        counts = DatasetFolder.open(tmp_path / "run" / name).split_rows
        assert estimates[name].rows.keys() == counts.keys()
        for split, rows in counts.items():
            assert estimates[name].rows[split] == pytest.approx(rows, rel=0.25, abs=4), (name, split)
    assert estimates["pairs"].tokens > estimates["own"].tokens > 0
    assert estimates["pairs"].shards > 1
    assert all(
        estimate.seconds > 0 and estimate.memory > 10**7 and estimate.disk > 0
        for estimate in estimates.values()
    )


@pytest.mark.long
def test_a_trial_runs_in_a_process_of_its_own():
    assert planning._in_new_process(say_where).memory != os.getpid()
    with pytest.raises(SettingsError, match="told across"):
        planning._in_new_process(refuse)


def test_only_a_trial_that_was_killed_is_said_to_lack_memory():
    with pytest.raises(WorkerError, match="the trial ended with exit code 3; what it wrote above says why"):
        planning._in_new_process(os._exit, 3)
    codes = {-9: "signal 9 (out of memory?)", 137: "exit code 137 (out of memory?)", -11: "signal 11"}
    for code, words in codes.items():
        process = SimpleNamespace(join=lambda _: None, is_alive=lambda: False, exitcode=code)
        assert how_it_ended(process) == words


def test_the_table_sums_up_and_shares_work_among_workers():
    steps = {
        "pairs": Estimate(
            *(100.0, 2 * 10**9, 3 * 10**6, {"train": 1200}),
            tokens=56000,
            shared=90.0,
            shards=3,
            worker_memory=10**9,
            starting=4.0,
        ),
        "after": Estimate(20.0, 10**9, 4096, {}, scratch=10**7),
    }
    lines = plan_table(steps, 1).splitlines()
    assert lines[0].split() == ["step", "rows", "tokens", "written", "time", "memory", "disk"]
    assert lines[1].split() == ["pairs", "1,200", "56,000", "1", "min", "40", "s", "2.0", "GB", "3.0", "MB"]
    assert lines[3].split() == ["all", "56,000", "2", "min", "04", "s", "2.0", "GB", "3.0", "MB"]
    assert lines[4] == "the total time includes 4 s in which the libraries are loaded"
    assert lines[5] == "peak disk use during the run, with checkpoints: 13.0 MB"
    assert len(lines) == 6
    # 4 s of starting, 10 s that cannot be shared, 90 s among at most three, and 20 s.
    assert plan_table(steps, 8).splitlines()[-1].endswith(": 1 min 04 s; each needs 1.0 GB of memory")
    # Of three pieces one of two workers does two.
    assert plan_table(steps, 2).splitlines()[-1].endswith(": 1 min 34 s; each needs 1.0 GB of memory")


def test_a_part_of_a_step_cannot_be_looked_into(recipe, monkeypatch, tmp_path):
    text = (tmp_path / "small.yaml").read_text().replace('data: "@pairs"', 'data: "@pairs/data"')
    (tmp_path / "small.yaml").write_text(text)
    monkeypatch.setattr(planning, "_in_new_process", lambda *_: Estimate(1.0, 1, 1, {}))
    with pytest.raises(SettingsError, match="clean: @pairs/data is part of a step's folder"):
        plan_recipe(load_recipe(tmp_path / "small.yaml"), Silent())


def test_a_split_counts_its_own_rows(recipe, monkeypatch, tmp_path):
    text = (tmp_path / "small.yaml").read_text().replace('data: "@clean"', 'data: "@clean:validation"')
    (tmp_path / "small.yaml").write_text(text)
    earlier = {}

    def estimated(_, kind, settings, before, begun):
        earlier[kind] = before
        return Estimate(1.0, rows={"train": 90, "validation": 10} if kind == "postprocess" else {})

    monkeypatch.setattr(planning, "_in_new_process", estimated)
    plan_recipe(load_recipe(tmp_path / "small.yaml"), Silent())
    assert earlier["train-encoder"]["@clean:validation"].rows_of() == 10
    assert earlier["train-encoder"]["@clean"].rows_of() == 100


def test_an_error_of_a_step_names_the_keys_of_the_recipe(recipe, monkeypatch):
    def refuse(*_):
        raise SettingsError("--max-tokens 25 leaves no room; give --top-k or another --out")

    monkeypatch.setattr(planning, "_in_new_process", refuse)
    with pytest.raises(
        SettingsError, match=r"^own\.max_tokens 25 leaves no room; give own\.top_k or another"
    ):
        plan_recipe(recipe, Silent())


def test_what_a_servers_tokens_cost():
    estimate = Estimate(seconds=1, memory=1, disk=1, rows={"train": 1}, bought=(2_000_000, 100_000))
    both = {"a": estimate, "b": estimate}
    prices = Prices(read=0.5, written=1.5, budget=1.15)
    lines = plan_table(both, 1, prices).splitlines()[-2:]
    # 4 million at 0.5 and 0.2 million at 1.5: 2.00 + 0.30
    assert (
        lines[0]
        == "servers read 4,000,000 tokens and write 200,000: 2.30 at 0.5 and 1.5 for a million tokens"
    )
    assert lines[1].startswith("the budget of 1.15 pays for 50 % of these tokens")
    assert plan_table(both, 1, Prices(0.5, 1.5, 3)).endswith("the budget of 3.00 suffices")
    assert plan_table(both, 1).splitlines()[-1].startswith("servers read 4,000,000 tokens and write 200,000;")
    assert "no price" in plan_table({"a": replace(estimate, bought=(0, 0))}, 1, prices)


@pytest.mark.parametrize("given", [["--price-in", "nan"], ["--budget", "5"], ["--price-out", "-1"]])
def test_prices_that_say_nothing_are_refused(given, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "quickstart", *given])
    assert ended.value.code == 2
    assert "price" in capsys.readouterr().err
