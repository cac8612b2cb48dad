import json

import numpy as np
import pytest

from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.progress import Silent
from pairsmith.methods.dino.evaluation import separation
from pairsmith.runs import Run
from pairsmith.steps.evaluate import labels as module
from pairsmith.steps.evaluate.labels import evaluate_labels, labels_table, read_labelled_pairs
from pairsmith.steps.evaluate.settings import EvaluateLabelsSettings

pytestmark = pytest.mark.slow


def test_without_resamples_there_are_no_intervals_and_named_labels_have_no_gap():
    results = separation([("a", "b", "same"), ("a", "c", "other")], np.array([0.5, 0.25]), draws=0, seed=0)
    assert results == {
        "labels": {
            "other": {"mean": 0.25, "ci": None, "count": 1},
            "same": {"mean": 0.5, "ci": None, "count": 1},
        }
    }
    assert labels_table(results).splitlines()[1:] == [
        "other             1  0.25",
        "same              1  0.50",
    ]


def test_wide_labels_take_two_columns_a_letter():
    figures = {"mean": 0.25, "ci": None, "count": 1}
    assert labels_table({"labels": {"同じ": figures, "other": figures}}).splitlines()[1:] == [
        "同じ              1  0.25",
        "other             1  0.25",
    ]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"sentence1": "A man is playing.", "sentence2": "A man is playing.", "score": 1.0},
        {"sentence1": "A man is playing.", "sentence2": "The stock market fell.", "score": 0.0},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_is_measured_with_a_line_for_each_pair(file, tiny_bert, tmp_path):
    settings = EvaluateLabelsSettings(model=str(tiny_bert), data=str(file), device="cpu", bootstrap=10)
    results = evaluate_labels(settings, Run(tmp_path / "out", Silent()))
    assert results["labels"]["1"]["mean"] == 1.0
    assert results["labels"]["0"]["mean"] < 1.0
    lines = (tmp_path / "out" / "predictions.jsonl").read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == ["1", "0"]
    assert json.loads(lines[0])["cosine"] == 1.0


def test_vectors_that_are_not_finite_are_an_error_and_leave_no_results(
    file, tiny_bert, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "encode_texts", lambda _, texts, **__: np.full((len(texts), 2), np.inf))
    settings = EvaluateLabelsSettings(model=str(tiny_bert), data=str(file), device="cpu", bootstrap=0)
    with pytest.raises(ModelError, match="the model gives vectors that are not finite"):
        evaluate_labels(settings, Run(tmp_path / "out", Silent()))
    assert not (tmp_path / "out" / "results.json").exists()


def test_rows_without_labels_are_refused_with_what_they_have(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a"}\n')
    with pytest.raises(InputError, match=r"texts\.jsonl:1: .* score or label, as .* found text"):
        read_labelled_pairs(str(path))


@pytest.mark.parametrize("label", ["", "  ", float("nan")])
def test_a_pair_with_a_blank_label_is_refused_with_its_line(label, tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"sentence1": "a", "sentence2": "b", "label": name} for name in ("same", label)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(
        InputError, match=r"^pairs\.jsonl:2: the label is .*; give a word or a number, or drop"
    ):
        read_labelled_pairs(str(path))


@pytest.mark.parametrize("text", ["", " ", None])
def test_a_pair_with_a_blank_text_is_refused_with_its_line(text, tmp_path):
    path = tmp_path / "pairs.jsonl"
    rows = [{"sentence1": "a", "sentence2": second, "label": "same"} for second in ("b", text)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=r"^pairs\.jsonl:2: sentence2 is blank; give both texts or drop"):
        read_labelled_pairs(str(path))


def test_a_score_is_the_same_label_however_it_is_written(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("sentence1\tsentence2\tscore\na\tb\t0.50\nc\td\t0.5\ne\tf\t1\ng\th\t1.0\n")
    assert [label for _, _, label in read_labelled_pairs(str(path))] == ["0.5", "0.5", "1", "1"]


def test_half_a_character_is_refused_with_its_line(tmp_path):
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"sentence1": "a \\ud83d", "sentence2": "b", "score": 1}\n')
    with pytest.raises(InputError, match=r"pairs\.jsonl:1: column 'sentence1' holds half a character"):
        read_labelled_pairs(str(path))
