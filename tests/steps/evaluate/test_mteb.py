"""What mteb says of an encoder, against what ``evaluate sts`` says of it. Importing mteb takes some seconds."""

import json
import sys

import pytest
import torch
from pydantic import ValidationError
from tests.steps.evaluate.test_sts import PAIRS

from pairsmith.core.bundled import recipe_path
from pairsmith.core.errors import FolderError, InputError, MissingExtra, ModelError, SettingsError
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.schemas import GradedPair
from pairsmith.data.sts import StsSuite, read_sts
from pairsmith.methods.dino.evaluation import sts_scores
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import Run
from pairsmith.runs.status import status_lines
from pairsmith.steps.evaluate import mteb as module
from pairsmith.steps.evaluate.mteb import evaluate_mteb, plan_evaluate_mteb
from pairsmith.steps.evaluate.settings import EvaluateMtebSettings, EvaluateStsSettings
from pairsmith.steps.evaluate.sts import encoder_of

pytestmark = pytest.mark.slow

EXAMPLE = recipe_path("quickstart").parent.parent / "examples" / "graded-pairs.tsv"


@pytest.fixture
def graded(tmp_path):
    path = tmp_path / "graded.tsv"
    path.write_text(PAIRS)
    return path


def settings(model, data=None, **rest):
    data = None if data is None else str(data)
    return EvaluateMtebSettings(model=str(model), data=data, **{"device": "cpu", **rest})


def our_figure(model, data):
    """Spearman's correlation as ``evaluate sts`` finds it, not ×100, before it is rounded."""
    given = EvaluateStsSettings(model=str(model), data=str(data), device="cpu")
    (score,) = sts_scores(encoder_of(given, Silent()), read_sts(given.data), bootstrap=0).values()
    return score.all.value / 100


@pytest.mark.parametrize(
    "model", [pytest.param("embedded:all-minilm-l6-v2", marks=pytest.mark.long), "tiny_bert", "tiny_gpt2"]
)
def test_mteb_finds_what_evaluate_sts_finds(model, tmp_path, request):
    name = model if ":" in model else request.getfixturevalue(model)
    out = tmp_path / "out"
    results = evaluate_mteb(settings(name, EXAMPLE), Run(out, Silent()))
    (scores,) = json.loads((out / "mteb" / "graded-pairs.json").read_text())["scores"]["test"]
    figure = our_figure(name, EXAMPLE)
    assert scores["cosine_spearman"] == pytest.approx(figure, abs=1e-6)
    assert results["tasks"]["graded-pairs"]["main"] == pytest.approx(100 * figure, abs=1e-4)


def test_results_lie_in_the_folder_and_are_not_computed_again(
    tiny_bert, graded, tmp_path, monkeypatch, capfd
):
    out = tmp_path / "out"
    results = evaluate_mteb(settings(tiny_bert, graded), Run(out, Progress()))
    assert json.loads((out / "results.json").read_text()) == results
    task = results["tasks"]["graded"]
    assert task["metric"] == "cosine_spearman"
    assert task["splits"] == {"test": {"default": task["main"]}}
    assert results["mean"] == task["main"]
    assert results["about"]["models"]["model"].startswith("sha256:")
    assert sorted(file.name for file in out.iterdir()) == ["README.md", "mteb", "results.json"]
    said = capfd.readouterr()
    assert said.out.splitlines() == [
        "task      ×100  metric",
        f"graded  {task['main']:>6.2f}  cosine_spearman",
    ]
    assert all(line.startswith(("task 1/1", "encode: ", "Writing")) for line in said.err.splitlines())
    assert status_lines(out) == [f"{out}: evaluate mteb, finished"]
    monkeypatch.setattr(module, "load_mteb_encoder", None)
    assert evaluate_mteb(settings(tiny_bert, graded, batch_size=7), Run(out, Progress())) == results
    assert "already evaluated with these settings" in capfd.readouterr().err
    with pytest.raises(FolderError, match=r"pooling: .*cls.*\n.*--fresh to start over"):
        evaluate_mteb(settings(tiny_bert, graded, pooling="cls"), Run(out, Silent()))
    graded.write_text(PAIRS.replace("3.5", "3.6"))
    with pytest.raises(FolderError, match="input data is another, or has changed: "):
        evaluate_mteb(settings(tiny_bert, graded), Run(out, Silent()))


def test_a_run_that_was_stopped_goes_on_with_the_next_task(tiny_bert, tmp_path, monkeypatch):
    from pairsmith.steps.evaluate import mteb_tasks

    data, real, begun = tmp_path / "data", mteb_tasks.run_task, []
    for year, names in (("2012", ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews")),
                        ("2013", ("FNWN", "headlines", "OnWN"))):  # fmt: skip
        (data / year).mkdir(parents=True)
        for number, name in enumerate(names):
            lines = [f"{5 - n}\tA man {name} {n}.\tA man {number} is {n * n}.\n" for n in range(4)]
            (data / year / f"{name}.test.tsv").write_text("".join(lines))

    def stopping(task, *rest):
        begun.append(task.metadata.name)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return real(task, *rest)

    monkeypatch.setattr(mteb_tasks, "run_task", stopping)
    given, out = settings(tiny_bert, data), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        evaluate_mteb(given, Run(out, Silent()))
    results = evaluate_mteb(given, Run(out, Silent()))
    assert begun == ["sts12", "sts13", "sts13"]
    figures = {name: task["main"] for name, task in results["tasks"].items()}
    # Of several subsets together, as mteb's own STS12 is: what evaluate sts calls "all".
    scores = sts_scores(
        encoder_of(EvaluateStsSettings(model=str(tiny_bert), data=str(data), device="cpu"), Silent()),
        read_sts(str(data)),
        bootstrap=0,
    )
    assert figures == {name: pytest.approx(score.all.value, abs=1e-4) for name, score in scores.items()}
    assert results["mean"] == pytest.approx(sum(figures.values()) / 2, abs=1e-4)
    file = out / "mteb" / "sts12.json"
    file.write_text(file.read_text().replace('"main_score": ', '"main_score": 0'))
    (out / "mteb" / "other.json").write_text("{}")
    assert evaluate_mteb(given, Run(out, Silent()))["tasks"] == results["tasks"]
    assert begun[3:] == ["sts12"]
    evaluate_mteb(given, Run(out, Silent(), fresh=True))
    assert begun[4:] == ["sts12", "sts13"]
    assert sorted(path.name for path in file.parent.iterdir()) == ["sts12.json", "sts13.json"]


@pytest.mark.long
def test_names_that_mteb_does_not_know_are_told_before_a_model_is_looked_for(tmp_path):
    run = Run(tmp_path / "out", Silent())
    with pytest.raises(SettingsError, match=r"has no task 'STSBenchmrk'; did you mean 'STSBenchmark'\?"):
        evaluate_mteb(settings("no/such-model", tasks=["STSBenchmrk"]), run)
    with pytest.raises(
        SettingsError, match=r"no benchmark 'MTEB\(end, v2\)'; did you mean 'MTEB\(eng, v2\)'\?"
    ):
        evaluate_mteb(settings("no/such-model", benchmark="MTEB(end, v2)"), run)
    with pytest.raises(SettingsError, match="task CIFAR10Clustering is for image; .* reads only text"):
        evaluate_mteb(settings("no/such-model", tasks=["CIFAR10Clustering"]), run)
    assert not run.out.exists()


def test_data_that_are_not_to_be_had_are_one_line_and_no_model_is_loaded(tiny_bert, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "load_mteb_encoder", None)
    with pytest.raises(
        InputError, match=r"task STSBenchmark: its data \(mteb/stsbenchmark-sts\) cannot"
    ) as told:
        evaluate_mteb(settings(tiny_bert, tasks=["STSBenchmark"]), Run(tmp_path / "out", Silent()))
    assert "--data" in str(told.value)
    assert "\n" not in str(told.value)


def test_glove_vectors_are_for_evaluate_sts(graded, tmp_path):
    with pytest.raises(ModelError, match="does not support GloVe vectors; use evaluate sts"):
        evaluate_mteb(settings("glove:words.txt", graded), Run(tmp_path / "out", Silent()))


def test_a_missing_mteb_is_told_with_the_command_that_installs_it(graded, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(MissingExtra, match=r"pip install 'pairsmith\[eval\]'"):
        evaluate_mteb(settings("m", graded), Run(tmp_path / "out", Silent()))


def test_scores_without_an_order_and_vectors_that_are_not_finite_are_errors(tiny_bert, graded):
    from pairsmith.steps.evaluate.mteb_tasks import Encoder, local_task, run_task

    alike = StsSuite("s", {"x": (GradedPair("a", "b", 2.0), GradedPair("a", "c", 2.0))})
    with pytest.raises(InputError, match="s: needs at least two pairs with different scores"):
        local_task(alike)
    encoder = load_sentence_encoder(str(tiny_bert), device="cpu")
    (suite,) = read_sts(str(graded))
    for value, message in ((0.0, "same vector"), (torch.nan, "not finite")):
        for weight in encoder.parameters():
            weight.data.fill_(value)
        with pytest.raises(ModelError, match=message):
            run_task(local_task(suite), Encoder(encoder, "r", Silent()), 8)


def test_what_mteb_warns_of_is_told_once_in_a_line(capsys):
    import mteb

    from pairsmith.steps.evaluate.mteb_tasks import warnings_passed_to

    with warnings_passed_to(Progress().say):
        for _ in range(2):
            mteb.get_task("STSBenchmark").check_if_dataset_is_superseded()
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mteb: The task 'STSBenchmark' is superseded by 'STSBenchmark.v2'")


def test_a_plan_counts_the_characters_that_there_are(tiny_bert, graded):
    from pairsmith.steps.evaluate.mteb_tasks import characters_of, named_tasks

    assert [characters_of(task) for task in named_tasks(["STSBenchmark"], None)] == [147_886]
    assert plan_evaluate_mteb(settings(str(tiny_bert), graded), {}).seconds > 0


def test_settings_ask_for_something_to_do():
    with pytest.raises(ValidationError, match="name some --tasks or a --benchmark"):
        settings("m")


@pytest.mark.long
def test_the_benchmarks_subsets_win_and_count_as_other_work():
    pytest.importorskip("mteb")
    from pairsmith.steps.evaluate.mteb_tasks import named_tasks, revisions

    (alone,) = named_tasks(["STS17"], None)
    both = {task.metadata.name: task for task in named_tasks(["STS17"], "MTEB(eng, v2)")}
    assert len(alone.hf_subsets) > len(both["STS17"].hf_subsets) == 1
    assert revisions(alone) != revisions(both["STS17"])
