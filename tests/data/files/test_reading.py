"""Documents of all kinds before they are cut, and which folders are read as documents."""

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairsmith.core.errors import InputError, MissingExtra, StorageError
from pairsmith.core.paths import printable_name
from pairsmith.data.files import reading
from pairsmith.data.files.folders import written_by_pairsmith
from pairsmith.data.files.parsed import DocumentFault, Unreadable
from pairsmith.data.files.reading import READERS, SourceDocument, source_documents
from pairsmith.runs import hash_source

APP = {"name": "An app", "start_url": "/", "icons": [], "complete": "yes"}


def names(*sources):
    return [file.name for file in source_documents([str(source) for source in sources])]


def rows_in(folder, name="x.parquet"):
    (folder / "data").mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": ["r"], "text": ["A row."]}), folder / "data" / name)


class Data:
    """A file by its content."""

    def __init__(self, name, data):
        self.name, self._data = name, data

    def read_bytes(self):
        return self._data


@pytest.mark.parametrize("kind", sorted(READERS))
@given(
    data=st.binary()
    | st.text().map(str.encode)
    | st.lists(st.sampled_from(
        [b"---\n", b"title: ", b"<h1>", b"<meta charset=", b"utf-7>", b"<td>", b"<pre>\n", b"[", b"\xff", b"a ",
         b"%PDF-1.4\n", b"1 0 obj<</Title(", b"trailer<</Root 1 0 R>>", b"startxref\n0"]
    )).map(b"".join)
)  # fmt: skip
def test_any_bytes_are_sections_that_can_be_stored_or_a_fault(kind, data):
    try:
        parsed = SourceDocument("a", "a", Data(f"a{kind}", data)).read()
    except Unreadable:
        return
    assert parsed.sections
    pa.array([text for section in parsed.sections for text in (section.title, section.text)])


def test_what_a_library_raises_is_a_fault_of_the_file(monkeypatch):
    def reader(data):
        raise {b"": MissingExtra("lxml", "documents")}.get(data, LookupError("no such thing\nat all"))

    monkeypatch.setattr(reading, "READERS", {".txt": reader})
    with pytest.raises(Unreadable) as caught:
        SourceDocument("a", "a", Data("a.txt", b"text")).read()
    assert caught.value.fault == DocumentFault(
        "unreadable file", "the library that reads it failed", {"error": "no such thing"}
    )
    with pytest.raises(MissingExtra):  # this is for the user to mend, and stops the step
        SourceDocument("a", "a", Data("a.txt", b"")).read()


@pytest.mark.parametrize("error", [TimeoutError("timed out"), OSError(116, "Stale file handle"), KeyError(1)])
def test_a_file_that_cannot_be_reached_any_more_ends_the_run(error):
    class Unreachable(Data):
        def read_bytes(self):
            raise error

    with pytest.raises(InputError, match="^b/a.txt cannot be read: .*; mend this and run the same command"):
        SourceDocument("a.txt", "b/a.txt", Unreachable("a.txt", b"")).read()


@given(st.binary().map(os.fsdecode) | st.text(st.characters()))
def test_any_name_can_be_shown_and_an_ordinary_one_stays(name):
    shown_name = printable_name(name)
    shown_name.encode()
    if not any("\ud800" <= letter <= "\udfff" for letter in name):
        assert shown_name == name


def test_bytes_of_a_name_are_escaped():
    assert printable_name(os.fsdecode(b"caf\xe9.txt")) == "caf\\xe9.txt"
    assert printable_name("half \ud83d.txt") == "half \\ud83d.txt"


def test_a_folder_without_read_permission_is_told(tmp_path, monkeypatch):
    for name in ("a.txt", "closed/b.txt", ".hidden/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("text")
    closed, scandir = {tmp_path / ".hidden"}, os.scandir

    def refused(folder):
        if Path(folder) in closed:
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refused)
    assert [document.name for document in source_documents([str(tmp_path)])] == ["a.txt", "closed/b.txt"]
    closed.add(tmp_path / "closed")
    with pytest.raises(StorageError, match="closed cannot be read: Permission denied"):
        list(source_documents([str(tmp_path)]))


def test_a_folder_with_the_manifest_of_a_web_app_is_one_of_documents(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps(APP))
    (tmp_path / "b.txt").write_text("Text.")
    assert names(tmp_path) == ["b.txt", "manifest.json"]
    before = hash_source(tmp_path)
    (tmp_path / "b.txt").write_text("Another text.")
    assert hash_source(tmp_path) != before


@pytest.mark.parametrize(
    ("text", "ours"),
    [
        ('{"complete": true, "step": "chunk"}', True),
        ('{"complete": false}', True),
        ('{"complete": 1}', False),
        ("{}", False),
        ("[]", False),
        ("not JSON", False),
        ("[" * 100_000, False),
        ("\udcff", False),
    ],
)
def test_a_manifest_of_pairsmith_is_known_by_what_is_in_it(text, ours, tmp_path):
    (tmp_path / "manifest.json").write_bytes(os.fsencode(text))
    assert written_by_pairsmith(tmp_path) is ours


def test_an_unfinished_data_set_is_refused_as_one(tmp_path):
    (tmp_path / "manifest.json").write_text('{"complete": false}')
    (tmp_path / "README.md").write_text("# Card")
    with pytest.raises(InputError, match="is unfinished"):
        names(tmp_path)


def test_a_data_set_with_files_about_it_is_one(tmp_path):
    rows_in(tmp_path)
    for name in ("README.md", "LICENSE.txt", "NOTICE", "dataset_infos.json", ".gitattributes"):
        (tmp_path / name).write_text("About it.")
    assert names(tmp_path) == ["r"]


@pytest.mark.parametrize("name", ["b.txt", "data/b.md", "docs/README.md"])
def test_rows_and_documents_in_one_folder_are_refused(name, tmp_path):
    rows_in(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("Text.")
    with pytest.raises(InputError, match=rf"holds rows \(data/x.parquet\) and documents \({name}\)"):
        names(tmp_path)


def test_rows_with_a_manifest_that_is_not_ours_are_refused_without_a_wrong_reason(tmp_path):
    rows_in(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps(APP))
    with pytest.raises(InputError, match="a manifest.json that pairsmith cannot read"):
        names(tmp_path)


def test_parquet_files_elsewhere_are_of_an_unknown_kind(tmp_path):
    rows_in(tmp_path / "more")
    (tmp_path / "b.txt").write_text("Text.")
    assert names(tmp_path) == ["b.txt", "more/data/x.parquet"]
    with pytest.raises(Unreadable, match="a .parquet file"):
        list(source_documents([str(tmp_path)]))[1].read()


def linked(folder, name, target):
    try:
        (folder / name).symlink_to(target, target_is_directory=True)
    except OSError:
        pytest.skip("links cannot be made here")


def test_folders_that_are_links_are_read_once(tmp_path):
    docs, other = tmp_path / "docs", tmp_path / "other"
    for file in (docs / "z" / "a.txt", other / "b.txt", other / "sub" / "c.txt"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("Text.")
    before = hash_source(docs)
    for name, target in {"m": other, "n": other / "sub", "a": docs / "z", ".hidden": other}.items():
        linked(docs, name, target)
    linked(other, "loop", other)
    linked(other, "back", docs)
    linked(docs, "outer", tmp_path)
    assert names(docs) == ["m/b.txt", "m/sub/c.txt", "z/a.txt"]
    with_links = hash_source(docs)
    assert with_links != before
    (other / "b.txt").write_text("Another text.")
    assert hash_source(docs) != with_links


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no such pipes")
def test_a_pipe_is_named_as_one(tmp_path):
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(InputError, match=r"a\.txt: pipes cannot be read, as an input is read more than once"):
        names(tmp_path / "a.txt")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_names_of_bytes_are_escaped_and_told_apart(tmp_path):
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in (b"caf\xe9.txt", b"caf\xe8.txt", b"a.t\xe9"):
        with open(os.fsencode(folder) + b"/" + name, "wb") as file:  # noqa: PTH123 - a path cannot be bytes
            file.write(b"Text.")
    assert names(folder) == ["a.t\\xe9", "caf\\xe8.txt", "caf\\xe9.txt"]
    before = hash_source(folder)
    (folder / os.fsdecode(b"caf\xe9.txt")).rename(folder / os.fsdecode(b"caf\xea.txt"))
    assert hash_source(folder) != before
