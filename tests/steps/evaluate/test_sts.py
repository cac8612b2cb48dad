import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import spearmanr
from tests.methods.dino.test_evaluation import X, Y, by_angle, suite
from typer.testing import CliRunner

from pairsmith.cli.app import make_app
from pairsmith.core.errors import FolderError, InputError, ModelError, PairsmithError, StorageError
from pairsmith.core.progress import Progress, Silent
from pairsmith.methods.dino.evaluation import (
    score_differences,
    scores_of_cosines,
    sts_cosines,
    sts_scores,
)
from pairsmith.runs import Run
from pairsmith.steps.evaluate import sts as module
from pairsmith.steps.evaluate.settings import EvaluateStsSettings
from pairsmith.steps.evaluate.sts import check_evaluate_sts, encoder_of, evaluate_sts, sts_table

pytestmark = pytest.mark.slow


def test_a_table_shows_every_suite():
    scores = sts_scores(by_angle, [suite("sts12", x=X, y=Y), suite("stsb", x=X)], bootstrap=20)
    head, first, second = sts_table({name: score.to_json() for name, score in scores.items()}).splitlines()
    assert head.split()[:3] == ["suite", "pairs", "Spearman"]
    assert first.split()[:3] == ["sts12", "6", "65.71"]
    assert first.count("[") == 2
    assert second.split()[:3] == ["stsb", "4", "100.00"]


PAIRS = """sentence1\tsentence2\tscore
A man is playing a guitar.\tA man plays a guitar.\t5
A woman is slicing an onion.\tSomeone "cuts" an onion.\t3.5
Two dogs run.\tThe stock market fell.\t0
A child rides a horse.\tThe weather was not good.\t0.4
"""


@pytest.fixture
def graded(tmp_path):
    path = tmp_path / "graded.tsv"
    path.write_text(PAIRS)
    return path


def settings(model, data, **rest):
    return EvaluateStsSettings(model=str(model), data=str(data), device="cpu", bootstrap=50, **rest)


def test_a_test_set_may_be_called_against(tiny_bert, graded, tmp_path):
    named = tmp_path / "against.tsv"
    named.write_bytes(Path(graded).read_bytes())
    for _ in range(2):  # computed, then read
        results = evaluate_sts(settings(tiny_bert, named), Run(tmp_path / "out", Silent()))
        assert results["against"]["pairs"] == 4
    assert "against" in json.loads((tmp_path / "out" / "results.json").read_text())


def test_a_test_set_must_not_have_the_name_of_the_provenance(graded, tmp_path):
    named = graded.rename(tmp_path / "about.tsv")
    with pytest.raises(InputError, match='a test set cannot be named "about"; rename its file'):
        evaluate_sts(settings("pairsmith:tiny", named), Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("pooling", ["default", "mean", "cls"])
def test_an_encoder_is_evaluated_on_a_file(tiny_bert, graded, tmp_path, capsys, pooling):
    out = tmp_path / "out"
    results = evaluate_sts(settings(tiny_bert, graded, pooling=pooling), Run(out, Progress()))
    assert json.loads((out / "results.json").read_text()) == results
    assert -100 <= results["graded"]["all"] <= 100
    assert results["graded"]["pairs"] == 4
    assert results["about"]["models"]["model"].startswith("sha256:")
    assert results["about"]["settings"]["pooling"] == pooling
    assert sorted(file.name for file in out.iterdir()) == ["README.md", "predictions.jsonl", "results.json"]
    rows = [json.loads(line) for line in (out / "predictions.jsonl").read_text().splitlines()]
    assert [row["score"] for row in rows] == [5.0, 3.5, 0.0, 0.4]
    assert all(row["suite"] == "graded" and -1 <= row["cosine"] <= 1 for row in rows)
    assert "Spearman ×100" in capsys.readouterr().out


def test_the_same_seed_gives_the_same_results_twice(tiny_gpt2, graded, tmp_path):
    runs = [Run(tmp_path / "out", Silent()), Run(tmp_path / "out", Silent(), fresh=True)]
    results = [evaluate_sts(settings(tiny_gpt2, graded), run) for run in runs]
    assert results[0] == results[1]


@pytest.fixture
def evaluated(tiny_bert, graded, tmp_path):
    evaluate_sts(settings(tiny_bert, graded), Run(tmp_path / "out", Silent()))
    return tmp_path / "out"


def test_results_that_are_there_are_not_computed_again(
    evaluated, tiny_bert, graded, tmp_path, monkeypatch, capsys
):
    (tmp_path / "elsewhere").mkdir()
    moved = graded.rename(tmp_path / "elsewhere" / graded.name)
    monkeypatch.setattr(module, "encoder_of", None)
    again = evaluate_sts(settings(tiny_bert, moved, batch_size=7), Run(evaluated, Progress()))
    assert again == json.loads((evaluated / "results.json").read_text())
    said = capsys.readouterr()
    assert "already evaluated with these settings; give --fresh to evaluate again" in said.err
    assert "graded            4" in said.out


def test_fresh_computes_again(evaluated, tiny_bert, graded):
    path = evaluated / "results.json"
    path.write_text(path.read_text().replace('"pairs": 4', '"pairs": 40'))
    evaluate_sts(settings(tiny_bert, graded), Run(evaluated, Silent(), fresh=True))
    assert json.loads(path.read_text())["graded"]["pairs"] == 4


def test_results_that_were_not_finished_are_computed_again(evaluated, tiny_bert, graded):
    path = evaluated / "results.json"
    whole = json.loads(path.read_text())
    path.write_text(json.dumps({"about": whole["about"] | {"complete": False}}))
    assert evaluate_sts(settings(tiny_bert, graded), Run(evaluated, Silent())) == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("seed", "seed: 0 there, 3 here"),
        ("data", "input data is another, or has changed: "),
        ("model", "the model is another, or was trained again: sha256"),
    ],
)
def test_results_of_other_settings_are_kept(evaluated, tiny_bert, graded, tmp_path, change, message):
    model = tiny_bert
    if change == "data":
        graded.write_text(PAIRS.replace("3.5", "3.6"))
    if change == "model":
        model = tmp_path / "model"
        model.mkdir()
        for file in Path(tiny_bert).iterdir():
            (model / file.name).write_bytes(file.read_bytes())
        (model / "model.safetensors").write_bytes(b"others")
    before = (evaluated / "results.json").read_bytes()
    other_settings = settings(model, graded, seed=3 if change == "seed" else 0)
    with pytest.raises(FolderError, match=rf"(?s){message}.*--fresh to start over"):
        evaluate_sts(other_settings, Run(evaluated, Silent()))
    assert (evaluated / "results.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.json", "{}", r"holds something else \(run\.json\)"),
        ("results.json", '{"after": 71.2}', r"holds no results of this evaluation; give another folder"),
        ("results.json", "[", "holds no results of this evaluation"),
    ],
)
def test_a_folder_that_holds_something_else_is_left_as_it_is(
    tiny_bert, graded, tmp_path, name, content, message
):
    out = tmp_path / "run"
    out.mkdir()
    (out / name).write_text(content)
    for fresh in (False, True):
        with pytest.raises(FolderError, match=message):
            evaluate_sts(settings(tiny_bert, graded), Run(out, Silent(), fresh))
    assert (out / name).read_text() == content
    assert len(list(out.iterdir())) == 1


WORDS = ("horn", "lute", "bell", "drum", "harp", "onion", "market", "dog", "beach", "horse")


def write_pairs(path, count, seed=3):
    """Pairs of which the second text repeats some words of the first, scored by how many it repeats."""
    rng = np.random.default_rng(seed)
    lines = ["sentence1\tsentence2\tscore"]
    for number in range(count):
        first = rng.choice(WORDS, 5, replace=False)
        kept = number % 6
        lines.append(f"{' '.join(first)}\t{' '.join([*first[:kept], *rng.choice(WORDS, 5 - kept)])}\t{kept}")
    path.write_text("\n".join(lines) + "\n")
    return path


def glove(path, width):
    """A file of vectors, of which those of fewer dimensions than words confuse some words."""
    vectors = np.eye(len(WORDS))[:, :width] + 0.01
    rows = (
        f"{word} {' '.join(map(str, vector))}\n" for word, vector in zip(WORDS, vectors.tolist(), strict=True)
    )
    path.write_text("".join(rows))
    return f"glove:{path}"


def by_scipy(out, there, bootstrap, seed=0):
    """The difference of both correlations and its interval, over the same resamples."""
    own, other = (
        [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
        for folder in (out, there)
    )
    gold = np.array([row["score"] for row in own])
    a, b = (np.array([row["cosine"] for row in rows]) for rows in (own, other))
    rng = np.random.default_rng([seed, *own[0]["suite"].encode()])
    draws = []
    for _ in range(bootstrap):
        chosen = rng.integers(0, len(gold), size=len(gold))
        draws.append(np.diff([spearmanr(x[chosen], gold[chosen])[0] for x in (b, a)])[0])
    difference = spearmanr(a, gold)[0] - spearmanr(b, gold)[0]
    return 100 * difference, 100 * np.percentile(draws, [2.5, 97.5])


def test_an_encoder_is_compared_with_an_earlier_one_over_the_same_pairs(tmp_path):
    data = write_pairs(tmp_path / "many.tsv", 120)
    weak, strong = glove(tmp_path / "weak.txt", 2), glove(tmp_path / "strong.txt", 10)
    command = ["evaluate", "sts", "--data", str(data), "--bootstrap", "100"]

    def invoke(model, out, *more):
        result = CliRunner().invoke(make_app(), [*command, "--model", model, "--out", str(out), *more])
        assert result.exit_code == 0, result.output
        return result, json.loads((out / "results.json").read_text())

    before, after = tmp_path / "before", tmp_path / "after"
    first, _ = invoke(weak, before)
    assert "compared with" not in first.stdout
    assert "pairs are few" not in first.stderr
    second, results = invoke(strong, after, "--against", str(before))
    comparison = results["against"]["suites"]["many"]["all"]
    difference, limits = by_scipy(after, before, 100)
    assert comparison["difference"] == pytest.approx(difference, abs=1e-4)
    assert comparison["difference_ci"] == pytest.approx(list(limits), abs=1e-4)
    assert comparison["verdict"] == "better"
    assert f"compared with {before} (" in second.stdout
    assert second.stdout.splitlines()[-1].endswith("]  better")
    assert "compared with before (weak.txt), over" in (after / "README.md").read_text()
    _, results = invoke(weak, tmp_path / "worse", "--against", str(after))
    assert results["against"]["suites"]["many"]["all"]["verdict"] == "worse"
    _, results = invoke(strong, tmp_path / "same", "--against", str(after))
    assert results["against"]["suites"]["many"]["all"] == {
        "difference": 0.0, "difference_ci": [0.0, 0.0], "verdict": "within noise",
    }  # fmt: skip
    assert "already evaluated" in invoke(strong, after, "--against", str(before))[0].stderr
    invoke(strong, after, "--against", str(tmp_path / "worse"))
    assert "compared with worse (weak.txt), over" in (after / "README.md").read_text()
    assert "against" not in invoke(strong, after)[1]


def test_a_mean_of_subsets_is_compared_within_the_subsets():
    suites = [suite("sts12", x=X, y=Y)]
    cosines = sts_cosines(by_angle, suites)
    turned = {"sts12": {name: -values for name, values in cosines["sts12"].items()}}
    found = score_differences(suites, cosines, turned, bootstrap=20)["sts12"]
    score = scores_of_cosines(suites, cosines, bootstrap=20)["sts12"]
    for figure, own in ((found.all, score.all), (found.mean, score.mean)):
        assert figure.value == pytest.approx(2 * own.value)
        assert figure.interval == pytest.approx([2 * limit for limit in own.interval])


def test_an_earlier_result_may_change_during_the_evaluation(
    evaluated, tiny_bert, graded, tmp_path, monkeypatch
):
    def removing(*given):
        shutil.rmtree(evaluated)
        return encoder_of(*given)

    monkeypatch.setattr(module, "encoder_of", removing)
    results = evaluate_sts(
        settings(tiny_bert, graded, against=str(evaluated)), Run(tmp_path / "new", Silent())
    )
    assert results["against"]["suites"]["graded"]["all"]["difference"] == 0.0


def test_what_cannot_be_compared_is_refused(evaluated, tiny_bert, graded, tmp_path):
    def refused(said, against=evaluated, data=graded, out=tmp_path / "new"):
        with pytest.raises(PairsmithError) as error:
            evaluate_sts(settings(tiny_bert, data, against=str(against)), Run(out, Silent()))
        assert said in str(error.value)
        if out != evaluated:
            with pytest.raises(PairsmithError) as error:  # as a recipe does before its first step
                check_evaluate_sts(settings(tiny_bert, data, against=str(against)), ())
            assert said in str(error.value)

    other = tmp_path / "others.tsv"
    other.write_text(PAIRS.replace("3.5", "3.6"))
    refused("measured on other pairs (there 4 pairs of graded; here 4 pairs of others)", data=other)
    refused("is what --against reads; give another folder as --out", out=evaluated)
    folder = tmp_path / "folder"
    folder.mkdir()
    refused("give a folder that evaluate sts wrote", against=folder)
    named = tmp_path / "against.tsv"
    named.write_text(PAIRS)
    refused("--against does not support a test set that is named against", data=named)
    (evaluated / "predictions.jsonl").write_text("")
    refused("predictions.jsonl has changed since it was written")
    results = json.loads((evaluated / "results.json").read_text())
    results["about"]["format"] = 1
    (evaluated / "results.json").write_text(json.dumps(results))
    refused("has format 1, but this pairsmith reads format 2; run its step (evaluate sts) again")
    with pytest.raises(PairsmithError, match="again; give another folder as --out"):
        evaluate_sts(settings(tiny_bert, graded), Run(evaluated, Silent()))
    assert not (tmp_path / "new").exists()
    with pytest.raises(ValidationError, match="against needs resamples for its intervals"):
        EvaluateStsSettings(model="m", data="d", against="a", bootstrap=0)


def test_few_pairs_are_said_to_tell_little(tiny_bert, graded, tmp_path, capsys):
    evaluate_sts(settings(tiny_bert, graded), Run(tmp_path / "out", Progress()))
    assert "graded: 4 pairs are few: two models may differ" in capsys.readouterr().err


def test_glove_vectors_are_evaluated(graded, tmp_path):
    vectors = tmp_path / "glove.txt"
    vectors.write_text(
        "guitar 1 0 0\nman 1 1 0\nonion 0 1 0\ndogs 0 0 1\nmarket 1 0 0\nhorse 0 1 1\nweather 1 0 1\n"
    )
    results = evaluate_sts(settings(f"glove:{vectors}", graded), Run(tmp_path / "out", Silent()))
    # Cosines: 1, 1, 0, 1/2, against the scores 5, 3.5, 0, 0.4: ranks 3.5 3.5 1 2 and 4 3 1 2.
    assert results["graded"]["all"] == pytest.approx(100 * 4.5 / np.sqrt(4.5 * 5), abs=1e-3)


def test_only_the_suites_asked_for_are_read(tiny_bert, graded, tmp_path):
    with pytest.raises(InputError, match="stsb"):
        evaluate_sts(settings(tiny_bert, graded, suites=["stsb"]), Run(tmp_path / "out", Silent()))


def test_missing_data_is_named_before_the_model_is_loaded(tmp_path):
    with pytest.raises(InputError, match=r"gradde\.tsv"):
        evaluate_sts(settings("no/such/model/at/all", tmp_path / "gradde.tsv"), Run(tmp_path / "o", Silent()))


def test_a_missing_model_is_named(graded, tmp_path):
    with pytest.raises(ModelError, match="no such folder"):
        evaluate_sts(settings(tmp_path / "none" / "model", graded), Run(tmp_path / "out", Silent()))


def test_results_that_cannot_be_written_are_a_storage_error(tiny_bert, graded, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        evaluate_sts(settings(tiny_bert, graded), Run(tmp_path / "file" / "out", Silent()))


@pytest.mark.parametrize(
    "wrong", [{"device": "tpu"}, {"pooling": "max"}, {"batch_size": 0}, {"bootstrap": -1}, {"unheard": 1}]
)
def test_settings_refuse_what_makes_no_sense(wrong):
    with pytest.raises(ValidationError):
        EvaluateStsSettings(model="m", data="d", **wrong)
