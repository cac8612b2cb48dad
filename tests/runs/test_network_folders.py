"""Folders on a network file system: locks of other machines are not seen there, their leases are."""

import errno
import json
import os
import threading
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from pairsmith.core.errors import BusyError, FolderError, StorageError
from pairsmith.runs import journal, lease, lock
from pairsmith.runs.journal import Journal
from pairsmith.runs.lease import LEASE
from pairsmith.runs.ranks import Rank
from pairsmith.runs.status import status_lines
from pairsmith.runs.storage import write_atomic


@pytest.fixture
def out(tmp_path, monkeypatch):
    """A folder on what counts as a network file system."""
    if not (kind := lock.file_system(tmp_path)):
        pytest.skip("needs Linux's list of mounts")
    monkeypatch.setattr(lock, "NETWORK", {kind})
    yield tmp_path / "out"
    for folder in list(lock._leases):
        lock.release(tmp_path / folder)


def far(folder, count=0, **about):
    """Have a process of another machine write to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    owner = {"owner": "o", "host": "far", "boot": "b", "pid": 7, "count": count, "time": now}
    (folder / LEASE).write_text(json.dumps(owner | about))


def test_one_process_writes_and_leaves_no_lease(out, work):
    writer = work.start(out)
    assert json.loads((out / LEASE).read_text())["pid"]
    assert lock.is_held(out)
    work.commit(writer, 0)
    writer.finish(work.card)
    assert not lock.is_held(out)
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md", "data", "journal", "log.jsonl", "manifest.json", "rejects",
    ]  # fmt: skip


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_finished_folder_may_be_read_only(out, work, monkeypatch, number):
    writer = work.start(out)
    work.commit(writer, 0)
    writer.finish(work.card)
    left = out / "data" / ".pairsmith-1-a-b.tmp"
    left.touch()
    monkeypatch.setattr(lease.Lease, "_create", Mock(side_effect=OSError(number, os.strerror(number))))
    unlink = Mock(side_effect=OSError(number, os.strerror(number)))
    monkeypatch.setattr(Path, "unlink", unlink)
    again = work.start(out)
    assert again.finished
    assert again.folder().rows == 3
    assert unlink.called
    for changes in ({"fresh": True}, {"settings": {"decay": 1.0}}):
        with pytest.raises(StorageError, match=f"cannot be read: {os.strerror(number)}"):
            work.start(out, **changes)


def test_a_process_of_another_machine_keeps_this_one_out(out, work, clock):
    far(out)
    clock.each = lambda: far(out, count=clock.now)
    with pytest.raises(BusyError, match=r"another run is writing to .*out \(process 7 on far\); wait for it"):
        work.start(out)
    clock.each = lambda: None
    (out / LEASE).unlink()
    lock.release(out)
    work.start(out)  # the lock of this machine was given back, too


def test_a_process_of_another_machine_that_ends_is_waited_for_no_longer(out, work, clock):
    far(out)
    clock.each = lambda: (out / LEASE).unlink(missing_ok=True)
    work.start(out)
    assert clock.now < lease.STALE_SECONDS


def test_one_that_was_killed_there_is_taken_over(out, work, clock):
    far(out, time="2999-01-01T00:00:00+00:00")
    work.start(out)
    assert clock.now >= lease.STALE_SECONDS


def test_status_tells_that_another_machine_runs_it(out, work):
    work.start(out)
    lock.release(out)
    assert "stopped" in status_lines(out)[0]
    far(out)
    assert "running" in status_lines(out)[0]
    far(out, time="2999-01-01T00:00:00+00:00")  # else a killed run would count as running for as long
    assert "stopped" in status_lines(out)[0]


def test_ranks_that_run_on_other_machines_are_not_taken_over(out, work):
    rank = Rank(0, 2)
    writer = work.start(out / rank.name)
    work.commit(writer, 0)
    lock.release(out / rank.name)
    far(out / rank.name)
    ended = out / Rank(1, 2).name
    work.commit(work.start(ended), 1)
    lock.release(ended)
    with pytest.raises(BusyError, match="rank-0-of-2 is being written by a rank"):
        work.start(out)
    assert not lock.is_held(ended)
    assert (out / rank.name / "data/train-00000.parquet").exists()
    assert not (out / LEASE).exists()


@pytest.mark.parametrize("fresh", [False, True])
def test_a_rank_on_a_machine_with_another_clock_is_left_alone(out, work, clock, fresh):
    """Its lease seems to be old; that it is renewed shows that it runs."""
    folder = out / Rank(0, 2).name
    work.commit(work.start(folder), 0)
    lock.release(folder)
    then = "2020-01-01T00:00:00+00:00"
    far(folder, time=then)
    clock.each = lambda: far(folder, count=clock.now, time=then)
    with pytest.raises(BusyError, match="rank-0-of-2 is being written by a rank"):
        work.start(out, fresh=fresh)
    assert (folder / "data/train-00000.parquet").exists()
    clock.each = lambda: None  # without renewals it is taken over or, if fresh, removed
    assert work.start(out, fresh=fresh).done == (() if fresh else (0,))
    assert folder.exists() is not fresh


def test_a_killed_rank_of_a_machine_whose_clock_is_ahead_is_taken_over(out, work, clock):
    folder = out / Rank(0, 2).name
    work.commit(work.start(folder), 0)
    lock.release(folder)
    far(folder, time="2999-01-01T00:00:00+00:00")
    assert work.start(out).done == (0,)


def test_while_a_file_system_does_not_answer_no_lease_becomes_stale(out, work, clock, monkeypatch):
    """An owner that waited for the file system, too, renews its lease once that answers again."""
    far(out)
    looks = []

    def read(file):
        looks.append(file)
        if len(looks) == 3:
            clock.now += 600
        if len(looks) == 6:
            far(out, count=1)
        return lease_in(file)

    lease_in = lease._read
    monkeypatch.setattr(lease, "_read", read)
    with pytest.raises(BusyError, match="another run is writing to"):
        work.start(out)


def test_of_an_ended_process_only_its_own_lease_is_removed(out, work, clock, monkeypatch):
    """Another process may have removed it first, and have created its own."""

    def gone(about):
        far(out, owner="p")
        return about["owner"] == "o"

    far(out)
    monkeypatch.setattr(lease, "_gone", gone)
    clock.each = lambda: (out / LEASE).exists() and far(out, owner="p", count=clock.now)
    with pytest.raises(BusyError, match="another run is writing to"):
        work.start(out)


def test_a_run_that_lost_its_lease_stops(out, work):
    writer = work.start(out)
    work.commit(writer, 0)
    far(out)
    with pytest.raises(Exception, match="another run has taken over"):
        work.commit(writer, 1)
    lock.release(out)
    assert (out / LEASE).exists()  # it is the other's


@pytest.mark.parametrize("ends", [False, True])
def test_a_run_that_lost_its_lease_while_it_wrote_files_lists_none_of_them(out, work, monkeypatch, ends):
    writer = work.start(out)
    work.commit(writer, 0)
    manifest = (out / "manifest.json").read_bytes()

    def write(path, data):
        write_atomic(path, data)
        far(out)

    monkeypatch.setattr("pairsmith.runs.writer.write_atomic", write)
    go_on = partial(writer.finish, work.card) if ends else partial(work.commit, writer, 1)
    with pytest.raises(FolderError, match="another run has taken over"):
        go_on()
    assert list(Journal.read(out).entries) == [0]
    assert (out / "manifest.json").read_bytes() == manifest


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("earlier", [[0], []])
def test_a_run_that_stalls_before_it_adds_a_line_overwrites_no_line_of_the_next_run(
    out, work, monkeypatch, fresh, earlier
):
    writer = work.start(out)
    for shard in earlier:
        work.commit(writer, shard)
    add = Journal.add

    def add_late(journal, entries):
        """Add a line after another run took the folder over and finished the shard 2."""
        monkeypatch.setattr(Journal, "add", add)
        far(out)
        other = Journal.read(out)
        if fresh:
            other.clear()
        other.add([entry.model_copy(update={"shard": 2}) for entry in entries])
        add(journal, entries)

    monkeypatch.setattr(Journal, "add", add_late)
    work.commit(writer, 1)
    with pytest.raises(FolderError, match="another run has taken over"):
        work.commit(writer, 3)
    assert sorted(Journal.read(out).entries) == [*earlier, 1, 2]


@pytest.mark.parametrize("links", [True, False])
def test_runs_that_list_the_journal_at_the_same_instant_write_different_parts(out, work, monkeypatch, links):
    writer = work.start(out)
    work.commit(writer, 0)
    (entry,) = Journal.read(out).entries.values()
    first, second = Journal.read(out), Journal.read(out)
    listed = journal._parts(out / "journal")
    if not links:
        monkeypatch.setattr("pathlib.Path.hardlink_to", Mock(side_effect=PermissionError("no hard links")))
    with monkeypatch.context() as patch:
        patch.setattr(journal, "_parts", lambda _: listed)
        first.add([entry.model_copy(update={"shard": 1})])
        second.add([entry.model_copy(update={"shard": 2})])
    first.add([entry.model_copy(update={"shard": 3})])
    assert sorted(Journal.read(out).entries) == [0, 1, 2, 3]
    names = ["00000.jsonl", "00001.jsonl", "00002.jsonl", "run.json"]
    assert sorted(path.name for path in (out / "journal").iterdir()) == names


def test_a_lost_lease_stays_lost_even_if_its_file_is_as_before(out):
    """Another run may have written to the folder meanwhile; the lease is neither renewed nor removed."""
    folder = out.parent
    lock.acquire(folder)
    held, own = lock._leases[str(folder.resolve())], (folder / LEASE).read_bytes()
    far(folder)
    assert not held.holds()
    (folder / LEASE).write_bytes(own)
    assert not held.holds()
    held._renew()
    assert (folder / LEASE).read_bytes() == own
    lock.release(folder)
    assert (folder / LEASE).read_bytes() == own


def test_a_renewal_that_finds_another_owner_loses_the_lease(out):
    folder = out.parent
    lock.acquire(folder)
    held, own = lock._leases[str(folder.resolve())], (folder / LEASE).read_bytes()
    far(folder)
    others = (folder / LEASE).read_bytes()
    held._renew()
    assert (folder / LEASE).read_bytes() == others
    (folder / LEASE).write_bytes(own)
    with pytest.raises(FolderError, match="another run has taken over"):
        lock.check(folder)


def test_a_process_that_ends_gives_its_lease_back(out, monkeypatch):
    at_end = []
    monkeypatch.setattr(lease.atexit, "register", at_end.append)
    monkeypatch.setattr(lease.atexit, "unregister", lambda _: at_end.clear())
    lock.acquire(out.parent)
    (give_back,) = at_end
    give_back()
    assert not (out.parent / LEASE).exists()
    assert at_end == []


def test_a_lease_that_is_being_renewed_is_not_lost(out, monkeypatch):
    """SFTP and other stores show a file while it is written; the thread that renews stops in the middle."""
    lock.acquire(out.parent)
    held = lock._leases[str(out.parent.resolve())]
    write, half = lease.Lease._write, threading.Event()

    def write_slowly(renewed):
        (out.parent / LEASE).write_bytes(b"")
        half.set()
        threading.Event().wait(0.1)
        write(renewed)

    monkeypatch.setattr(lease.Lease, "_write", write_slowly)
    renewing = threading.Thread(target=held._renew)
    renewing.start()
    assert half.wait(30)
    lock.check(out.parent)
    renewing.join()


def test_of_two_that_create_a_lease_one_gets_it(out):
    out.mkdir()
    first, second = lease.Lease(out), lease.Lease(out)
    first._create()
    second._create()
    assert json.loads((out / LEASE).read_text())["owner"] == first._owner
    assert [path.name for path in out.iterdir()] == [LEASE]


def test_file_systems_without_hard_links(out, work, monkeypatch):
    def refuse(*_):
        raise PermissionError("no hard links")

    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    monkeypatch.setattr(lease, "_SETTLE_SECONDS", 0.0)
    work.start(out)
    assert lock.is_held(out)


def test_without_hard_links_a_lease_of_another_process_is_not_overwritten(out, monkeypatch):
    def refuse(*_):
        raise PermissionError("no hard links")

    monkeypatch.setattr("pathlib.Path.hardlink_to", refuse)
    monkeypatch.setattr(lease, "_SETTLE_SECONDS", 0.0)
    out.mkdir()
    first, second = lease.Lease(out), lease.Lease(out)
    first._create()
    second._create()
    assert json.loads((out / LEASE).read_text())["owner"] == first._owner


@pytest.mark.parametrize(
    ("about", "runs", "gone"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"host": "far"}, False, False),
        ({"boot": "b"}, False, False),  # another machine, or container, of the same name
        ({"pid": "none"}, False, False),
    ],
)
def test_only_of_this_machine_an_ended_process_is_known_at_once(monkeypatch, about, runs, gone):
    def kill(number, signal):
        assert (number, signal) == (7, 0)
        if not runs:
            raise ProcessLookupError

    monkeypatch.setattr(lease.os, "kill", kill)
    monkeypatch.setattr(lease, "_boot", lambda: "this boot")
    assert lease._gone({**lease._this_process(), "pid": 7, "owner": "o", **about}) is gone


def test_file_systems_without_locks(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    lock.acquire(tmp_path)
    assert lock.is_held(tmp_path)
    lock.release(tmp_path)
    assert not lock.is_held(tmp_path)


def test_file_systems(tmp_path, monkeypatch):
    device = tmp_path.stat().st_dev
    number = f"{lock.os.major(device)}:{lock.os.minor(device)}"
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(lock, "_MOUNTS", mounts)
    for kind, network in (
        ("nfs4", True),
        ("lustre", True),
        ("fuse.sshfs", True),
        ("fuse", True),
        ("ext4", False),
    ):
        mounts.write_text(
            "22 27 0:0 / /proc rw,relatime - proc proc rw\n"
            f"98 25 {number} / /shared rw shared:3 - {kind} server:/export rw\n"
        )
        assert lock.file_system(tmp_path) == kind
        assert lock.on_network(tmp_path) is network
    mounts.unlink()
    assert not lock.on_network(tmp_path)
    assert not lock.on_network(tmp_path / "missing")
