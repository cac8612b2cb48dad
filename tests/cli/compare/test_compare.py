"""Ways of making rows compared: the file, its recipes, what comes of them."""

import json
import math
import random
import re
from functools import partial
from types import SimpleNamespace

import pytest
import yaml
from transformers import AutoTokenizer
from typer.testing import CliRunner

from pairsmith.cli.app import main, make_app
from pairsmith.cli.compare import route
from pairsmith.cli.compare.file import Comparison, find_comparison, read_comparison
from pairsmith.cli.compare.outcome import Cost, Score, interval_half_width, table, tokens_of
from pairsmith.cli.compare.page import mean_curves, points, time_of
from pairsmith.cli.compare.recipe import Trial, as_recipe, once_recipe, steps_of_ways, trials
from pairsmith.cli.compare.route import run_comparison
from pairsmith.cli.compare.tokens import _texts
from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core.bundled import model_path
from pairsmith.core.errors import FolderError, OtherWorkError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.runs import DatasetFolder

pytestmark = pytest.mark.slow

TEXT = """\
name: small
names:
  written_for: ./texts.txt
  base: {base}
seeds: [1, 2]
rows: [4, 8]
labelled: ./people.jsonl
ways:
  written:
    pick: random
    steps:
      - name: pairs
        step: generate
        settings: {{task: sts, model: "pairsmith:tiny", inputs: $written_for, per_input: 1}}
      - name: clean
        step: postprocess
        settings: {{data: "@pairs", augment: 0, validation: 0}}
  found:
    steps:
      - name: all
        step: mix
        settings: {{data: ./found.jsonl}}
mixtures: [[written, found]]
train:
  step: train-encoder
  settings: {{base: $base, epochs: 1, learning_rate: 1.0e-3}}
measure:
  step: evaluate-sts
  figure: graded.all
  settings: {{data: ./graded.tsv, bootstrap: 0}}
"""


MEASURE = {"step": "evaluate-sts", "figure": "graded.all"}


def pairs(count, word):
    rng = random.Random(word)
    return [
        {"sentence1": f"{word} {n}", "sentence2": f"{word} {rng.random():.3f}", "score": n % 3 / 2}
        for n in range(count)
    ]


@pytest.fixture
def file(tmp_path, tiny_bert):
    (tmp_path / "texts.txt").write_text(
        "".join(f"A man plays the {word}.\n" for word in ("flute", "drum", "harp", "horn"))
    )
    for name, count in (("people", 5), ("found", 6)):
        rows = "".join(json.dumps(row) + "\n" for row in pairs(count, name))
        (tmp_path / f"{name}.jsonl").write_text(rows)
    graded = "".join(f"a {n}\tb {n * 7 % 5}\t{n % 6}\n" for n in range(12))
    (tmp_path / "graded.tsv").write_text(f"sentence1\tsentence2\tscore\n{graded}")
    (tmp_path / "c.yaml").write_text(TEXT.format(base=tiny_bert))
    return tmp_path / "c.yaml"


def called(*arguments):
    """The command, which ends well."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert not end.value.code


def changed(file, **changes):
    data = yaml.safe_load(file.read_text()) | changes
    file.write_text(yaml.safe_dump(data, sort_keys=False))
    return file


def test_the_recipe_of_a_seed(file, tmp_path):
    comparison = read_comparison(file)
    recipe = as_recipe(comparison, 7, tmp_path)
    steps = {step["name"]: step for step in recipe["steps"]}
    assert list(steps)[:6] == [
        "written-pairs", "written-clean", "found-all", "labelled", "labelled-model", "labelled-score"
    ]  # fmt: skip
    assert steps["written-clean"]["settings"]["data"] == "@written-pairs"
    assert steps["written-pairs"]["settings"]["inputs"] == str(tmp_path / "texts.txt")
    assert steps["labelled"]["settings"]["data"] == [str(tmp_path / "people.jsonl")]
    assert steps["labelled-model"]["settings"]["data"] == "@labelled"
    assert steps["written-4"]["settings"] == {
        "data": ["@written-clean"], "weight": [1.0], "rows": 4, "pick": ["random"]
    }  # fmt: skip
    assert steps["found-8"]["settings"]["pick"] == ["first"]
    assert steps["written-and-found-8"]["settings"]["pick"] == ["random", "first"]
    both = steps["written-and-found-8"]["settings"]
    assert (both["data"], both["weight"]) == (["@written-clean", "@found-all"], [1.0, 1.0])
    assert steps["written-and-found-8-all"]["settings"]["data"] == [
        "@labelled", "@written-and-found-8"
    ]  # fmt: skip
    assert steps["written-and-found-8-model"]["settings"]["data"] == "@written-and-found-8-all"
    assert steps["found-4-score"]["settings"]["model"] == "@found-4-model"
    assert recipe["results"]["written+found 4"] == "written-and-found-4-score/graded.all"
    assert [(trial.way, trial.rows) for trial in trials(comparison)] == [
        ("labelled", 0), ("written", 4), ("written", 8), ("found", 4), ("found", 8),
        ("written+found", 4), ("written+found", 8),
    ]  # fmt: skip


def test_a_split_of_an_earlier_step_of_the_way_can_be_read(file, tmp_path):
    data = yaml.safe_load(file.read_text())
    more = {"name": "last", "step": "mix", "settings": {"data": ["@clean:train", "@clean/data", "@cleaner"]}}
    data["ways"]["written"]["steps"].append(more)
    steps = as_recipe(Comparison.model_validate(data), 1, tmp_path)["steps"]
    (last,) = (step for step in steps if step["name"] == "written-last")
    assert last["settings"]["data"] == ["@written-clean:train", "@written-clean/data", "@cleaner"]


def test_steps_of_two_ways_that_do_the_same_run_once(file, tmp_path):
    data = yaml.safe_load(file.read_text())
    pairs, clean = data["ways"]["written"]["steps"]
    best = {"name": "best", "step": "mix", "settings": {"data": "@texts", "rows": 3}}
    data["ways"]["best"] = {"steps": [{**pairs, "name": "texts"}, best]}
    other = {**pairs, "settings": {**pairs["settings"], "decay": 0}}
    data["ways"]["other"] = {"steps": [other, clean]}
    comparison = Comparison.model_validate(data)
    steps = {step["name"]: step["settings"] for step in as_recipe(comparison, 1, tmp_path)["steps"]}
    assert list(steps)[:6] == [
        "written-pairs", "written-clean", "found-all", "best-best", "other-pairs", "other-clean"
    ]  # fmt: skip
    assert steps["best-best"]["data"] == "@written-pairs"
    assert steps["other-clean"]["data"] == "@other-pairs"
    assert steps["best-4"]["data"] == ["@best-best"]
    names = {way: [step.name for step in of_way] for way, of_way in steps_of_ways(comparison).items()}
    assert names["best"] == ["written-pairs", "best-best"]  # both count in what the way costs


def test_without_rows_of_people_ways_are_trained_on_alone(file, tmp_path):
    data = yaml.safe_load(file.read_text())
    del data["labelled"]
    recipe = as_recipe(Comparison.model_validate(data), 1, tmp_path)
    steps = {step["name"]: step for step in recipe["steps"]}
    assert steps["found-4-model"]["settings"]["data"] == "@found-4"
    assert not any(name.startswith("labelled") or name.endswith("-all-model") for name in steps)


def test_what_is_done_once_is_read_by_every_seed(file, tmp_path):
    data = yaml.safe_load(file.read_text())
    data["once"] = [{"name": "base", "step": "mix", "settings": {"data": ["./found.jsonl"]}}]
    data["ways"]["found"]["steps"][0] = {"name": "base", "step": "mix", "settings": {"data": "@base"}}
    data["train"]["settings"]["base"] = "@base/model"
    data |= {"seeds": [5, 6], "rows": [4]}
    file.write_text(yaml.safe_dump(data))
    called("compare", str(file), "--out", str(tmp_path / "out"), "--only-write")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["once", "seed-5", "seed-6"]
    assert load_recipe(tmp_path / "out" / "once" / "recipe.yaml").steps[0].name == "base"
    comparison = read_comparison(file)
    once = once_recipe(comparison)
    assert (once["seed"], [step["name"] for step in once["steps"]]) == (5, ["base"])
    steps = {step["name"]: step for step in as_recipe(comparison, 6, tmp_path / "once")["steps"]}
    assert steps["found-base"]["settings"]["data"] == str(tmp_path / "once" / "base")
    assert steps["found-4-model"]["settings"]["base"] == str(tmp_path / "once" / "base" / "model")


def test_a_step_starts_over_in_the_runs_that_have_it(file, tmp_path, monkeypatch):
    data = yaml.safe_load(file.read_text())
    data["once"] = [{"name": "base", "step": "mix", "settings": {"data": ["./found.jsonl"]}}]
    data["ways"]["found"]["steps"][0]["settings"]["data"] = "@base"
    data |= {"seeds": [5, 6], "rows": [4]}
    file.write_text(yaml.safe_dump(data))
    runs, once = [], (tmp_path / "out/once/run").resolve()

    def run(recipe, folder, progress, *, fresh, fresh_steps, before):
        assert before == (None if folder == once else once)
        runs.append((folder.parent.name, fresh_steps))
        (folder / "base").mkdir(parents=True)  # the seeds' recipes read it, and are loaded only then
        if len(runs) == 3:
            raise SettingsError("that was the last run")

    monkeypatch.setattr(route, "run_recipe", run)
    command = ("compare", str(file), "--out", str(tmp_path / "out"), "--fresh-step")
    result = CliRunner().invoke(make_app(), [*command, "written-pairs", "--fresh-step", "base"])
    assert "that was the last run" in result.stderr
    assert runs == [("once", ["base"]), ("seed-5", ["written-pairs"]), ("seed-6", ["written-pairs"])]
    result = CliRunner().invoke(make_app(), [*command, "pairs"])
    assert "--fresh-step pairs: the comparison has no such step; " in result.stderr
    assert len(runs) == 3


def test_a_step_starts_over_if_what_it_reads_of_another_recipe_has_changed(tmp_path):
    rows, once, seed = (tmp_path / name for name in ("rows.jsonl", "once", "seed"))

    def run_mix(name, source, out, **options):
        recipe = {"name": name, "steps": [{"name": name, "step": "mix", "settings": {"data": [str(source)]}}]}
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        run_recipe(load_recipe(tmp_path / "recipe.yaml"), out, Silent(), **options)

    def run_base(text, **options):
        rows.write_text(json.dumps({"id": "1", "text": text, "label": "a"}) + "\n")
        run_mix("base", rows, once, **options)

    run_base("old")
    run_mix("reader", once / "base", seed, before=once)
    run_base("new", fresh_steps=["base"])
    with pytest.raises(OtherWorkError, match="give --fresh-step reader"):
        run_mix("reader", once / "base", seed)
    run_mix("reader", once / "base", seed, before=once)
    assert [row["text"] for row in DatasetFolder.open(seed / "reader").table().to_pylist()] == ["new"]


@pytest.mark.long
def test_from_the_file_to_the_table(file, tmp_path, capsys):
    changed(file, rows=[8], mixtures=[])
    called("compare", str(file), "--out", str(tmp_path / "out"))
    shown = capsys.readouterr().out
    record = json.loads((tmp_path / "out" / "comparison.json").read_text())
    scores = {(score["way"], score["asked"]): score for score in record["scores"]}
    assert list(scores) == [("labelled", 0), ("written", 8), ("found", 8)]
    for score in scores.values():
        results = [
            json.loads((tmp_path / "out" / f"seed-{seed}" / "run" / "results.json").read_text())
            for seed in (1, 2)
        ]
        figures = [result[f"{score['way']} {score['asked']}"] for result in results]
        assert score["figures"] == pytest.approx(figures, abs=1e-4)
        assert score["mean"] == pytest.approx(sum(figures) / 2, abs=1e-4)
        half = 12.706 * abs(figures[0] - figures[1]) / 2
        assert score["margin"] == pytest.approx(half, abs=1e-2)
        assert f"{score['mean']:.2f}" in shown
    assert scores["found", 8]["rows"] == [6, 6]
    assert "6 of 8" in shown
    dataset = DatasetFolder.open(tmp_path / "out" / "seed-1" / "run" / "written-pairs")
    tokenizer = AutoTokenizer.from_pretrained(model_path("pairsmith:tiny"))
    texts = [row["sentence2"] for row in dataset.table().to_pylist()]
    texts += [json.loads(row["row"])["sentence2"] for row in dataset.rejects().to_pylist()]
    tokens = sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
    assert tokens == record["costs"]["written"]["tokens"][0] > 20
    assert record["costs"]["found"]["tokens"] == [0, 0]
    assert record["costs"]["written"]["rows"][0] <= 12
    assert all(seconds > 0 for seconds in record["costs"]["written"]["seconds"])
    page = (tmp_path / "out" / "comparison.html").read_text()
    assert page.count('<svg class="chart"') == 3
    before = (tmp_path / "out" / "seed-2" / "run" / "run.json").read_bytes()
    called("compare", str(file), "--out", str(tmp_path / "out"))  # nothing is done again
    assert (tmp_path / "out" / "seed-2" / "run" / "run.json").read_bytes() == before


def test_recipes_alone_can_be_had(file, tmp_path, capsys):
    called("compare", str(file), "--out", str(tmp_path / "out"), "--only-write")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["seed-1", "seed-2"]
    recipe = load_recipe(tmp_path / "out" / "seed-2" / "recipe.yaml")
    assert {step.values["seed"] for step in recipe.steps if "seed" in step.values} == {2}
    assert "seed-2/recipe.yaml" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"seeds": []}, r"c.yaml:\d+: seeds: .*at least one"),
        ({"seeds": list(range(11))}, r"c.yaml:\d+: seeds: .*at most 10"),
        ({"rows": [4, 4]}, r"c.yaml:\d+: rows: give each value once, not 4, 4"),
        ({"mixtures": [["written", "foud"]]}, r"mixtures.0: no way is called 'foud'; did you mean 'found'"),
        ({"mixtures": [["found"]]}, r"mixtures.0: a mixture needs two or more ways"),
        (
            {"ways": {"a-b": {"steps": [{"name": "a", "step": "mix"}]}}, "mixtures": []},
            r"c.yaml:\d+: ways.a-b: must be 1 to 32 letters, digits or underscores, not 'a-b'",
        ),
        ({"ways": {"a": {"steps": []}}}, r"c.yaml:\d+: ways.a.steps: .*at least one"),
        ({"seeds": [1, -2]}, r"c.yaml:\d+: seeds.1: .*greater than or equal to 0"),
        ({"names": {"base": "$other", "other": "$base"}, "labelled": "$base"}, r"\$base → \$other → \$base"),
        ({"names": {"base": "x"}}, r"\$written_for is not defined under names; known: base"),
        ({"train": {"step": "train-encodr"}}, r"no step is called 'train-encodr'; did you mean"),
        ({"measure": {"step": "evaluate-sts", "figure": "all"}}, r"data"),
        (
            {"labelled": "./none.jsonl"},
            r"has faults:\nlabelled.data: there is no .*none.jsonl; give its path\n$",
        ),
        (
            {"measure": {**MEASURE, "settings": {"data": "./no.tsv"}}},
            r"has faults:\nlabelled-score.data \(and 6 more steps\): there is no .*no.tsv; give its path\n$",
        ),
        ({"ways": {"labelled": {"steps": [{"name": "a", "step": "mix"}]}}, "mixtures": []}, r"ways.labelled"),
    ],
)
def test_faults_of_the_file_are_named(file, tmp_path, changes, fault, capsys):
    with pytest.raises(SystemExit) as end:
        main(["compare", str(changed(file, **changes)), "--out", str(tmp_path / "out")])
    assert end.value.code == 2

    assert re.search(fault, capsys.readouterr().err)


def test_a_folder_of_something_else_is_left_alone(file, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("mine")
    comparison = read_comparison(file)
    with pytest.raises(FolderError, match=r"holds something other than a comparison \(thesis.tex\)"):
        run_comparison(comparison, tmp_path / "out", Silent())
    with pytest.raises(FolderError, match="is a file"):
        run_comparison(comparison, tmp_path / "texts.txt", Progress())


def test_intervals_by_hand():
    assert interval_half_width([1.0]) is None
    assert interval_half_width([1.0, 3.0]) == pytest.approx(12.706 * math.sqrt(2) / math.sqrt(2))
    assert interval_half_width([1.0, 2.0, 3.0]) == pytest.approx(4.303 / math.sqrt(3))


SCORES = [
    Score(Trial(()), [0, 0], [50.0, 52.0], [10.0, 10.0]),
    Score(Trial(("one",), 100), [100, 100], [60.0, 60.0], [20.0, 22.0]),
    Score(Trial(("one", "two"), 100), [90, 100], [70.0, 70.0], [20.0, 22.0]),
]
COSTS = {"one": Cost([100.0, 110.0], [3000, 3200], [120, 120]), "two": Cost([5.0, 5.0], [0, 0], [90, 100])}


def test_lines_of_the_page_begin_with_peoples_rows():
    by_rows, spans = mean_curves(SCORES)
    assert by_rows == {"one": [(0.0, 51.0), (100.0, 60.0)], "one+two": [(0.0, 51.0), (95.0, 70.0)]}
    assert spans["one"][0] == pytest.approx((51 - 12.706, 51 + 12.706))
    assert spans["one"][1] == (60.0, 60.0)
    by_time, spans = points(SCORES, partial(time_of, costs=COSTS))
    assert by_time == {"labelled": [(10.0, 51.0)], "one": [(126.0, 60.0)], "one+two": [(131.0, 70.0)]}
    assert spans["one"] == [(60.0, 60.0)]
    by_tokens, _ = points(SCORES, partial(tokens_of, costs=COSTS))
    assert by_tokens == {"labelled": [(0.0, 51.0)], "one": [(3100.0, 60.0)], "one+two": [(3100.0, 70.0)]}


def test_the_table_by_hand():
    lines = table(SCORES, COSTS).splitlines()
    assert lines[0].split("  ")[0] == "way"
    assert lines[1].split() == ["labelled", "0", "51.00", "12.71", "10", "s"]
    assert lines[2].split() == ["one", "100", "60.00", "0.00", "1", "min", "45", "s", "3,100", "21", "s"]
    assert lines[3].split()[:4] == ["one+two", "95", "of", "100"]


def test_a_shipped_comparison_is_found_by_name():
    assert find_comparison("compare-sts").name == "compare-sts.yaml"
    with pytest.raises(
        SettingsError, match="no shipped comparison is called 'compare-st'; did you mean 'compare-sts'"
    ):
        find_comparison("compare-st")


def test_what_was_asked_before_was_written_too():
    again = Reject.of("1", "duplicate", "asked before", {"written": "Anna", "question": "Who?"})
    dataset = SimpleNamespace(splits=(), rejects=lambda: to_table([again], REJECT))
    assert list(_texts(dataset, ("written", "question"), None)) == ["Anna", "Who?"]
    assert list(_texts(dataset, ("written", "question"), "duplicate")) == []
