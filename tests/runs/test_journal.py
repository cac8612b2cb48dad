"""The journal's parts: what happens if one cannot be created, or only half of it was written."""

import pytest

from pairsmith.core.errors import StorageError
from pairsmith.runs import journal as journals
from pairsmith.runs.journal import Journal
from pairsmith.runs.manifest import ShardEntry

ENTRY = ShardEntry(shard=3, files=())


def parts(folder):
    return sorted(path.name for path in (folder / "journal").glob("*.jsonl"))


@pytest.fixture
def half_written(monkeypatch):
    """Creating a part writes half of its data and fails, as on a full disk."""

    def write_half(path, data):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data[: len(data) // 2])
        raise OSError("No space left on device")

    monkeypatch.setattr(journals, "create_atomic", write_half)


@pytest.mark.usefixtures("half_written")
def test_a_part_of_which_half_was_written_is_written_again(tmp_path):
    Journal(tmp_path).add([ENTRY])
    read = Journal.read(tmp_path)
    assert (read.entries, read.bad, parts(tmp_path)) == ({3: ENTRY}, 0, ["00000.jsonl"])


@pytest.mark.usefixtures("half_written")
def test_a_fault_that_lasts_is_told(tmp_path, monkeypatch):
    def refuse(path, data):
        raise StorageError(f"cannot write {path}")

    monkeypatch.setattr(journals, "write_atomic", refuse)
    with pytest.raises(StorageError, match=r"cannot write .*00000\.jsonl"):
        Journal(tmp_path).add([ENTRY])


def test_the_part_of_another_run_is_left_alone(tmp_path):
    first, second = Journal.read(tmp_path), Journal.read(tmp_path)  # neither sees a part of the other
    first.add([ENTRY])
    second.add([ShardEntry(shard=4, files=())])
    assert sorted(Journal.read(tmp_path).entries) == [3, 4]
    assert parts(tmp_path) == ["00000.jsonl", "00001.jsonl"]
