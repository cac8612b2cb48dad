"""Which split of a dataset folder is read."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairsmith.core.errors import FolderError, InputError
from pairsmith.core.paths import place
from pairsmith.core.progress import Silent
from pairsmith.data.files.reading import READERS, source_documents
from pairsmith.data.readers import read_texts
from pairsmith.data.sources import open_source
from pairsmith.data.splits import DOCUMENT_SUFFIXES, split_of, splits_of, to_measure_on, to_train_on
from pairsmith.runs import DatasetFolder, Run, hash_source, refuse_source, sources_of


def test_all_documents_that_chunk_reads_are_known_by_their_names():
    assert set(DOCUMENT_SUFFIXES) == set(READERS)


def folder(path, **splits):
    (path / "data").mkdir(parents=True)
    for split, texts in splits.items():
        for number, text in enumerate(texts):
            pq.write_table(pa.table({"text": [text]}), path / "data" / f"{split}-{number:05}.parquet")
    return str(path)


def texts(source):
    return [record.text for record in read_texts(source)]


@pytest.fixture
def three(tmp_path):
    return folder(tmp_path / "in", train=["a", "b"], validation=["v"], test=["t"])


@pytest.mark.parametrize("splits", [False, True])
def test_a_folder_of_save_to_disk_is_told_from_a_dataset_folder(tmp_path, splits):
    import datasets

    rows = datasets.Dataset.from_dict({"text": ["a"]})
    saved = datasets.DatasetDict({"train": rows}) if splits else rows
    saved.save_to_disk(tmp_path / "saved")
    with pytest.raises(
        InputError, match=r"was written by save_to_disk of datasets; write a file with to_parqu"
    ):
        texts(str(tmp_path / "saved"))


def test_a_split_is_named_behind_the_folder(three):
    assert texts(f"{three}:train") == ["a", "b"]
    assert texts(f"{three}/:test") == ["t"]
    assert texts(three) == ["t", "a", "b", "v"]
    assert splits_of(three) == {name: f"{three}:{name}" for name in ("train", "test", "validation")}
    assert splits_of(f"{three}:test") == {"test": f"{three}:test"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ("train-00000-of-00001 test.clean-00000-of-00001", "train test_clean"),
        ("train-00000-of-00002-0ab test-00000-of-00001 hard_test-00000-of-00001", "train hard_test test"),
        ("train unsupervised-00000-of-00001", "train unsupervised"),
        ("squad_train squad-test-v1.1", "train test"),
        ("train-clean test-clean-00000", "train test"),
        ("Train-00000 Validation-00000", "train validation"),
        ("part-00000-of-00002 part-00001-of-00002", "train"),
        ("rows latest contest-2 0000 train-00000", "train"),
        ("test testimonials test_a-00000", "test test_a testimonials"),
    ],
)
def test_the_splits_are_told_by_the_names_of_the_files(tmp_path, files, expected):
    (tmp_path / "data").mkdir()
    for name in files.split():
        pq.write_table(pa.table({"text": [name]}), tmp_path / "data" / f"{name}.parquet")
    splits = splits_of(str(tmp_path))
    assert list(splits) == expected.split()
    assert sorted(text for split in splits.values() for text in texts(split)) == sorted(files.split())


def test_a_suffix_in_capitals_leaves_no_file_out(tmp_path):
    source = folder(tmp_path, train=["a", "b"])
    (tmp_path / "data/train-00001.parquet").rename(tmp_path / "data/train-00001.PARQUET")
    assert texts(f"{source}:train") == ["a", "b"]


def test_the_rejected_rows_of_all_shards_can_be_named_like_a_split(three):
    (Path(three) / "rejects").mkdir()
    for number in (1, 0):
        path = Path(three) / "rejects" / f"part-0000{number}.parquet"
        pq.write_table(pa.table({"text": [f"rejected {number}"]}), path)
    (Path(three) / "rejects" / "._part-00000.parquet").write_text("what macOS knows about the file")
    assert texts(f"{three}:rejects") == ["rejected 0", "rejected 1"]
    assert splits_of(f"{three}:rejects") == {"rejects": f"{three}:rejects"}
    assert "rejects" not in splits_of(three)


def test_a_split_that_is_not_there_names_those_that_are(three):
    for read in (open_source, hash_source, splits_of):
        with pytest.raises(InputError, match="has no split 'tset'; did you mean 'test'"):
            read(f"{three}:tset")


def test_in_a_store():
    where = "memory://splits/in"
    for split in ("train", "test"):
        table = pa.BufferOutputStream()
        pq.write_table(pa.table({"text": [split]}), table)
        place(f"{where}/data/{split}-00000.parquet").write_bytes(table.getvalue().to_pybytes())
    assert texts(f"{where}:test") == ["test"]
    assert to_train_on(where, "mixed") == f"{where}:train"


@pytest.mark.parametrize(
    "name",
    ["memory://bucket", "memory://none:test", "C:data", "C:\\data\\in", "org/name:train", "in.jsonl", "a:b"],
)
def test_other_colons_are_no_splits(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert split_of(name) == (name, "")


def test_what_is_called_so_as_a_whole_is_that(tmp_path):
    folder(tmp_path / "in", train=["a"])
    (tmp_path / "in:train").write_text("a line\n")
    assert texts(str(tmp_path / "in:train")) == ["a line"]


def test_a_hash_is_that_of_the_split(three, tmp_path):
    named = hash_source(f"{three}:train")
    assert named == hash_source(f"{folder(tmp_path / 'other', train=['a', 'b'], test=['x'])}:train")
    assert named not in (hash_source(three), hash_source(f"{three}:test"))


def test_a_source_is_no_output_by_its_split_either(three):
    with pytest.raises(FolderError, match="is what --seeds reads"):
        refuse_source(Run(place(three), Silent()), seeds=f"{three}:train")


def test_an_output_within_a_source_that_is_read_as_a_whole_is_refused(tmp_path):
    source = tmp_path / "rows"
    folder(source, train=["a"])
    message = re.escape(f"--out {source / 'out'} is inside --data {source}; give a folder outside of it")
    with pytest.raises(FolderError, match=message):
        refuse_source(Run(source / "out", Silent()), data=str(source))
    refuse_source(Run(source / "out", Silent()), data=f"{source}:train")  # only these files are hashed
    refuse_source(Run(tmp_path / "rows-out", Silent()), data=str(source))
    (source / "manifest.json").write_text('{"step": "mix", "complete": true}')
    refuse_source(Run(source / "out", Silent()), data=str(source))


def test_the_card_names_the_sources_of_the_folder(three, tmp_path):
    (tmp_path / "in" / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n")
    assert sources_of(data=[f"{three}:train"]).credits[0].licences == ("cc-by-4.0",)


def test_train_is_what_is_trained_on(three, tmp_path):
    said = []
    assert to_train_on(three, "mixed", said.append) == f"{three}:train"
    assert said == ["in: its split train is mixed; test, validation is not"]
    alone = folder(tmp_path / "alone", train=["a"])
    for whole in (alone, f"{three}:validation"):
        assert to_train_on(whole, "mixed", said.append) == whole
    assert len(said) == 1
    with pytest.raises(InputError, match=r"has no split train, only test; name one, such as .*kept:test"):
        to_train_on(folder(tmp_path / "kept", test=["a"]), "mixed")


def test_test_is_what_is_measured_on(three, tmp_path):
    said = []
    assert to_measure_on(three, "measured on", said.append) == f"{three}:test"
    assert said == ["in: its split test is measured on; train, validation is not"]
    assert to_measure_on(three, "looked at", split="validation") == f"{three}:validation"
    for whole in (folder(tmp_path / "alone", train=["a"]), f"{three}:train"):
        assert to_measure_on(whole, "measured on", said.append) == whole
    assert len(said) == 1
    two = folder(tmp_path / "two", train=["a"], validation=["v"])
    with pytest.raises(
        InputError, match=r"has no split test, only train, validation; name one, such as .*two"
    ):
        to_measure_on(two, "measured on")


def test_a_folder_without_read_permission_is_told(three, monkeypatch):
    def refused(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pairsmith.data.splits.size_of", refused)
    with pytest.raises(InputError, match="cannot be read: Permission denied"):
        splits_of(str(three))


def test_a_model_or_results_in_place_of_rows_are_named_as_what_they_are(tmp_path):
    (tmp_path / "training.json").write_text('{"step": "train-encoder", "complete": true}')
    (tmp_path / "vocab.txt").write_text("word")
    with pytest.raises(
        InputError, match="is a model that train-encoder trained, which holds no rows; give a"
    ):
        texts(str(tmp_path))
    with pytest.raises(InputError, match="is a model that train-encoder trained; give a folder of documents"):
        list(source_documents([str(tmp_path)]))
    with pytest.raises(FolderError, match="is a model that train-encoder trained, not a dataset folder"):
        DatasetFolder.open(tmp_path)
    (tmp_path / "training.json").rename(tmp_path / "config.json")
    assert len(list(source_documents([str(tmp_path)]))) == 2  # documents, as there are no weights
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(InputError, match="is a model; give a folder of documents"):
        list(source_documents([str(tmp_path)]))
