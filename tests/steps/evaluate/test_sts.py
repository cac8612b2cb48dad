import json
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from tests.methods.dino.test_evaluation import X, Y, by_angle, suite

from pairsmith.core.errors import FolderError, InputError, ModelError, StorageError
from pairsmith.core.progress import Progress, Silent
from pairsmith.methods.dino.evaluation import sts_scores
from pairsmith.runs import Run
from pairsmith.steps.evaluate import sts as module
from pairsmith.steps.evaluate.settings import EvaluateStsSettings
from pairsmith.steps.evaluate.sts import evaluate_sts, sts_table

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


@pytest.mark.parametrize("pooling", ["default", "mean", "cls"])
def test_an_encoder_is_evaluated_on_a_file(tiny_bert, graded, tmp_path, capsys, pooling):
    out = tmp_path / "out"
    results = evaluate_sts(settings(tiny_bert, graded, pooling=pooling), Run(out, Progress()))
    assert json.loads((out / "results.json").read_text()) == results
    assert -100 <= results["graded"]["all"] <= 100
    assert results["graded"]["pairs"] == 4
    assert results["about"]["models"]["model"].startswith("sha256:")
    assert results["about"]["settings"]["pooling"] == pooling
    assert [file.name for file in out.iterdir()] == ["results.json"]
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
    assert "already evaluated with these settings; --fresh computes again" in said.err
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
        ("data", "input data: "),
        ("model", "model model is another, or was trained again: sha256"),
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


def test_glove_vectors_are_evaluated(graded, tmp_path):
    glove = tmp_path / "glove.txt"
    glove.write_text(
        "guitar 1 0 0\nman 1 1 0\nonion 0 1 0\ndogs 0 0 1\nmarket 1 0 0\nhorse 0 1 1\nweather 1 0 1\n"
    )
    results = evaluate_sts(settings(f"glove:{glove}", graded), Run(tmp_path / "out", Silent()))
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
