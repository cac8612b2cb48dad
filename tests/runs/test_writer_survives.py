"""A full disk, a kill at any moment, and a second writer."""

import errno
import os
import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest

from pairsmith.core.errors import FolderError, StorageError
from pairsmith.runs import lock, storage

pytestmark = pytest.mark.slow


class TestNoSpace:
    @pytest.mark.parametrize("fails_at", [0, 1, 2])
    def test_done_shards_are_kept_and_the_run_goes_on(self, work, out, monkeypatch, fails_at):
        """The disk fills up at each of the three files of shard 1: two splits and rejects."""
        writer = work.start(out)
        work.commit(writer, 0)
        real, calls = storage._write_synced, []

        def full(path, data):
            calls.append(path)
            if len(calls) == fails_at + 1:
                path.write_bytes(data[:10])
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            real(path, data)

        monkeypatch.setattr(storage, "_write_synced", full)
        with pytest.raises(StorageError) as caught:
            work.commit(writer, 1)
        assert "no space left on the device (" in str(caught.value)
        assert " MB free); finished work is kept: " in str(caught.value)
        assert "\n" not in str(caught.value)
        assert not list(out.rglob("*.tmp"))
        monkeypatch.undo()
        writer = work.start(out)
        assert writer.done == (0,)
        assert not list(out.rglob("*00001.parquet"))
        work.commit(writer, 0, 1)
        assert writer.finish(work.card).rows == 6

    def test_a_line_of_the_journal_that_does_not_fit_leaves_no_trace(self, work, out, monkeypatch):
        writer = work.start(out)
        work.commit(writer, 0)
        before = (out / "journal/00000.jsonl").read_bytes()
        real = storage._write_synced

        def full(path, data):
            if path.name.endswith(".jsonl.tmp"):
                path.write_bytes(data[:10])
                raise OSError(errno.ENOSPC, "No space left on device")
            real(path, data)

        monkeypatch.setattr(storage, "_write_synced", full)
        with pytest.raises(StorageError, match=r"00000\.jsonl: no space"):
            work.commit(writer, 1)
        monkeypatch.undo()
        assert (out / "journal/00000.jsonl").read_bytes() == before
        writer = work.start(out)
        assert writer.done == (0,)
        work.commit(writer, 0, 1)
        assert writer.finish(work.card).rows == 6

    @pytest.mark.parametrize(
        ("number", "words"),
        [
            (errno.EROFS, "the file system is read-only"),
            (errno.EACCES, "permission denied"),
            (errno.EIO, "output error"),
        ],
    )
    def test_other_reasons(self, work, out, monkeypatch, number, words):
        def fail(path, data):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(storage, "_write_synced", fail)
        with pytest.raises(StorageError, match=rf"cannot write .*manifest\.json: .*{words}"):
            work.start(out)

    def test_a_file_that_cannot_be_read_is_named_and_nothing_is_made_again(self, work, out, monkeypatch):
        work.commit(work.start(out), 0)
        before = work.contents(out)

        def denied(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        monkeypatch.setattr("pairsmith.runs.existing.hash_file", denied)
        with pytest.raises(
            StorageError, match=r"data/train-00000\.parquet cannot be read: Permission denied"
        ):
            work.start(out)
        assert work.contents(out) == before

    def test_the_card_can_be_written_later(self, work, out, monkeypatch):
        writer = work.start(out)
        work.commit(writer, 0, 1)
        monkeypatch.setattr(
            storage, "_write_synced", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, ""))
        )
        with pytest.raises(StorageError, match=r"README\.md"):
            writer.finish(work.card)
        monkeypatch.undo()
        assert writer.finish(work.card).rows == 6


class TestKilled:
    """A run is killed for real at every file operation, and continued."""

    SCRIPT = textwrap.dedent(
        """
        import os, signal, sys
        sys.path.insert(0, sys.argv[1])
        import conftest as t
        from pathlib import Path
        from pairsmith.runs import storage

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        def at(count, real):
            calls = []
            def wrapped(*arguments):
                calls.append(1)
                if len(calls) == count:
                    if real is not sync:
                        with arguments[0].open("ab") as file:
                            file.write(arguments[1][:50])
                    die()
                return real(*arguments)
            return wrapped

        write, sync = storage._write_synced, storage._sync_folder
        where, count, out = sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
        if where == "write":
            storage._write_synced = at(count, write)
        else:
            storage._sync_folder = at(count, sync)
        writer = t.start(out)
        t.commit(writer, 0, 1)
        writer.finish(t.CARD)
        """
    )

    @pytest.mark.parametrize(
        ("where", "count", "kept"),
        [
            ("write", 1, 0),  # manifest, journal/run.json, then three files and a line for each shard
            pytest.param("write", 2, 0, marks=pytest.mark.long),
            ("write", 5, 0),
            pytest.param("write", 6, 0, marks=pytest.mark.long),
            ("sync", 10, 1),  # after the line; four of the ten syncs are of new folders
            ("write", 7, 1),
            ("write", 10, 1),
            ("write", 11, 2),  # the card
            pytest.param("write", 12, 2, marks=pytest.mark.long),
        ],
    )
    def test_it_continues_to_the_same_bytes(self, work, done, tmp_path, where, count, kept):
        out = tmp_path / "killed"
        command = [sys.executable, "-c", self.SCRIPT, str(Path(__file__).parent), where, str(count), str(out)]
        killed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        writer = work.start(out)
        assert len(writer.done) == kept
        work.commit(writer, 0, 1)
        writer.finish(work.card)
        assert work.contents(out) == work.contents(done)


class TestLock:
    @pytest.fixture
    def fcntl(self):
        return pytest.importorskip("fcntl")

    def test_a_second_process_is_refused(self, work, out, fcntl):
        out.mkdir(parents=True)
        other = os.open(out, os.O_RDONLY)
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(
            FolderError, match=r"another run is writing to .*; wait for it, or give another --out"
        ):
            work.start(out)
        os.close(other)
        work.commit(work.start(out), 0)

    @pytest.mark.parametrize("shards", [(0,), (0, 1)])
    def test_a_folder_that_is_moved_while_it_is_written(self, work, out, fcntl, shards):
        """Else the rest would be written to a new folder of the old name, which would count as complete."""
        writer = work.start(out)
        work.commit(writer, *shards)
        moved = out.rename(out.parent / "moved")
        go_on = partial(work.commit, writer, 1) if shards == (0,) else partial(writer.finish, work.card)
        with pytest.raises(
            FolderError, match=r"was moved or removed .* with the new place of the --out folder"
        ):
            go_on()
        assert not out.exists()
        lock.release(out)
        assert work.start(moved).done == shards

    @pytest.mark.parametrize("number", [errno.ENOTDIR, errno.ESTALE, errno.EACCES])
    def test_a_folder_that_cannot_be_looked_at_any_more(self, work, out, fcntl, monkeypatch, number):
        """ESTALE: a server of files tells so that another machine removed the folder."""
        work.start(out)

        def fail(*_):
            raise OSError(number, os.strerror(number))

        words = "cannot be read: Permission denied" if number == errno.EACCES else "was moved or removed"
        with monkeypatch.context() as patch:
            patch.setattr("os.path.samestat", fail)
            with pytest.raises(StorageError if number == errno.EACCES else FolderError, match=words):
                lock.check(out)
        lock.check(out)

    def is_locked(self, out, fcntl):
        other = os.open(out, os.O_RDONLY)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(other)
        return False

    def test_it_lasts_until_the_folder_is_finished(self, work, out, fcntl):
        writer = work.start(out)
        work.start(out)  # the same process may start again
        assert self.is_locked(out, fcntl)
        work.commit(writer, 0)
        writer.finish(work.card)
        assert not self.is_locked(out, fcntl)
        work.start(out)
        assert not self.is_locked(out, fcntl)

    def test_a_folder_made_anew_is_locked_anew(self, work, out, fcntl):
        work.start(out)
        moved = out.rename(out.with_name("moved"))
        work.start(out)
        assert self.is_locked(out, fcntl)
        assert not self.is_locked(moved, fcntl)  # another process may continue there

    def test_file_systems_without_locks(self, work, out, fcntl, monkeypatch):
        def no_locks(handle, how):
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "flock", no_locks)
        work.commit(work.start(out), 0)
        assert out.resolve() not in lock._held


class TestNoFolder:
    """An output folder that cannot be created holds no finished work, and the message promises none."""

    def test_below_a_file(self, work, tmp_path):
        (tmp_path / "rows.csv").write_text("text\n")
        with pytest.raises(StorageError) as caught:
            work.start(tmp_path / "rows.csv" / "deep" / "out")
        assert str(caught.value) == (
            f"cannot write {tmp_path}/rows.csv/deep/out: {tmp_path}/rows.csv is a file, so no folder can be "
            "there; give another folder"
        )

    @pytest.mark.parametrize(
        ("number", "told"),
        [
            (errno.EACCES, "permission denied; give a folder that you may write to"),
            (errno.EROFS, "the file system is read-only; give a folder that you may write to"),
            (errno.ENOSPC, r"no space left on the device \(.* MB free\); make room, or give another folder"),
        ],
    )
    def test_where_none_may_be_created(self, work, tmp_path, monkeypatch, number, told):
        def refused(path, *_, **__):
            raise OSError(number, os.strerror(number), str(path))

        monkeypatch.setattr(Path, "mkdir", refused)
        with pytest.raises(StorageError, match=f"cannot write .*/new: {told}$"):
            work.start(tmp_path / "new")

    def test_above_which_a_folder_may_not_be_read(self, work, tmp_path, monkeypatch):
        def refused(path, *_, **__):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

        monkeypatch.setattr(Path, "is_file", refused)
        with pytest.raises(StorageError, match="new cannot be read: Permission denied$"):
            work.start(tmp_path / "new")
