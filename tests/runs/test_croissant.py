"""Descriptions in Croissant, read by the specification's own library."""

import json
from datetime import datetime, timedelta

import mlcroissant
import pyarrow as pa
import pytest

from pairsmith.core.errors import FolderError
from pairsmith.core.progress import Silent
from pairsmith.data.questions import RELABELLED
from pairsmith.data.schemas import LABELLED_TEXT, REJECT, SCORED_PAIR, Reject, to_table
from pairsmith.data.squad import QUESTION
from pairsmith.runs import Card, FolderWriter, Run
from pairsmith.runs.attribution import Sources
from pairsmith.runs.croissant import as_json, describe
from pairsmith.runs.identity import Identity
from pairsmith.runs.provenance import Attribution
from pairsmith.tools.export.route import export
from pairsmith.tools.settings import ExportSettings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:(rdflib|mlcroissant)")

TEXTS = ["Zwölf Hunde\u2028bellen.", '"Quoted", it said\nand ended', "", "plain"]


def scored(n):
    return {"id": f"p{n}", "sentence1": TEXTS[n % 4], "sentence2": "y", "score": n / 3}


def labelled(n):
    return {"id": f"t{n}", "text": TEXTS[n % 4], "label": "news" if n % 2 else "sport"}


def question(n):
    answers = {"text": ["Paris"] * (n % 3), "answer_start": list(range(n % 3))}
    return {
        "id": f"q{n}",
        "title": "France",
        "context": TEXTS[n % 4],
        "question": "What?",
        "answers": answers,
    }


def taught(n):
    row = {**question(n), "written": "w"}
    del row["title"]
    at = {"position": list(range(n)), "probability": [1 / (i + 3) for i in range(n)]}
    return {
        **row,
        "written_answers": row["answers"],
        "starts": at,
        "ends": {"position": [7], "probability": [0.1]},
    }


def dataset_folder(out, schema, row, rejects=(), card=None):
    """Two shards, and a validation split in the first."""
    writer = FolderWriter.start(Run(out, Silent()), Identity.of("generate", {}), schema)
    for shard, splits in enumerate(({"train": [0, 1, 2], "validation": [3]}, {"train": [4, 5]})):
        tables = {
            split: pa.Table.from_pylist([row(n) for n in some], schema) for split, some in splits.items()
        }
        writer.commit(shard, tables, to_table(rejects if shard else [], REJECT))
    return writer.finish(card or Card("Rows", "Some rows.", citations=["Somebody (2021)"]))


def exported(folder, out):
    export(ExportSettings(data=str(folder.path), form="croissant"), Run(out, Silent()))
    return out / "croissant.json"


def opened(path):
    """The data set as the library opens it; it has found nothing to complain of."""
    dataset = mlcroissant.Dataset(jsonld=path)
    issues = dataset.metadata.ctx.issues
    assert (issues.errors, issues.warnings) == (set(), set())
    return dataset


def plain(value):
    """A record as a row: columns by their last names, texts as texts, numbers as Python's."""
    if isinstance(value, dict):
        return {name.rpartition("/")[2]: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes):
        return value.decode()
    return value.item() if hasattr(value, "item") else value


@pytest.mark.parametrize(
    ("schema", "row"),
    [(SCORED_PAIR, scored), (LABELLED_TEXT, labelled), (QUESTION, question), (RELABELLED, taught)],
    ids=["scored", "labelled", "questions", "taught"],
)
def test_its_own_library_reads_the_rows(tmp_path, schema, row, caplog):
    folder = dataset_folder(tmp_path / "in", schema, row, [Reject("r", "f", "why", "{}")])
    dataset = opened(exported(folder, tmp_path / "out"))
    records = [plain(record) for record in dataset.records("data")]
    for split in folder.splits:
        rows = [
            {k: v for k, v in record.items() if k != "split"}
            for record in records
            if record["split"] == split
        ]
        assert rows == folder.table(split).to_pylist()
    assert len(records) == folder.rows == 6
    rejects = [plain(record) for record in dataset.records("rejects")]
    assert rejects == folder.rejects().to_pylist()
    assert [plain(record)["name"] for record in dataset.records("splits")] == ["train", "validation"]
    assert not caplog.records


def test_files_have_their_hashes_and_the_text_says_what_is_known(tmp_path):
    made_with = (Attribution(name="a", role="data", licences=("mit",), languages=("de",)),)
    card = Card("Rows", "Some rows.", citations=["One"], sources=Sources(made_with, ("Two",)))
    folder = dataset_folder(tmp_path / "in", SCORED_PAIR, scored, card=card)
    path = exported(folder, tmp_path / "out")
    metadata = opened(path).metadata
    entries = {file.path: file.sha256 for shard in folder.manifest.shards for file in shard.files}
    assert {file.content_url: file.sha256 for file in metadata.file_objects}.items() <= entries.items()
    assert len(metadata.file_objects) == 3  # nothing was rejected
    assert metadata.cite_as == "One\nTwo"
    assert metadata.license == ["https://spdx.org/licenses/MIT"]
    assert metadata.in_language == ["de"]
    assert metadata.date_published.isoformat()[:10] == folder.manifest.created[:10]
    assert "creator" not in json.loads(path.read_text())


def test_an_unknown_licence_is_said_to_be(tmp_path):
    made_with = (Attribution(name="a", role="data", licences=("mit",)), Attribution(name="b", role="model"))
    folder = dataset_folder(
        tmp_path / "in", SCORED_PAIR, scored, card=Card("R", "d", sources=Sources(made_with))
    )
    assert describe(folder.manifest, folder.schema())["license"].startswith("unknown")


def test_the_same_folder_gives_the_same_bytes_and_other_rows_another_version(tmp_path):
    folder = dataset_folder(tmp_path / "in", SCORED_PAIR, scored)
    other = dataset_folder(tmp_path / "other", SCORED_PAIR, lambda n: {**scored(n), "score": 0.0})
    first = describe(folder.manifest, folder.schema(), repo="anna/pairs", endpoint="https://hub")
    assert as_json(first) == as_json(
        describe(folder.manifest, folder.schema(), repo="anna/pairs", endpoint="https://hub")
    )
    assert first["url"] == "https://hub/datasets/anna/pairs"
    assert first["creator"]["name"] == "anna"
    assert first["version"] != describe(other.manifest, other.schema())["version"]


def test_columns_of_other_types_are_described(tmp_path):
    when = datetime(2024, 5, 6, 7, 8)
    columns = [
        ("note", pa.null(), None, "sc:Text"),
        ("day", pa.date32(), when.date(), "sc:Date"),
        ("when", pa.timestamp("us"), when, "sc:DateTime"),
        ("took", pa.duration("s"), timedelta(seconds=3), "sc:Text"),
        ("at", pa.time64("us"), when.time(), "sc:Time"),
        ("count", pa.uint8(), 7, "cr:UInt8"),
    ]
    schema = pa.schema([("id", pa.string()), *((name, kind) for name, kind, *_ in columns)])
    folder = dataset_folder(
        tmp_path / "in", schema, lambda n: {"id": str(n), **{name: value for name, _, value, _ in columns}}
    )
    path = exported(folder, tmp_path / "out")
    opened(path)
    (fields,) = (
        record_set["field"]
        for record_set in json.loads(path.read_text())["recordSet"]
        if record_set["@id"] == "data"
    )
    types = {field["name"]: field["dataType"] for field in fields}
    assert types.items() >= {name: said for name, _, _, said in columns}.items()


def test_its_own_library_reads_columns_without_values_and_dates(tmp_path):
    schema = pa.schema([("id", pa.string()), ("note", pa.null()), ("when", pa.timestamp("us"))])
    when = datetime(2024, 5, 6, 7, 8)
    folder = dataset_folder(tmp_path / "in", schema, lambda n: {"id": str(n), "note": None, "when": when})
    rows = [plain(record) for record in opened(exported(folder, tmp_path / "out")).records("data")]
    assert sorted(row["id"] for row in rows) == [str(n) for n in range(6)]
    assert {row["when"] for row in rows} == {when}
    assert not any(row["note"] == row["note"] and row["note"] for row in rows)


def test_only_a_dataset_folder_can_be_described(tmp_path):
    (tmp_path / "rows").mkdir()
    with pytest.raises(FolderError, match="is not a dataset folder"):
        export(ExportSettings(data=str(tmp_path / "rows"), form="croissant"), Run(tmp_path / "o", Silent()))
