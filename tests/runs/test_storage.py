import errno
import json
import os
import shutil
import sys
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.folders import write_folder

from pairsmith.core.errors import StorageError
from pairsmith.core.paths import inside
from pairsmith.core.progress import Silent
from pairsmith.data.schemas import SCORED_PAIR, ScoredPair, from_table, to_table
from pairsmith.data.sources import open_source
from pairsmith.runs import FolderWriter, Run, storage, write_json
from pairsmith.runs.identity import Identity
from pairsmith.runs.log import log, recent_events
from pairsmith.runs.storage import make_folder, write_atomic

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ROWS = st.lists(st.builds(ScoredPair, TEXT, TEXT, TEXT, st.floats(allow_nan=False)))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # SHA-256 of "abc", FIPS 180-2


def shuffled(value, draw):
    if isinstance(value, dict):
        return {key: shuffled(value[key], draw) for key in draw(st.permutations(list(value)))}
    return [shuffled(inner, draw) for inner in value] if isinstance(value, list) else value


class TestParquet:
    @given(ROWS)
    def test_rows_survive_and_the_bytes_depend_on_them_only(self, rows):
        table = to_table(rows, SCORED_PAIR)
        data = storage.encode_table(table)
        read = pq.read_table(pa.BufferReader(data))
        assert read.schema.equals(SCORED_PAIR, check_metadata=True)
        assert from_table(read, ScoredPair) == rows
        pieces = [table.slice(row, 1) for row in range(len(rows))]
        assert not rows or storage.encode_table(pa.concat_tables(pieces)) == data

    def test_no_rows_no_row_group(self):
        file = pq.ParquetFile(pa.BufferReader(storage.encode_table(SCORED_PAIR.empty_table())))
        assert file.num_row_groups == 0
        assert file.schema_arrow.equals(SCORED_PAIR)

    def test_many_rows_make_groups_of_a_fixed_size(self):
        table = pa.table({"text": ["a"] * 100_001})
        metadata = pq.ParquetFile(pa.BufferReader(storage.encode_table(table))).metadata
        assert [metadata.row_group(group).num_rows for group in range(2)] == [100_000, 1]
        assert metadata.row_group(0).column(0).compression == "ZSTD"


class TestFingerprint:
    @given(st.data(), st.dictionaries(TEXT, JSON), st.dictionaries(TEXT, TEXT))
    def test_the_order_of_keys_has_no_part_in_it(self, data, settings, names):
        one = Identity.of("step", settings, names, names)
        other = Identity.of("step", shuffled(settings, data.draw), shuffled(names, data.draw), names)
        assert one.fingerprint == other.fingerprint

    def test_each_part_counts(self):
        parts = [("s", {}, {}, {}), ("t", {}, {}, {}), ("s", {"a": 1}, {}, {})]
        parts += [("s", {}, {"a": "1"}, {}), ("s", {}, {}, {"a": "1"}), ("s", {"a": 1.0}, {}, {})]
        assert len({Identity.of(*part).fingerprint for part in parts}) == len(parts)

    def test_it_stays_the_same_from_version_to_version(self):
        """Folders written by an earlier release have to be recognised: change FORMAT to change this."""
        text = '{"format":2,"inputs":{"ä":"1"},"models":{},"settings":{"decay":100.0},"step":"generate"}'
        identity = Identity.of("generate", {"decay": 100.0}, {"ä": "1"}, {})
        assert identity.fingerprint == storage.hash_bytes(text.encode())

    def test_names_that_are_not_utf_8_differ(self):
        names = [os.fsdecode(name) for name in (b"\xff", b"\xfe")]
        assert len({Identity.of("s", {"file": name}, {}, {}).fingerprint for name in names}) == 2

    def test_a_tuple_is_a_list(self):
        one, other = Identity.of("s", {"a": (1, 2)}, {}, {}), Identity.of("s", {"a": [1, 2]}, {}, {})
        assert one == other

    def test_what_json_cannot_hold_is_refused(self):
        with pytest.raises(ValueError, match="Out of range float"):
            Identity.of("s", {"a": float("nan")}, {}, {})


class TestAtomic:
    def test_it_makes_folders_and_replaces(self, tmp_path):
        path = tmp_path / "a" / "b.txt"
        write_atomic(path, b"one")
        write_atomic(path, b"two")
        assert path.read_bytes() == b"two"
        assert list(path.parent.iterdir()) == [path]

    def test_processes_of_two_machines_with_one_process_id_write_the_same_file(self, tmp_path, monkeypatch):
        path, write = tmp_path / "a", storage._write_synced

        def slowly(temporary, data):
            write(temporary, data)
            with monkeypatch.context() as patch:
                patch.setattr(storage, "_write_synced", write)
                patch.setattr(storage, "_PROCESS", "another")
                write_atomic(path, data)

        monkeypatch.setattr(storage, "_write_synced", slowly)
        write_atomic(path, b"one")
        assert path.read_bytes() == b"one"
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize("kind", [OSError, KeyboardInterrupt])
    def test_a_failure_keeps_the_old_content_and_leaves_nothing(self, tmp_path, monkeypatch, kind):
        path = tmp_path / "b.txt"
        write_atomic(path, b"one")

        def fail(handle):
            raise kind

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError if kind is OSError else kind):
            write_atomic(path, b"two")
        assert path.read_bytes() == b"one"
        assert list(tmp_path.iterdir()) == [path]

    def test_a_folder_that_cannot_be_made_was_not_moved(self, tmp_path, monkeypatch):
        def mkdir(path, **_):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

        monkeypatch.setattr(Path, "mkdir", mkdir)
        with pytest.raises(StorageError, match=r"out: No such file or directory; give a folder that you may"):
            make_folder(tmp_path / "out")

    def test_folders_that_cannot_be_synced_are_no_failure(self, tmp_path, monkeypatch):
        real = os.fsync

        def fsync(handle):
            if Path(f"/proc/self/fd/{handle}").is_dir():
                raise OSError(errno.EINVAL, "Invalid argument")
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)
        write_atomic(tmp_path / "a", b"one")
        assert (tmp_path / "a").read_bytes() == b"one"

    def test_the_message_without_a_disk_to_ask(self, tmp_path, monkeypatch):
        def gone(folder):
            raise OSError

        monkeypatch.setattr(shutil, "disk_usage", gone)
        (tmp_path / "a").mkdir()
        with pytest.raises(StorageError, match=r"cannot write .*a: Is a directory \(free space unknown\)"):
            write_atomic(tmp_path / "a", b"")

    def test_a_scratch_file_that_windows_does_not_remove_goes_with_the_next_run(self, tmp_path, monkeypatch):
        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", refused := Mock(side_effect=PermissionError(13, "in use")))
            with storage.scratch_file(tmp_path, "x") as file:
                file.write_bytes(b"")
            assert refused.called
        assert file.exists()
        storage.clear_temporary(tmp_path)
        assert not file.exists()

    def test_a_name_that_is_not_utf_8_is_escaped(self, tmp_path):
        write_json(tmp_path / "a.json", {"data": (name := os.fsdecode(b"\xff\xc3\xa4.tsv"))})
        assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "data": "\\udcffä.tsv"\n}\n'
        assert json.loads((tmp_path / "a.json").read_bytes()) == {"data": name}

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
    def test_a_folder_whose_name_is_not_utf_8(self, tmp_path):
        out = tmp_path / os.fsdecode(b"caf\xe9\n")
        rows = to_table([ScoredPair("1", "a", "b", 0.5)], SCORED_PAIR)
        folder = write_folder(out, {"train": rows}, settings={"name": out.name})
        assert folder.table().num_rows == 1
        with storage.scratch_file(out, "rows") as file:
            mapped = storage.mapped_table(folder.batches("train"), folder.schema(), file)
            assert mapped.to_pylist() == rows.to_pylist()
        assert [row["sentence1"] for _, row in open_source(out).rows()] == ["a"]
        assert folder.manifest.settings == {"name": out.name}  # read from the manifest
        (out / "manifest.json").unlink()  # and from its copy
        identity = Identity.of("generate", {"name": out.name}, {}, {})
        assert FolderWriter.start(Run(out, Silent()), identity, SCORED_PAIR).done == (0,)
        log(out, "damaged", text=f"{out} has changed")
        assert list(recent_events(out))[-1]["text"] == f"{out} has changed"

    @pytest.mark.skipif(os.name == "nt", reason="Windows syncs no folders")
    def test_new_folders_are_synced(self, tmp_path, monkeypatch):
        synced = []
        monkeypatch.setattr(storage, "_sync_folder", synced.append)
        write_atomic(tmp_path / "a" / "b" / "c.txt", b"")
        assert synced == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
        write_atomic(tmp_path / "a" / "b" / "d.txt", b"")
        assert synced[3:] == [tmp_path / "a" / "b"]

    def test_json_is_readable_and_ends_in_a_newline(self, tmp_path):
        write_json(tmp_path / "a.json", {"b": "ä", "a": 1})
        assert (tmp_path / "a.json").read_text(encoding="utf-8") == '{\n  "b": "ä",\n  "a": 1\n}\n'


def test_a_folder_whose_name_is_too_long_is_a_storage_error():
    with pytest.raises(StorageError, match=r"xxx cannot be read: File name too long$"):
        inside(Path("x" * 300))


def test_mapped_rows_are_not_held_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "_TOGETHER", 2**20)
    rows = [ScoredPair(f"{n:06}", "x" * 1_000, "", n / 2_000) for n in range(2_000)]
    parts = (to_table(rows[start : start + 100], SCORED_PAIR) for start in range(0, 2_000, 100))
    before = pa.total_allocated_bytes()
    table = storage.mapped_table(parts, SCORED_PAIR, tmp_path / "rows")
    assert table.nbytes > 2_000_000
    assert pa.total_allocated_bytes() - before < 2**17
    assert from_table(table, ScoredPair) == rows
    assert len(table.to_batches()) == 2  # rows of a megabyte or little more, and the rest
    empty = storage.mapped_table([], SCORED_PAIR, tmp_path / "none")
    assert (empty.num_rows, empty.schema) == (0, SCORED_PAIR)
