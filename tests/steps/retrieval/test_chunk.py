"""The step ``chunk`` on folders, files and tables, with all that can be wrong with them."""

import json
import os
import shutil
import sys
from collections import Counter

import pytest
from tests.heard import Heard
from tests.planned import planned
from typer.testing import CliRunner

from pairsmith.cli.app import make_app
from pairsmith.core.errors import FolderError, InputError, MissingExtra, OtherWorkError
from pairsmith.core.progress import Silent
from pairsmith.data.documents import read_documents
from pairsmith.data.files import reading
from pairsmith.runs import DatasetFolder, Run
from pairsmith.steps.retrieval.chunk import chunk, plan_chunk
from pairsmith.steps.retrieval.settings import ChunkSettings


def run(documents, out, progress=None, **rest):
    given = [str(path) for path in (documents if isinstance(documents, list) else [documents])]
    return chunk(ChunkSettings(documents=given, **rest), Run(out, progress or Silent()))


def rows(folder: DatasetFolder):
    return folder.table().to_pylist()


def rejects(folder: DatasetFolder):
    return folder.rejects().to_pylist()


@pytest.fixture
def library(tmp_path):
    """A folder of documents of every kind, some of them faulty."""
    folder = tmp_path / "library"
    (folder / "b").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "secret.txt").write_text("Nobody reads this.")
    (folder / "a.txt").write_text("Ann sails. Bob sings. Cleo cooks.")
    (folder / "b" / "guide.md").write_text("# Guide\n\nStart here.\n\n## Use\n\nAnn  sails. bob sings!\n")
    (folder / "b" / "page.html").write_text("<h1>Page</h1><p>It is a page.")
    (folder / "b" / "latin.txt").write_bytes(b"caf\xe9")
    (folder / "empty.md").write_text("# Only a heading\n")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 cut sh")
    (folder / "sheet.xlsx").write_bytes(b"PK")
    (folder / "other.xlsx").write_bytes(b"PK")
    return folder


def test_a_folder_becomes_chunks_with_titles_and_places(library, tmp_path):
    heard = Heard()
    folder = run(library, tmp_path / "out", heard, words=4)
    assert [(row["document"], row["place"], row["title"], row["text"]) for row in rows(folder)] == [
        ("a.txt", 1, "", "Ann sails. Bob sings."),
        ("a.txt", 2, "", "Cleo cooks."),
        ("b/guide.md", 1, "Guide", "Start here."),
        ("b/page.html", 1, "Page", "It is a page."),
    ]
    assert len({row["id"] for row in rows(folder)}) == 4
    assert any("2 .xlsx" in line for line in heard.lines)


def test_what_cannot_be_read_is_named_and_a_reject_with_the_reason(library, tmp_path):
    heard = Heard()
    folder = run(library, tmp_path / "out", heard, words=4)
    (said,) = [line for line in heard.lines if line.startswith("not read")]
    assert "b/latin.txt" in said
    assert "sheet.xlsx" not in said
    rejected = {(row["filter"], json.loads(row["row"])["document"]): row for row in rejects(folder)}
    assert set(rejected) == {
        ("duplicate", "b/guide.md"),
        ("encoding", "b/latin.txt"),
        ("empty", "empty.md"),
        ("damaged PDF", "broken.pdf"),
        ("unknown kind", "sheet.xlsx"),
        ("unknown kind", "other.xlsx"),
    }
    latin = rejected["encoding", "b/latin.txt"]
    assert latin["reason"] == "not UTF-8: byte 0xe9"
    assert json.loads(latin["row"])["byte"] == 4
    counted = folder.manifest.counts.rejects_by_reason
    assert counted["duplicate: repeats an earlier chunk"] == 1
    (unknown,) = [count for reason, count in counted.items() if reason.startswith("unknown kind")]
    assert unknown == 2


def test_ids_depend_on_document_and_place_alone(library, tmp_path):
    one = {row["id"] for row in rows(run(library, tmp_path / "one", words=4, shard_size=1))}
    (library / "aa.txt").write_text("Something new.")
    two = {row["id"] for row in rows(run(library, tmp_path / "two", words=4))}
    assert one < two


def test_workers_and_shards_make_no_difference(library, tmp_path):
    one = rows(run(library, tmp_path / "one"))
    assert rows(run(library, tmp_path / "two", shard_size=2, workers=2)) == one


ODD = {
    b"bomb.md": b"---\ntitle: " + b"[" * 1_000 + b"\n---\nIt has a list.",
    b"day.md": b"---\ndate: 2024-02-30\n---\nIt has a date.",
    b"README.md": b"---\ndate: 2024-02-30\n---\nIt looks like a card.",
    b"manifest.json": b"[" * 100_000,
    b"hex.html": b'<meta charset="hex"><p>It has letters.',
    b"half.md": b'---\ntitle: "a\\ud800b"\n---\nIt has half a letter.',
    b"none.html": b'<meta charset="undefined"><p>It has no encoding.',
    b"caf\xe9.txt": b"It has a name.",
    b"caf\xe9 2.txt": b"caf\xe9",
    b"caf.\xe9": b"It has no kind.",
}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_odd_files_stop_nothing(tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    for name, data in ODD.items():
        (folder / os.fsdecode(name)).write_bytes(data)
    heard = Heard()
    dataset = run(folder, tmp_path / "out", heard, workers=2, shard_size=4)
    assert "\n".join(heard.lines).encode()
    documents = {row["document"]: (row["title"], row["text"]) for row in rows(dataset)}
    assert documents.pop("bomb.md")[0] == ""
    assert documents == {
        "day.md": ("", "It has a date."),
        "README.md": ("", "It looks like a card."),
        "hex.html": ("", "It has letters."),
        "half.md": ("ab", "It has half a letter."),
        "none.html": ("", "It has no encoding."),
        "caf\\xe9.txt": ("", "It has a name."),
    }
    lost = {json.loads(row["row"])["where"]: row["filter"] for row in rejects(dataset)}
    assert lost == {
        f"{folder}/manifest.json": "unknown kind",
        f"{folder}/caf\\xe9 2.txt": "encoding",
        f"{folder}/caf.\\xe9": "unknown kind",
    }


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_source_may_have_an_odd_name(tmp_path):
    folder = tmp_path / os.fsdecode(b"f\xe9")
    folder.mkdir()
    file = folder / os.fsdecode(b"caf\xe9.txt")
    file.write_text("Ann sails.")
    for number, sources in enumerate([file, folder, [folder, file]]):
        dataset = run(sources, tmp_path / str(number))
        (row,) = rows(dataset)
        assert row["document"].endswith("caf\\xe9.txt")
        assert "\\xe9" in (dataset.path / "README.md").read_text(encoding="utf-8")


def test_a_reader_that_fails_makes_a_reject_that_can_be_stored(library, tmp_path, monkeypatch):
    def failing(data):
        raise RuntimeError("half a letter: \ud83d")

    monkeypatch.setattr(reading, "READERS", {**reading.READERS, ".pdf": failing})
    (lost,) = [row for row in rejects(run(library, tmp_path / "out")) if row["filter"] == "unreadable file"]
    assert lost["reason"] == "the library that reads it failed"
    assert json.loads(lost["row"])["error"] == "half a letter: \\ud83d"


def test_the_same_bytes_under_another_name_are_other_work(tmp_path):
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    for file in (one, two):
        file.write_text("Ann sails.")
    ids = {row["id"] for row in rows(run(one, tmp_path / "out"))}
    with pytest.raises(OtherWorkError, match="names of documents"):
        run(two, tmp_path / "out")
    assert ids.isdisjoint(row["id"] for row in rows(run(two, tmp_path / "other")))
    run([one, two], tmp_path / "both")
    two.rename(tmp_path / "three.txt")
    with pytest.raises(OtherWorkError, match="names of documents"):
        run([one, tmp_path / "three.txt"], tmp_path / "both")


def test_documents_that_changed_are_told_and_cut_again(library, tmp_path):
    out = tmp_path / "out"
    run(library, out)
    (library / "c.txt").write_text("Dora drums.")
    with pytest.raises(OtherWorkError) as refused:
        run(library, out)
    assert "on other inputs: input documents 1 (" in str(refused.value)
    assert ") is another, or has changed: " in str(refused.value)
    assert str(refused.value).endswith("or --fresh to start over in this one")
    heard = Heard()
    again = chunk(ChunkSettings(documents=[str(library)]), Run(out, heard, fresh=True))
    assert f"{out / 'cut'} is made again from the start, as its inputs have changed" in heard.lines
    assert "Dora drums." in {row["text"] for row in rows(again)}


def test_a_folder_that_was_moved_is_the_same_work(library, tmp_path):
    run(library, tmp_path / "out")
    heard = Heard()
    run(library.rename(tmp_path / "moved"), tmp_path / "out", heard)
    assert any("finished already" in line for line in heard.lines)


def test_an_interrupted_run_ends_with_the_same_bytes(library, tmp_path, monkeypatch):
    whole = run(library, tmp_path / "whole", shard_size=2)
    read, calls = reading.SourceDocument.read, Counter()

    def stopping(document):
        calls["all"] += 1
        if calls["all"] == 5:
            raise KeyboardInterrupt
        return read(document)

    with monkeypatch.context() as patched:
        patched.setattr(reading.SourceDocument, "read", stopping)
        with pytest.raises(KeyboardInterrupt):
            run(library, tmp_path / "out", shard_size=2)
    done = len(list((tmp_path / "out" / "cut" / "data").iterdir()))
    assert done == 2
    again = run(library, tmp_path / "out", shard_size=2)
    names = sorted(path.relative_to(whole.path) for path in whole.path.rglob("*.parquet"))
    assert names == sorted(path.relative_to(again.path) for path in again.path.rglob("*.parquet"))
    assert all((whole.path / name).read_bytes() == (again.path / name).read_bytes() for name in names)


def test_rows_of_tables_are_documents(tmp_path):
    table = tmp_path / "texts.jsonl"
    given = [
        {"id": 7, "title": "First", "text": "One two. Three four."},
        {"id": 7, "title": "Again", "text": "Five six."},
        {"id": "x", "title": None, "text": ["A paragraph.", "Another."]},
        {"id": "y", "text": "  "},
    ]
    table.write_text("".join(json.dumps(row) + "\n" for row in given))
    folder = run(table, tmp_path / "out", words=2)
    assert [(row["document"], row["place"], row["title"], row["text"]) for row in rows(folder)] == [
        ("7", 1, "First", "One two."),
        ("7", 2, "First", "Three four."),
        ("7", 1, "Again", "Five six."),
        ("x", 1, "", "A paragraph."),
        ("x", 2, "", "Another."),
    ]
    assert len({row["id"] for row in rows(folder)}) == len(rows(folder))
    (empty,) = rejects(folder)
    assert (empty["filter"], json.loads(empty["row"])["document"]) == ("empty", "y")


def test_columns_of_tables_may_be_named(tmp_path):
    table = tmp_path / "texts.csv"
    table.write_text("heading,words\nFirst,One two.\n")
    (row,) = rows(run(table, tmp_path / "out", column="words", title_column="heading"))
    assert (row["title"], row["text"]) == ("First", "One two.")
    with pytest.raises(InputError, match="has no column 'name'"):
        run(table, tmp_path / "other", column="words", title_column="name")


def test_steps_that_read_documents_read_the_texts_of_chunks(library, tmp_path):
    folder = run(library, tmp_path / "out")
    assert [document.text for document in read_documents(folder.path)] == [
        row["text"] for row in rows(folder)
    ]


def test_chunks_can_be_cut_again(library, tmp_path):
    first = run(library, tmp_path / "first", words=50)
    again = run(first.path, tmp_path / "again", words=3)
    titles = {row["id"]: row["title"] for row in rows(first)}
    assert {"Guide", "Page"} < {row["title"] for row in rows(again)}
    assert all(titles[row["document"]] == row["title"] for row in rows(again))


def test_documents_of_several_sources_are_told_apart(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "docs").mkdir(parents=True)
        (tmp_path / name / "docs" / "a.txt").write_text(f"This is {name}.")
    sources = [tmp_path / "one" / "docs", tmp_path / "two" / "docs", tmp_path / "one" / "docs" / "a.txt"]
    (tmp_path / "one" / "docs" / "a.txt").write_text("Another one.")
    folder = run(sources, tmp_path / "out")
    assert [row["document"] for row in rows(folder)] == ["docs/a.txt", "docs (2)/a.txt"]
    (copy,) = rejects(folder)
    assert json.loads(copy["row"])["document"] == "a.txt"


def test_one_huge_line_is_cut(tmp_path):
    file = tmp_path / "huge.txt"
    file.write_text("A short sentence number one of many. " * 20 + "word " * 1_200_000)
    folder = run(file, tmp_path / "out")
    assert max(len(row["text"].split()) for row in rows(folder)) <= 120
    assert folder.rows + folder.manifest.counts.rejects > 9_000  # most of them are copies


def test_sources_without_a_document_are_refused(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(InputError, match="holds no files"):
        run(empty, tmp_path / "out")
    (empty / "sheet.xlsx").write_text("x")
    with pytest.raises(InputError, match="no document can be read: 1 .xlsx; known are the files .txt"):
        run(empty, tmp_path / "out")
    with pytest.raises(InputError, match="does not exist"):
        run(tmp_path / "nowhere", tmp_path / "out")


def test_an_output_within_the_documents_is_refused(library):
    with pytest.raises(FolderError, match="is inside --documents"):
        run(library, library / "b" / ".." / "out")


def test_a_missing_package_is_named_before_anything_is_read(library, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "lxml", None)
    with pytest.raises(MissingExtra, match=r"pairsmith\[documents\]"):
        run(library, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for name in ("guide.md", "page.html"):
        (library / "b" / name).unlink()
    shutil.rmtree(library / "b")
    (library / "empty.md").unlink()
    assert run(library, tmp_path / "out").rows == 1  # only what needs the package cannot be read


def test_on_the_command_line(library, tmp_path):
    given = ["chunk", "--documents", str(library), "--out", str(tmp_path / "out"), "--words", "4", "--quiet"]
    assert CliRunner().invoke(make_app(), given).exit_code == 0
    assert DatasetFolder.open(tmp_path / "out").rows == 4


def test_questions_may_be_asked_about_chunks_as_the_command_says(library, tmp_path):
    out = tmp_path / "out"
    said = CliRunner().invoke(make_app(), ["chunk", "--documents", str(library), "--out", str(out)]).stderr
    (ask,) = [line.removeprefix("or:   pairsmith ") for line in said.splitlines() if "smith ask" in line]
    said = CliRunner().invoke(make_app(), ask.replace("GENERATOR", "cloze").split()).stderr
    assert f"pairsmith relabel --data {out}-asked --model TEACHER --out {out}-asked-answered" in said
    assert said.splitlines()[-1].startswith(f"or:   pairsmith infuse --data {out}-asked --base ENCODER")


def test_a_plan_extrapolates_from_a_sample(library, tmp_path):
    settings = ChunkSettings(documents=[str(library)], words=4)
    estimate = plan_chunk(settings, {})
    folder = run(library, tmp_path / "out", words=4)
    assert estimate.rows == {"train": folder.rows + 1}  # with the copy
    assert estimate.sample.column_names == ["id", "title", "text", "document", "place"]
    after = planned("chunk", ChunkSettings(documents=["@cut"], words=2), {"@cut": estimate})
    assert after.rows["train"] > estimate.rows["train"]
