"""Evaluations measure on the split ``test`` of a folder, and learn from ``train``."""

import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairsmith.core.errors import InputError
from pairsmith.steps.evaluate.evaluation import with_evaluation_splits
from pairsmith.steps.evaluate.settings import EvaluateQaSettings
from pairsmith.steps.evaluate.transfer_settings import EvaluateParaphraseSettings, EvaluateSentimentSettings


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "in" / "data"
    data.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        pq.write_table(pa.table({"text": [split]}), data / f"{split}-00000.parquet")
    return str(tmp_path / "in")


def test_the_split_is_said(folder):
    said = []
    settings = with_evaluation_splits(EvaluateQaSettings(model="m", data=folder), said.append)
    assert settings.data == f"{folder}:test"
    assert said == ["in: its split test is measured on; train, validation is not"]
    assert with_evaluation_splits(settings, said.append) == settings
    assert len(said) == 1


def test_what_is_learned_from_is_train(folder):
    given = EvaluateParaphraseSettings(model="m", data=folder, train=folder, judgements=folder)
    settings = with_evaluation_splits(given)
    assert (settings.data, settings.train, settings.judgements) == (
        f"{folder}:test",
        f"{folder}:train",
        f"{folder}:test",
    )


def test_without_a_split_test_one_is_to_be_named(folder, tmp_path):
    (tmp_path / "in" / "data" / "test-00000.parquet").unlink()
    with pytest.raises(InputError, match="has no split test, only train, validation; name one, such as"):
        with_evaluation_splits(EvaluateQaSettings(model="m", data=folder))


def test_files_and_folders_of_another_form_stay_as_they_are(folder, tmp_path):
    shutil.rmtree(tmp_path / "in" / "data")
    for data in (folder, "questions.json", "org/name:validation"):
        given = EvaluateSentimentSettings(model="m", data=data)
        assert with_evaluation_splits(given) == given
