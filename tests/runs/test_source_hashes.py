"""Hashes of sources, and sources that change while they are read."""

import errno
import os
import sys
from functools import partial
from types import SimpleNamespace

import pyarrow as pa
import pytest

from pairsmith.core.errors import InputError, OtherWorkError
from pairsmith.core.progress import Silent
from pairsmith.data.files.folders import documents_below
from pairsmith.data.readers import read_texts
from pairsmith.data.schemas import REJECT, text_schema
from pairsmith.runs import Card, FolderWriter, Run, hash_file, hash_source, source_hashes, storage
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import Shards, commit_each, equal_shards, record_shards
from pairsmith.runs.source_hashes import refuse_changed_sources

TEXT = text_schema("text")
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # SHA-256 of "abc", FIPS 180-2


class TestHashes:
    def test_a_file(self, tmp_path):
        (tmp_path / "a").write_bytes(b"abc")
        assert hash_file(tmp_path / "a") == hash_source(str(tmp_path / "a")) == ABC

    def test_a_folder_by_names_and_contents(self, tmp_path):
        (tmp_path / "m" / "sub").mkdir(parents=True)
        (tmp_path / "m" / "sub" / "a").write_bytes(b"abc")
        first = hash_source(tmp_path / "m")
        assert first == storage.hash_bytes(f"sub/a\t{ABC}\n".encode())
        (tmp_path / "m" / ".cache").write_text("x")
        assert hash_source(tmp_path / "m") == first
        (tmp_path / "m" / "b").write_text("x")
        assert hash_source(tmp_path / "m") != first

    @pytest.mark.parametrize(
        "left", [".DS_Store", "~$letter.txt", ".~lock.letter.txt#", "Thumbs.db", "a/desktop.ini", "~$a/x.txt"]
    )
    def test_a_folder_without_what_programs_leave_in_it(self, left, tmp_path):
        (tmp_path / "letter.txt").write_text("Dear Ann,")
        before = hash_source(tmp_path)
        (tmp_path / left).parent.mkdir(exist_ok=True)
        (tmp_path / left).write_bytes(b"\0\1")
        assert hash_source(tmp_path) == before
        assert list(documents_below(tmp_path, (".txt",))) == ["letter.txt"]

    def test_a_dataset_folder_by_its_rows(self, tmp_path):
        (tmp_path / "data").mkdir()
        (tmp_path / "manifest.json").write_text('{"complete": true, "created": "today"}')
        (tmp_path / "data" / "train-00000.parquet").write_bytes(b"abc")
        first = hash_source(tmp_path)
        (tmp_path / "manifest.json").write_text('{"complete": true, "created": "tomorrow"}')
        (tmp_path / "README.md").write_text("x")
        assert hash_source(tmp_path) == first
        (tmp_path / "manifest.json").write_text('{"complete": false}')
        with pytest.raises(InputError, match="is unfinished"):
            hash_source(tmp_path)

    def test_a_hub_data_set_by_its_rows(self, monkeypatch):
        rows = [{"body": "a", "n": 1}]
        stand_in = SimpleNamespace(load_dataset=lambda name, *, split, streaming: rows)
        monkeypatch.setitem(sys.modules, "datasets", stand_in)
        first = hash_source("org/name")
        assert first == storage.hash_bytes(b'{"body": "a", "n": 1}\n')
        rows.append({"body": "b", "n": 2})
        assert hash_source("org/name") != first

    def test_what_is_not_there_or_cannot_be_read(self, tmp_path, monkeypatch):
        with pytest.raises(InputError, match=r"a\.txt does not exist"):
            hash_source(tmp_path / "a.txt")
        (tmp_path / "a.txt").write_text("")

        def denied(path):
            raise PermissionError(errno.EACCES, "Permission denied")

        monkeypatch.setattr(source_hashes, "hash_file", denied)
        with pytest.raises(InputError, match=r"a\.txt cannot be read: Permission denied"):
            hash_source(tmp_path / "a.txt")
        with pytest.raises(InputError, match=r"a\.txt cannot be read: Permission denied"):
            hash_source(tmp_path)


class TestChanges:
    @pytest.fixture
    def source(self, tmp_path):
        path = tmp_path / "in.txt"
        path.write_text("a\nb\nc\nd\n")
        return path

    def commit(self, source, out, before_shard=lambda number: None):
        """Run a step with a shard for each line of ``source``."""

        def load(worker):
            def work(shard, advance):
                before_shard(shard.number)
                texts = [record.text for record in shard.records]
                return pa.table([texts], schema=TEXT), REJECT.empty_table()

            return work

        identity = Identity.of("tag", {}, {"data 1": hash_source(str(source))})
        writer = FolderWriter.start(Run(out, Silent()), identity, TEXT, planned=4)
        shards = Shards(partial(record_shards, partial(read_texts, source), 1), equal_shards(4, 1), "texts")
        commit_each(writer, shards, load, ExecutorChoice("local", 1, None), title="tag")
        return writer.finish(Card("Texts", "Texts.", columns={"text": "a text"}))

    def test_no_shard_has_rows_of_the_new_content(self, source, tmp_path):
        content, run = source.read_text(), partial(self.commit, source, tmp_path / "out")
        with pytest.raises(InputError, match=r"in\.txt has changed while it was read; finished work is kept"):
            run(lambda number: source.write_text("A\nB\nC\nD\n") if number == 2 else None)
        with pytest.raises(OtherWorkError, match=r"input data 1 \(.*in\.txt\) is another, or has changed"):
            run()
        source.write_text(content)
        later = []
        assert run(later.append).table()["text"].to_pylist() == ["a", "b", "c", "d"]
        assert later == [2, 3]

    def test_a_new_time_or_a_removed_file_is_no_change_of_what_was_read(self, source, tmp_path):
        self.commit(source, tmp_path / "out", lambda number: os.utime(source, ns=(number, number)))
        removed = self.commit(source, tmp_path / "other", lambda number: source.unlink(missing_ok=True))
        assert removed.rows == 4

    def test_a_folder_of_many_files_is_checked_at_the_end_when_rows_may_be_of_either_content(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(source_hashes, "MOST_FILES", 2)
        for number in range(3):
            (tmp_path / f"{number}.md").write_text("Text.")
        digest = hash_source(tmp_path)
        (tmp_path / "3.md").write_text("Text.")
        refuse_changed_sources([digest], few_files=True)
        message = (
            r"has changed while it was read, and rows may be of its new content; start over with another"
        )
        with pytest.raises(InputError, match=message):
            refuse_changed_sources([digest])
