"""The figure of a comparison is checked before anything is trained."""

from pathlib import Path

import numpy as np
import pytest
import yaml

from pairsmith.cli.app import main
from pairsmith.cli.compare.file import EvaluationEntry
from pairsmith.cli.compare.route import check_figure
from pairsmith.cli.expansion import expanded_steps
from pairsmith.cli.steps import STEPS
from pairsmith.core.errors import SettingsError
from pairsmith.data.documents import Document
from pairsmith.methods.dino.evaluation import Figure, SuiteScores, classification_figures, separation
from pairsmith.methods.quip.sentiment import RATIONALES, Judged
from pairsmith.metrics.ranking import MEASURES
from pairsmith.steps.evaluate.figures import over_splits
from pairsmith.steps.evaluate.qa import qa_figures
from pairsmith.steps.evaluate.sentiment import sentiment_figures
from pairsmith.steps.evaluate.summaries import summary_figures, summary_rouge

RECIPES = Path(__file__).parents[3] / "recipes"


def numbers_in(value, above=""):
    """The paths of all numbers in a result."""
    for key, part in value.items():
        if isinstance(part, dict):
            yield from numbers_in(part, f"{above}{key}.")
        elif isinstance(part, int | float) and not isinstance(part, bool):
            yield f"{above}{key}"


def summaries():
    documents = [Document(f"A man plays the flute. It is day {n}.", "here", summary="A man.") for n in "12"]
    written = ["A man plays.", "It is day."]
    return summary_figures(summary_rouge(written, documents), written, documents, bootstrap=0)


def sentiment():
    scores = np.random.default_rng(0).normal(size=(RATIONALES + 1, 4, 2))
    judged = Judged(scores, scores.mean(axis=1), [""] * 4)
    return sentiment_figures(judged, np.array([True, False, True, False]), bootstrap=0)


SPLITS = over_splits({n: np.array([[1, 0, 1], [1, 1, 0]]) for n in (1, 2)}, bootstrap=0, seed=0)
RESULTS = {
    "evaluate-sts": {"graded": SuiteScores(9, Figure(1.0, None), Figure(2.0, None), {"a": 1.0}).to_json()},
    "evaluate-labels": separation(
        [("a", "b", "1"), ("c", "d", "0.5")], np.array([0.5, 0.2]), draws=0, seed=0
    ),
    "evaluate-retrieval": dict.fromkeys(MEASURES, 1.0),
    "evaluate-qa": qa_figures([True], [1.0], bootstrap=0),
    "evaluate-summaries": summaries(),
    "evaluate-paraphrase": {"few_shot": {"frozen": {**SPLITS, "shots": 16}, "tuned": SPLITS}},
    "evaluate-ner": {"random": SPLITS, "questions": SPLITS},
    "evaluate-sentiment": sentiment(),
    "evaluate-classification": classification_figures(["0.5", "1"], ["1", "0.5"], [0, 1], bootstrap=0),
}


def test_every_evaluation_lists_its_figures():
    evaluations = {name for name in STEPS if name.startswith("evaluate-")}
    lacking = evaluations - {"evaluate-mteb", *RESULTS}  # mteb's figures need its package and a task
    assert not lacking, f"add some results of {', '.join(sorted(lacking))} to RESULTS in this file"


@pytest.mark.parametrize("step", RESULTS)
def test_every_number_that_an_evaluation_gives_is_listed(step):
    figures = list(numbers_in(RESULTS[step]))
    assert figures
    for figure in figures:
        check_figure(EvaluationEntry(step=step, figure=figure, settings={"data": "@rows"}))
    with pytest.raises(SettingsError, match=f"{step} gives no number 'f1.wrong'"):
        check_figure(EvaluationEntry(step=step, figure="f1.wrong", settings={"data": "@rows"}))


@pytest.mark.parametrize("file", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_figures_of_shipped_recipes_are_listed(file):
    data = yaml.safe_load(file.read_text())
    entries = [step for entry in data["steps"] for step in expanded_steps(entry)]
    kinds = {entry["name"]: entry["step"] for entry in entries}
    named = [(entry["step"], figure) for entry in entries for figure in entry.get("results", {}).values()]
    sources = [source.split("/", 1) for source in data.get("results", {}).values() if "/" in source]
    for kind, figure in [*named, *((kinds[step], figure) for step, figure in sources)]:
        if kind.startswith("evaluate-") and not figure.startswith("against."):
            check_figure(EvaluationEntry(step=kind, figure=figure, settings={"data": "@rows"}))


def test_the_figures_of_shipped_comparisons_are_listed():
    for file in sorted((RECIPES / "comparisons").glob("*.yaml")):
        measure = yaml.safe_load(file.read_text())["measure"]
        settings = {"data": "@rows"}  # the names of test sets are not read
        check_figure(EvaluationEntry(step=measure["step"], figure=measure["figure"], settings=settings))
        with pytest.raises(SettingsError, match="gives no number 'none'"):
            check_figure(EvaluationEntry(step=measure["step"], figure="none", settings=settings))


@pytest.mark.parametrize(
    ("figure", "told"),
    [
        ("graded.al", "measure.figure: evaluate-sts gives no number 'graded.al'; did you mean 'graded.all'?"),
        ("grded.all", "known: graded.all, graded.pairs, graded.trained_on"),
        ("graded.mean", "gives no number 'graded.mean'"),
        ("graded.all_ci", "gives no number 'graded.all_ci'"),
    ],
)
def test_a_wrong_figure_is_told_before_the_first_step(tmp_path, capsys, figure, told):
    graded = "".join(f"a {n}\tb {n * 7 % 5}\t{n % 6}\n" for n in range(12))
    (tmp_path / "graded.tsv").write_text(f"sentence1\tsentence2\tscore\n{graded}")
    (tmp_path / "rows.jsonl").write_text('{"sentence1": "a", "sentence2": "b", "score": 1}\n' * 4)
    (tmp_path / "c.yaml").write_text(f"""\
name: small
rows: [4]
ways:
  given:
    steps: [{{name: all, step: mix, settings: {{data: ./rows.jsonl}}}}]
train: {{step: train-encoder, settings: {{base: "pairsmith:tiny"}}}}
measure: {{step: evaluate-sts, figure: {figure}, settings: {{data: ./graded.tsv}}}}
""")
    with pytest.raises(SystemExit) as end:
        main(["compare", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out")])
    assert end.value.code == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_names_of_test_sets_that_a_step_makes_are_not_read():
    check_figure(EvaluationEntry(step="evaluate-sts", figure="graded.all", settings={"data": "@graded"}))


def test_without_data_none_are_read_from_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "stsb").mkdir()
    line = "main-captions\tMSRvid\t2012test\t0001\t2.5\tA girl sings.\tA girl hums.\n"
    (tmp_path / "stsb" / "sts-test.csv").write_text(line * 3)
    monkeypatch.chdir(tmp_path)
    check_figure(
        EvaluationEntry(step="evaluate-sts", figure="graded.all")
    )  # that there are no data is told later
    with pytest.raises(SettingsError, match=r"known: stsb\.all"):
        check_figure(EvaluationEntry(step="evaluate-sts", figure="graded.all", settings={"data": "."}))


def test_differences_from_an_earlier_evaluation_are_figures_only_with_against():
    settings = {"data": "@rows", "against": "@before"}
    check_figure(EvaluationEntry(step="evaluate-qa", figure="against.f1.change", settings=settings))
    for figure, given in (("against.f1", {"data": "@rows"}), ("f1.wrong", settings)):
        with pytest.raises(SettingsError, match=f"gives no number '{figure}'"):
            check_figure(EvaluationEntry(step="evaluate-qa", figure=figure, settings=given))
