"""Dataset folders whose files were edited or damaged: each step names the fault."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.folders import write_folder

from pairsmith.core.errors import DamagedError, FolderError, InputError
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import MINED_ANSWER, MINED_PAIR, SCORED_PAIR
from pairsmith.methods.dino.encoder import check_pairs
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.generate.postprocess import postprocess
from pairsmith.steps.generate.settings import PostprocessSettings
from pairsmith.steps.mine.filter import filter_pairs
from pairsmith.steps.mine.rewrite import check_pair_columns
from pairsmith.steps.mine.settings import FilterSettings, RewriteSettings
from pairsmith.tools.audit.rows import draw_audit
from pairsmith.tools.meanings import label_meanings
from pairsmith.tools.report.origin import provenance
from pairsmith.tools.settings import AuditSettings

pytestmark = pytest.mark.slow

IDS, FIRST, SECOND = ["1", "2"], ["a b", "c d"], ["e f", "g h"]
SCORED = pa.table([IDS, FIRST, SECOND, [1.0, 0.0]], schema=SCORED_PAIR)
MINED = pa.table([IDS, FIRST, SECOND, [1.2, 1.1], [0.5, 0.4], IDS, IDS], schema=MINED_PAIR)
ANSWER = {"text": ["a"], "answer_start": [0]}
READING = pa.table([*MINED.columns, FIRST, [ANSWER, ANSWER]], schema=MINED_ANSWER)


def with_column(table, name, values):
    """``table`` with ``values`` in the column ``name``, perhaps of another type."""
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def edited_folder(path, table, original):
    """A folder of ``original``, whose file was replaced by one with ``table``."""
    folder = write_folder(path / "in", {"train": original})
    pq.write_table(table, folder.path / "data" / "train-00000.parquet")
    return str(folder.path)


def clean(source, path):
    postprocess(PostprocessSettings(data=source), Run(path / "out", Silent()))


def select(source, path, **changes):
    values = {"judge": "margin", "best": 1, **changes}
    filter_pairs(FilterSettings(pairs=source, **values), Run(path / "out", Silent()))


def check(source, path):
    settings = RewriteSettings(pairs=source, kind="reading", model="none")
    check_pair_columns(DatasetFolder.open(source).table(), settings)


def audit(source, path):
    draw_audit(DatasetFolder.open(source), AuditSettings(data=source, labels=["a", "b"]))


@pytest.mark.parametrize(
    ("run", "original", "table", "message"),
    [
        (clean, SCORED, with_column(SCORED, "id", [1, 2]), "the column id has the type int64, expected string"),
        (clean, SCORED, with_column(SCORED, "sentence2", ["x", None]), "1 of 2 rows have no value in the column s"),
        (clean, SCORED, with_column(SCORED, "score", ["1", "0"]), "score has the type string, expected double"),
        (select, MINED, MINED.drop_columns(["id"]), "has no column 'id', which is needed; it has: input, output"),
        (select, MINED, with_column(MINED, "id", [1, 2]), "the column id has the type int64, expected string"),
        (select, MINED, with_column(MINED, "input", [["x"], ["y"]]), "input has the type list<.*>, expected string"),
        (select, MINED, with_column(MINED, "score", ["x", "y"]), "score has the type string, expected double"),
        (check, READING, READING.drop_columns(["id"]), "pairs of kind reading have .*; id missing"),
        (check, READING, with_column(READING, "answers", FIRST), "answers has the type string, expected struct"),
        (
            check,
            READING,
            with_column(READING, "answers", [ANSWER, {"text": [], "answer_start": []}]),
            "1 of 2 rows have no value in the column answers; drop them first",
        ),
        (
            check,
            READING,
            with_column(READING, "answers", [{"text": [None], "answer_start": [0]}, ANSWER]),
            "1 of 2 rows have no value in the column answers",
        ),
        (audit, SCORED, SCORED.drop_columns(["id"]), "the rows have no ids, or no texts that can be labelled"),
            ],
)  # fmt: skip
def test_edited_columns_are_named(tmp_path, run, original, table, message):
    with pytest.raises(InputError, match=message):
        run(edited_folder(tmp_path, table, original), tmp_path)
    assert not (tmp_path / "out").exists()


def test_types_that_other_programs_write_are_read(tmp_path):
    table = SCORED.cast(
        pa.schema([(name, pa.large_string()) for name in SCORED.column_names[:3]] + [("score", pa.float32())])
    )
    clean(edited_folder(tmp_path, table, SCORED), tmp_path)
    assert DatasetFolder.open(tmp_path / "out").rows


def test_labels_that_are_lists_are_not_counted(tmp_path):
    table = MINED.append_column("label", pa.array([["a"], ["b"]]))
    select(edited_folder(tmp_path, table, MINED), tmp_path)
    assert DatasetFolder.open(tmp_path / "out").rows == 1


def test_texts_of_another_type_are_not_trained_on():
    with pytest.raises(InputError, match="in: sentence2 must be text, the column holds int64"):
        check_pairs(with_column(SCORED, "sentence2", [1, 2]), "in")


@pytest.mark.parametrize("by", [lambda folder: folder.table(), lambda folder: list(folder.batches("train"))])
def test_files_with_different_columns(tmp_path, by):
    folder = write_folder(tmp_path / "in", {"train": SCORED}, {"train": SCORED})
    pq.write_table(SCORED.rename_columns(["id", "a", "b", "score"]), folder.path / "data/train-00001.parquet")
    with pytest.raises(FolderError, match=r"train-00001.parquet has the columns id .*, a .*; expected id .*"):
        by(DatasetFolder.open(folder.path))


def test_two_columns_of_one_name(tmp_path):
    table = pa.Table.from_arrays([*SCORED.columns, SCORED["id"]], [*SCORED.column_names, "id"])
    folder = DatasetFolder.open(edited_folder(tmp_path, table, SCORED))
    with pytest.raises(FolderError, match="has 2 columns 'id'; rename all but one of them"):
        folder.schema()


def test_a_text_that_is_not_utf8(tmp_path):
    bytes_ = pa.array([b"a", b"\xff\xfe"])
    table = with_column(SCORED, "sentence1", pa.Array.from_buffers(pa.string(), 2, bytes_.buffers()))
    folder = DatasetFolder.open(edited_folder(tmp_path, table, SCORED))
    for read in (folder.table, lambda: list(folder.batches("train")), lambda: folder.head(2)):
        with pytest.raises(FolderError, match=r"train-00000.parquet is damaged \(.*UTF8"):
            read()


def test_a_manifest_without_files(tmp_path):
    folder = write_folder(tmp_path / "in", {"train": SCORED})
    record = json.loads((folder.path / "manifest.json").read_text())
    (folder.path / "manifest.json").write_text(json.dumps(record | {"shards": []}))
    with pytest.raises(FolderError, match=r"manifest.json lists no files with rows; run the command"):
        DatasetFolder.open(folder.path)


def test_a_file_with_fewer_rows_than_the_manifest_lists(tmp_path):
    folder = DatasetFolder.open(edited_folder(tmp_path, SCORED.slice(1), SCORED))
    with pytest.raises(FolderError, match=r"train-00000.parquet has 1 rows; manifest.json lists 2; run the"):
        folder.table()


@pytest.mark.parametrize("labels", [None, 5, ["x"], [{"name": "a"}], [{"name": [1], "instruction": "b"}]])
def test_a_task_that_was_edited(tmp_path, labels):
    settings = {"task": {"name": "t", "labels": labels}, "smoothing": "much"}
    folder = write_folder(tmp_path / "in", {"train": SCORED}, settings=settings)
    with pytest.raises(DamagedError, match="the task in its manifest.json is no task; run the command"):
        clean(str(folder.path), tmp_path)
    assert label_meanings(settings) == {}
    assert ("step", "generate") in provenance(folder).rows


def test_values_that_json_does_not_have_are_kept_as_text_in_rejects(tmp_path):
    days = pa.array([0, 1], pa.timestamp("s"))
    select(edited_folder(tmp_path, MINED.append_column("day", days), MINED), tmp_path)
    (row,) = DatasetFolder.open(tmp_path / "out").rejects()["row"].to_pylist()
    assert json.loads(row)["day"] == "1970-01-01 00:00:01"
