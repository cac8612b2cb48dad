"""Scratch files of runs that write into a store."""

import os
import tempfile
from functools import partial

import pytest

from pairsmith.core.paths import place
from pairsmith.runs import scratch_folder as module
from pairsmith.runs.scratch_folder import scratch_folder
from pairsmith.runs.storage import scratch_file

fcntl = pytest.importorskip("fcntl")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The folder in which temporary files are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module.socket, "gethostname", lambda: "here")
    scratch_folder.cache_clear()
    yield tmp_path
    scratch_folder.cache_clear()


def test_files_of_killed_processes_are_removed_and_those_of_others_stay(temporary):
    for name in ("here-killed", "here-running", "there-unknown"):
        (temporary / f"pairsmith-scratch-{name}" / "sub").mkdir(parents=True)
        (temporary / f"pairsmith-scratch-{name}" / "x").touch()
    handle = os.open(temporary / "pairsmith-scratch-here-running", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with scratch_file(place("memory://bucket/out"), "rows") as file:
        file.touch()
        own = file.parent
        others = {path.name for path in temporary.iterdir() if path != own}
        assert others == {"pairsmith-scratch-here-running", "pairsmith-scratch-there-unknown"}
        module._remove_unless_locked(own)  # as another process does it
        assert file.exists()
    os.close(handle)
    assert list(own.iterdir()) == []


def test_a_folder_that_was_removed_before_it_was_locked_is_made_again(temporary, monkeypatch):
    made, make = [], tempfile.mkdtemp

    def removed_once(prefix):
        made.append(make(prefix=prefix))
        if len(made) == 1:
            monkeypatch.setattr(module.fcntl, "flock", lambda *_: os.rmdir(made[0]))  # noqa: PTH106
        else:
            monkeypatch.undo()
        return made[-1]

    monkeypatch.setattr(module.tempfile, "mkdtemp", removed_once)
    assert str(scratch_folder()) == made[1]


def test_a_folder_that_was_removed_before_it_was_opened_is_made_again(temporary, monkeypatch):
    make = tempfile.mkdtemp

    def removed_at_once(prefix):
        folder = make(prefix=prefix)
        os.rmdir(folder)  # noqa: PTH106
        monkeypatch.undo()
        return folder

    monkeypatch.setattr(module.tempfile, "mkdtemp", removed_at_once)
    assert scratch_folder().is_dir()


def test_only_the_process_that_made_the_folder_removes_it_when_it_ends(temporary, monkeypatch):
    at_exit = []
    monkeypatch.setattr(module.atexit, "register", lambda *call: at_exit.append(partial(*call)))
    folder = scratch_folder()
    with monkeypatch.context() as forked:
        forked.setattr(module.os, "getpid", lambda: -1)
        at_exit[0]()
    assert folder.is_dir()
    at_exit[0]()
    assert not folder.exists()
