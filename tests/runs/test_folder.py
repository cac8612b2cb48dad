from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.folders import write_folder

from pairsmith.core.errors import FolderError, SettingsError
from pairsmith.data.schemas import SCORED_PAIR, ScoredPair, to_table
from pairsmith.runs import DatasetFolder, summary
from pairsmith.runs.folder import open_training_rows
from pairsmith.runs.manifest import ShardTotals
from pairsmith.runs.parquet import read_parquet


@pytest.fixture
def folder(tmp_path):
    table = to_table([ScoredPair("a", "x", "y", 1.0)], SCORED_PAIR)
    return write_folder(tmp_path / "a=1" / "out", {"validation": table, "train": table})


def fault(call):
    with pytest.raises(FolderError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_train_comes_first(folder):
    assert folder.splits == ("train", "validation")


def test_a_folder_is_shown_in_one_line(folder):
    shown = repr(folder)
    assert shown.startswith(f"DatasetFolder({str(folder.path)!r}, ")
    assert shown.endswith(", {'train': 1, 'validation': 1})")


def test_a_folder_called_like_a_partition_adds_no_column(folder):
    assert folder.table().schema.equals(SCORED_PAIR)


def test_an_unknown_split(folder):
    assert fault(lambda: folder.table("vlidation")).endswith(
        "has no split 'vlidation'; did you mean 'validation'? known: train, validation"
    )
    for split in (None, 5, True, "tset"):
        for call in (
            lambda split=split: folder.table(split),
            lambda split=split: list(folder.shards(split)),
            lambda split=split: list(folder.batches(split)),
            lambda split=split: folder.shard_rows(split),
        ):
            assert fault(call).endswith(f"has no split {split!r}; known: train, validation")


def test_unknown_columns_are_no_empty_tables(folder):
    for call in (
        lambda columns: folder.table("train", columns),
        lambda columns: list(folder.shards("train", columns)),
        lambda columns: list(folder.batches("train", columns)),
    ):
        assert "has no column 'scor'; did you mean 'score'?" in fault(lambda call=call: call(["id", "scor"]))
        assert "has no column 5; known: id, score," in fault(lambda call=call: call([5]))
        for columns in ("score", 5):
            expected = f"columns must be a list of names of columns, not {columns!r}"
            assert fault(lambda call=call, columns=columns: call(columns)) == expected


def test_numbers_of_shards_and_rows_are_checked(folder):
    assert len(list(folder.shards("train", None, [0]))) == 1
    assert (len(folder.head(0)), len(folder.head(10**30))) == (0, 1)
    for call, message in (
        (lambda: list(folder.shards("train", None, [1])), "each of numbers must be at most 0, not 1"),
        (lambda: list(folder.shards("train", None, [-1])), "each of numbers must be at least 0, not -1"),
        (lambda: folder.head("3"), "count must be a whole number, not '3'"),
        (lambda: folder.head(-1), "count must be at least 0, not -1"),
    ):
        with pytest.raises(SettingsError, match=message):
            call()


def test_numbers_of_shards_of_a_split_without_any(folder):
    others = write_folder(folder.path.parent / "others", {"test": folder.table()})
    assert list(others.shards("train", None, [])) == []
    with pytest.raises(FolderError, match="others has no split 'train'; known: test"):
        list(others.shards("train", None, [0]))


def test_a_field_of_a_column_can_be_read_alone(tmp_path):
    answers = [{"text": ["Anna"], "answer_start": [0]}]
    pq.write_table(pa.table({"id": ["a"], "answers": answers}), tmp_path / "rows.parquet")
    only = read_parquet(tmp_path / "rows.parquet", ["answers.text"])
    assert only.to_pylist() == [{"answers": {"text": ["Anna"]}}]
    for wrong in ("answers.tex", "answers.", "i"):
        with pytest.raises(FolderError, match=f"has no column '{wrong}'"):
            read_parquet(tmp_path / "rows.parquet", [wrong])


def test_a_file_without_columns_is_no_shard(folder):
    pq.write_table(pa.table({}), folder.path / "data/train-00000.parquet")
    assert "has no columns; run the command that wrote it again" in fault(folder.table)


def test_a_damaged_file(folder):
    (folder.path / "data" / "train-00000.parquet").write_bytes(b"PAR1 half")
    assert "train-00000.parquet is damaged (" in fault(folder.table)


def test_a_missing_file(folder):
    (folder.path / "rejects" / "part-00000.parquet").unlink()
    assert "part-00000.parquet is missing; run the command that wrote it again" in fault(folder.rejects)


def test_what_is_no_dataset_folder(tmp_path, folder):
    (tmp_path / "file").write_text("")
    assert fault(lambda: DatasetFolder.open(tmp_path / "file")).endswith(
        "is a file; a dataset folder is expected; make one of its rows: "
        f"pairsmith mix --data {tmp_path}/file --out FOLDER"
    )
    assert "is not a dataset folder: it holds no manifest.json" in fault(lambda: DatasetFolder.open(tmp_path))
    assert "did you mean" in fault(lambda: DatasetFolder.open(folder.path.with_name("ouut")))


def test_an_unreadable_manifest(folder):
    (folder.path / "manifest.json").unlink()
    (folder.path / "manifest.json").mkdir()
    assert "manifest.json cannot be read: " in fault(lambda: DatasetFolder.open(str(folder.path)))


def test_keys_of_a_later_version_are_passed_over(folder):
    path = folder.path / "manifest.json"
    path.write_text(path.read_text().replace('"step": ', '"later": {"x": 1}, "step": '))
    assert DatasetFolder.open(folder.path).rows == 2


def test_the_home_folder_is_understood(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.path.parent))
    assert DatasetFolder.open("~/out").rows == 2


def test_chosen_columns_and_the_head(folder):
    assert folder.table("train", ["score"]).to_pydict() == {"score": [1.0]}
    assert folder.head(3) == [{"id": "a", "sentence1": "x", "sentence2": "y", "score": 1.0}]


def counted(folder, rows, rejects):
    counts = {"rows": rows, "rejects": sum(rejects.values()), "rejects_by_reason": rejects}
    return DatasetFolder(Path("out"), folder.manifest.model_copy(update={"counts": ShardTotals(**counts)}))


@pytest.mark.parametrize(
    ("rows", "rejects", "said"),
    [
        (1440, {}, "wrote 1,440 rows to out"),
        (
            1440,
            {"copy: equal": 13, "no end: no mark": 1020},
            "wrote 1,440 rows to out (1,033 not kept: 1,020 no end: no mark, 13 copy: equal)",
        ),
        (1, {"a": 1, "b": 2, "c": 3, "d": 4}, "wrote 1 row to out (10 not kept: 4 d, 3 c, 2 b, …)"),
        (0, {"copy: equal": 1, "no end: no mark": 2}, "out: no row was kept; most often: no end: no mark"),
        (0, {}, "out: no row was kept"),
    ],
)
def test_the_summary_says_what_was_kept_and_why_not_the_rest(folder, rows, rejects, said):
    assert summary(counted(folder, rows, rejects)) == said


def test_rows_for_training_are_read_as_they_are_needed(tmp_path):
    tables = []
    for number, ids in enumerate(("ab", "", "cde")):
        rows = to_table([ScoredPair(row_id, "x", "y", 1.0) for row_id in ids], SCORED_PAIR)
        held_out = to_table([ScoredPair(f"v{number}", "x", "y", 0.0)], SCORED_PAIR)
        tables.append({"train": rows, "validation": held_out})
    write_folder(tmp_path / "out", *tables)
    rows = open_training_rows(str(tmp_path / "out"), "judged")
    assert len(rows) == 5
    assert rows.table(["id"]).to_pydict() == {"id": list("abcde")}
    assert [table.column_names for table in rows.batches(["id", "score"])] == [["id", "score"]] * 2
    for count in (0, 1, 2, 3, 5, 9):
        assert rows.head(count)["id"].to_pylist() == list("abcde")[:count]
    assert rows.head(0).schema == SCORED_PAIR
    named = open_training_rows(f"{tmp_path / 'out'}:validation", "judged")
    assert named.head(2)["id"].to_pylist() == ["v0", "v1"]
