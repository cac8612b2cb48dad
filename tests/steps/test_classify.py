"""The step classify, on a classifier whose encoder is small and random."""

import json
import re
import shutil

import pyarrow as pa
import pytest
from tests.heard import Heard
from tests.planned import planned

from pairsmith.cli.app import main
from pairsmith.core.errors import InputError, ModelError, SettingsError
from pairsmith.core.progress import Silent
from pairsmith.models.classifier import load_classifier
from pairsmith.runs import DatasetFolder, Run
from pairsmith.runs.estimate import Estimate
from pairsmith.steps.evaluate.classification_settings import EvaluateClassificationSettings
from pairsmith.steps.texts.classify import classify
from pairsmith.steps.texts.settings import ClassifySettings
from pairsmith.steps.training.classifier import train_classifier
from pairsmith.steps.training.settings import TrainClassifierSettings

TEXTS = ["A fine film.", "What a bore!", "So good.", "I hated this movie.", "Lovely.", "Awful."]
LABELS = ["good", "bad", "good", "bad", "good", "bad"]


@pytest.fixture(scope="module")
def trained(tiny_bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, LABELS, strict=True)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = TrainClassifierSettings(base=str(tiny_bert), data=str(folder / "rows.jsonl"), device="cpu")
    train_classifier(settings, Run(folder / "model", Silent()))
    return str(folder / "model")


def of(model, data, **more):
    return ClassifySettings(**{"model": model, "data": str(data), "device": "cpu", **more})


def test_each_text_of_a_table_gets_its_likeliest_label_and_its_probability(trained, tmp_path):
    lines = ["order,review,label", *(f'{at},"{text}",x' for at, text in enumerate(TEXTS)), "6,,x"]
    (tmp_path / "in.csv").write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    folder = classify(of(trained, tmp_path / "in.csv", shard_size=4), Run(tmp_path / "out", Silent()))
    rows = folder.table().to_pylist()
    classifier = load_classifier(trained, device="cpu")
    assert [row["text"] for row in rows] == TEXTS
    assert [row["id"] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    assert [row["label"] for row in rows] == classifier.predict(TEXTS)
    probabilities = classifier.confidences(TEXTS)
    assert probabilities.sum(axis=1) == pytest.approx([1.0] * 6)
    assert [row["confidence"] for row in rows] == pytest.approx(probabilities.max(axis=1).tolist(), abs=1e-4)
    assert [row["order"] for row in rows] == ["0", "1", "2", "3", "4", "5"]
    assert {row["original_label"] for row in rows} == {"x"}
    assert folder.rejects()["filter"].to_pylist() == ["empty"]
    card = (tmp_path / "out" / "README.md").read_text()
    assert "the column label of the source" in card
    for label in set(classifier.predict(TEXTS)):
        count = classifier.predict(TEXTS).count(label)
        assert f"| {label} | {count} |" in card
    again = Heard()
    assert classify(of(trained, tmp_path / "in.csv", shard_size=4), Run(tmp_path / "out", again)).rows == 6
    assert any("nothing to do" in line for line in again.lines)


def test_ids_of_the_rows_are_kept_and_doubtful_texts_are_rejects(trained, tmp_path):
    rows = [{"id": f"r{at}", "text": text, "n": at, "more": None} for at, text in enumerate(TEXTS)]
    rows[3]["late"] = ["a"]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    all_of = classify(of(trained, tmp_path / "in.jsonl"), Run(tmp_path / "all", Silent())).table().to_pylist()
    middle = sorted(row["confidence"] for row in all_of)[3]
    folder = classify(of(trained, tmp_path / "in.jsonl", least=middle), Run(tmp_path / "some", Silent()))
    assert folder.table().to_pylist() == [row for row in all_of if row["confidence"] >= middle]
    assert [row["late"] for row in all_of] == [None, None, None, '["a"]', None, None]
    assert [row["n"] for row in all_of] == ["0", "1", "2", "3", "4", "5"]
    assert set(folder.rejects()["filter"].to_pylist()) == {"uncertain"}
    assert len(set(folder.rejects()["reason"].to_pylist())) == 1
    assert folder.rows + folder.rejects().num_rows == 6


def test_labels_by_names_have_cosines(tiny_bert, tmp_path):
    (tmp_path / "in.txt").write_text("A fine film.\nAwful.\n")
    by_names = of(str(tiny_bert), tmp_path / "in.txt", name=["good=A fine film.", "bad=Awful."])
    rows = classify(by_names, Run(tmp_path / "out", Silent())).table().to_pylist()
    assert [row["label"] for row in rows] == ["good", "bad"]
    assert [row["confidence"] for row in rows] == pytest.approx([1.0, 1.0], abs=1e-4)


def test_the_command_and_its_errors(trained, tiny_bert, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("A fine film.\n")
    (tmp_path / "empty.txt").write_text("")
    command = ["classify", "--model", trained, "--data", str(tmp_path / "in.txt"), "--device", "cpu"]
    with pytest.raises(SystemExit, match="0"):
        main([*command, "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert f"next: pairsmith export --data {tmp_path / 'out'} --form csv" in said
    assert re.search(r"label (good|bad) +1 text$", said, re.MULTILINE)
    assert DatasetFolder.open(tmp_path / "out").rows == 1
    with pytest.raises(ModelError, match="is no classifier; give a folder"):
        classify(of(str(tiny_bert), tmp_path / "in.txt"), Run(tmp_path / "no", Silent()))
    with pytest.raises(SettingsError, match="--name is for an encoder"):
        classify(of(trained, tmp_path / "in.txt", name=["a=b", "c=d"]), Run(tmp_path / "no-2", Silent()))
    with pytest.raises(InputError, match="holds no texts"):
        classify(of(trained, tmp_path / "empty.txt"), Run(tmp_path / "no-3", Silent()))
    with pytest.raises(ValueError, match="for two labels or more"):
        of(trained, "x", name=["a=b"])
    assert not any((tmp_path / name).exists() for name in ("no", "no-2", "no-3"))


def test_what_it_wrote_can_be_classified_again(trained, tmp_path):
    rows = [{"text": text, "label": "x", "original_label": "y", "confidence": 3} for text in TEXTS]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    once = classify(of(trained, tmp_path / "in.jsonl"), Run(tmp_path / "once", Silent()))
    twice = classify(of(trained, tmp_path / "once"), Run(tmp_path / "twice", Silent()))
    first, second = once.table().to_pylist()[0], twice.table().to_pylist()[0]
    assert first["original_label"] == "y"
    assert (first["original_original_label"], first["original_confidence"]) == ("x", "3")
    assert second["label"] == first["label"]
    assert first["label"] in second.values()
    assert len(second) == len(first) + 2


@pytest.mark.parametrize(
    ("ids", "expected"),
    [([0, 1, 2], ["0", "1", "2"]), ([None, 1, 9], ["1", "2", "3"]), (["", "a", "b"], ["1", "2", "3"])],
)
def test_ids_are_the_sources_if_all_have_one(trained, tmp_path, ids, expected):
    rows = [{"text": text, "id": name} for text, name in zip(TEXTS, ids, strict=False)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = classify(of(trained, tmp_path / "in.jsonl"), Run(tmp_path / "out", Silent()))
    assert folder.table()["id"].to_pylist() == expected


@pytest.mark.parametrize(
    ("rows", "ids", "others"),
    [
        ([{"ID": "a"}, {"ID": "b"}], ["a", "b"], {}),
        ([{"Id": "a", "id": 1}, {"Id": "b", "id": 2}], ["1", "2"], {"Id": ["a", "b"]}),
        ([{"ID": "a"}, {"ID": ""}], ["1", "2"], {"ID": ["a", None]}),
        ([{"id": "a"}, {"other": "b"}], ["1", "2"], {"original_id": ["a", None], "other": [None, "b"]}),
        ([{"id": None}, {"id": None}], ["1", "2"], {}),
    ],
)
def test_no_id_of_the_source_is_lost(trained, tmp_path, rows, ids, others):
    lines = (json.dumps({"text": text, **row}) + "\n" for text, row in zip(TEXTS, rows, strict=False))
    (tmp_path / "in.jsonl").write_text("".join(lines))
    table = classify(of(trained, tmp_path / "in.jsonl"), Run(tmp_path / "out", Silent())).table()
    assert table["id"].to_pylist() == ids
    assert table.drop(["id", "text", "label", "confidence"]).to_pydict() == others


def test_half_a_character_in_any_column_is_named(trained, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "A", "other": "\\ud800"}\n')
    with pytest.raises(InputError, match=r"in.jsonl:1: column 'other' holds half a character"):
        classify(of(trained, tmp_path / "in.jsonl"), Run(tmp_path / "out", Silent()))


def test_names_of_columns_are_not_live_in_the_card(trained, tmp_path):
    (tmp_path / "in.jsonl").write_text(json.dumps({"text": "A", "a|<b>": "x"}) + "\n")
    classify(of(trained, tmp_path / "in.jsonl"), Run(tmp_path / "out", Silent()))
    card = (tmp_path / "out" / "README.md").read_text()
    assert r"a\|\<b>" in card
    assert "a|<b>" not in card.split("---\n", 2)[2]


def test_the_card_counts_the_labels_that_were_given_and_no_columns_of_the_source(trained, tmp_path):
    rows = [{"text": text, "score": at, "query": "q", "label": "x"} for at, text in enumerate(TEXTS)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    classify(of(trained, tmp_path / "in.jsonl"), Run(tmp_path / "out", Silent()))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "## Labels\n\n| label | rows |" in card
    assert "## Scores" not in card
    assert "task_categories:\n- text-classification\n" in card


def test_a_stopped_run_goes_on_and_several_workers_give_the_same(trained, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    whole = classify(of(trained, tmp_path / "in.txt", shard_size=2), Run(tmp_path / "whole", Silent()))
    wide = classify(
        of(trained, tmp_path / "in.txt", shard_size=2, workers=2), Run(tmp_path / "wide", Silent())
    )
    shutil.copytree(tmp_path / "whole", tmp_path / "half")
    (tmp_path / "half" / "data" / "train-00001.parquet").unlink()
    half = classify(of(trained, tmp_path / "in.txt", shard_size=2), Run(tmp_path / "half", Silent()))
    assert whole.table().equals(wide.table())
    assert whole.table().equals(half.table())


def test_a_recipe_that_trains_a_classifier_and_uses_it_can_be_planned(trained, tiny_bert, tmp_path):
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    settings = ClassifySettings(model="@classifier", data=str(tmp_path / "in.txt"), device="cpu")
    estimate = planned("classify", settings, {"@classifier": Estimate(1.0, 1, 1, {})}, str(tiny_bert))
    assert estimate.rows == {"train": 6}
    assert estimate.seconds > 0
    earlier = Estimate(1.0, 1, 1, {"train": 90}, sample=pa.table({"text": TEXTS, "url": TEXTS}))
    made_before = settings.model_copy(update={"data": "@texts", "model": trained})
    classified = planned("classify", made_before, {"@texts": earlier})
    assert classified.rows == {"train": 90}
    assert classified.sample["url"].to_pylist() == [text for text in TEXTS if text.strip()]
    measured = EvaluateClassificationSettings(model=trained, data="@classified", device="cpu")
    assert planned("evaluate-classification", measured, {"@classified": classified}).seconds > 0
