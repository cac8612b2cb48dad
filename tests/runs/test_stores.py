"""Run folders in stores: an S3 server of this process, and fsspec's store in memory."""

import json
import multiprocessing
import os
import signal
import socket
import threading

import pytest

from pairsmith.cli.recipes import load_recipe
from pairsmith.cli.running import run_recipe
from pairsmith.core.errors import FolderError, MissingExtra, SettingsError, StorageError
from pairsmith.core.paths import local_copy, place
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.readers import read_texts
from pairsmith.runs import DatasetFolder, Run, hash_source, journal, lease, lock
from pairsmith.runs.journal import Journal
from pairsmith.runs.lease import LEASE, Lease
from pairsmith.runs.log import recent_events
from pairsmith.runs.status import status_lines

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

from tests.runs.buckets import connected, serving  # noqa: E402 - which imports both

# The S3 client and the server leave sockets to the garbage collector.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning",
        "ignore::DeprecationWarning",
        "ignore::pytest.PytestUnraisableExceptionWarning",
    ),
]


@pytest.fixture(scope="module")
def server():
    with serving() as address:
        yield address


@pytest.fixture
def s3(server, monkeypatch):
    """The URL of a new bucket."""
    with connected(server, monkeypatch) as files:
        name = f"bucket-{os.urandom(4).hex()}"
        files.mkdir(name)
        yield f"s3://{name}"


@pytest.fixture(params=["s3", pytest.param("memory", marks=pytest.mark.long)])
def store(request):
    if request.param == "s3":
        return place(request.getfixturevalue("s3")) / "deep" / "out"
    return place(f"memory://{os.urandom(4).hex()}/out")


def contents(out):
    return {
        path.as_posix().partition("/out/")[2]: path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.suffix == ".parquet"
    }


@pytest.fixture
def expected(work, done):
    return {name: data for name, data in work.contents(done).items() if name.endswith(".parquet")}


class TestFolder:
    def test_it_is_written_continued_and_read(self, store, work, expected):
        work.commit(work.start(store), 0)
        writer = work.start(store)
        assert writer.done == (0,)
        assert status_lines(store)[0].startswith(f"{store}: generate, running · 1 shard, 3 rows")
        work.commit(writer, 0, 1)
        folder = writer.finish(work.card)
        assert not (store / LEASE).exists()
        assert contents(store) == expected
        assert DatasetFolder.open(str(store)).table("train").num_rows == 4
        assert folder.rejects().num_rows == 2
        assert work.start(store).finished
        assert status_lines(store)[0] == f"{store}: generate, finished · 2 shards, 6 rows"
        assert [event["event"] for event in recent_events(store)][-1] == "finish"

    def test_it_is_an_input_like_a_folder_on_the_disk(self, store, work, done):
        writer = work.start(store)
        work.commit(writer, 0, 1)
        writer.finish(work.card)
        texts = [record.text for record in read_texts(str(store))]
        assert texts == [record.text for record in read_texts(done)]
        assert hash_source(str(store)) == hash_source(done)

    @pytest.mark.parametrize(
        ("name", "left", "kept"),
        [
            ("data/train-00001.parquet", 0, (0,)),
            pytest.param("data/train-00001.parquet", 50, (0,), marks=pytest.mark.long),
            ("manifest.json", 50, (0, 1)),
            ("manifest.json", None, (0, 1)),
        ],
    )
    def test_what_is_cut_short_or_gone_is_put_right(self, store, work, expected, name, left, kept):
        work.commit(work.start(store), 0, 1)
        data = (store / name).read_bytes()
        (store / name).unlink() if left is None else (store / name).write_bytes(data[:left])
        writer = work.start(store)
        assert writer.done == kept
        work.commit(writer, 0, 1)
        writer.finish(work.card)
        assert contents(store) == expected

    def test_lines_of_another_run_do_not_count(self, store, work, expected):
        """As a writer leaves them that did not know yet that it had lost the folder."""
        other = work.start(store, settings={**work.settings, "seed": 8})
        work.commit(other, 1)
        stale = (store / "journal/00000.jsonl").read_bytes()
        writer = work.start(store, fresh=True)
        work.commit(writer, 0)
        lines = (store / "journal/00001.jsonl").read_bytes()
        (store / "journal/00001.jsonl").write_bytes(lines + stale)
        writer = work.start(store)
        assert writer.done == (0,)
        work.commit(writer, 0, 1)
        writer.finish(work.card)
        assert contents(store) == expected

    def test_runs_that_list_the_journal_at_the_same_instant_write_different_parts(
        self, store, work, monkeypatch
    ):
        work.commit(work.start(store), 0)
        (entry,) = Journal.read(store).entries.values()
        first, second = Journal.read(store), Journal.read(store)
        listed = journal._parts(store / "journal")
        with monkeypatch.context() as patch:
            patch.setattr(journal, "_parts", lambda _: listed)
            first.add([entry.model_copy(update={"shard": 1})])
            second.add([entry.model_copy(update={"shard": 2})])
        assert sorted(Journal.read(store).entries) == [0, 1, 2]

    def test_the_mark_of_an_empty_folder_is_nothing_else(self, s3, work):
        """A console makes a folder by an object whose name ends in a slash."""
        out = place(s3) / "out"
        out.fs.pipe_file(f"{out.path}/", b"")
        work.commit(work.start(out), 0)
        assert work.start(out).done == (0,)

    def test_other_things_are_left_alone(self, store, work):
        (store / "notes.txt").write_text("mine")
        with pytest.raises(FolderError, match="holds something else"):
            work.start(store)

    def test_fresh(self, store, work):
        work.commit(work.start(store), 0)
        assert work.start(store, fresh=True, settings={}).done == ()

    def test_its_own_source_is_refused(self, store, work):
        from pairsmith.runs import refuse_source

        with pytest.raises(FolderError, match="is what --data reads"):
            refuse_source(Run(store, Silent()), data=str(store))


def _write_until(url, count):
    """A process that is killed at its ``count``-th write."""
    import importlib.util
    from pathlib import Path

    spec = importlib.util.spec_from_file_location("work", Path(__file__).with_name("conftest.py"))
    work = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(work)
    real, calls = s3fs.S3FileSystem.pipe_file, []

    def counted(*arguments, **keywords):
        calls.append(1)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **keywords)

    s3fs.S3FileSystem.pipe_file = counted
    writer = work.start(place(url))
    work.commit(writer, 0, 1)
    writer.finish(work.CARD)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kills")
@pytest.mark.parametrize("count", [2, *(pytest.param(n, marks=pytest.mark.long) for n in (5, 9, 14))])
def test_killed_it_goes_on_at_once_and_to_the_same_bytes(s3, work, expected, count):
    """The lease that the kill left behind names a process that is gone, so nobody waits for it."""
    process = multiprocessing.get_context("spawn").Process(target=_write_until, args=(f"{s3}/out", count))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    out = place(f"{s3}/out")
    assert (out / LEASE).exists()
    writer = work.start(out)
    work.commit(writer, 0, 1)
    writer.finish(work.card)
    assert contents(out) == expected


class TestLease:
    def other(self, store, count=0, **about):
        content = {"owner": "o", "host": "far", "pid": 7, "count": count, "time": "2020-01-01T00:00:00+00:00"}
        (store / LEASE).write_bytes(json.dumps(content | about).encode())

    def test_one_that_is_renewed_keeps_others_out(self, store, work, clock):
        self.other(store)
        clock.each = lambda: self.other(store, count=clock.now)
        with pytest.raises(FolderError, match=r"another run is writing to .* \(process 7 on far\); wait"):
            work.start(store)

    def test_one_that_is_not_renewed_is_taken_over(self, store, work, clock):
        """Whatever its clock said: a time of long ago or to come does not matter."""
        self.other(store, time="2999-01-01T00:00:00+00:00")
        said = []
        lock.acquire(store, said.append)
        assert clock.now >= lease.STALE_SECONDS
        assert "waiting up to 35 s to see whether it is still running" in said[0]
        lock.release(store)
        assert not (store / LEASE).exists()

    def test_one_given_back_meanwhile(self, store, clock):
        self.other(store)
        clock.each = lambda: (store / LEASE).unlink(missing_ok=True)
        lock.acquire(store)
        assert clock.now == 1.0
        lock.release(store)

    def test_one_that_is_no_json_is_watched_too(self, store, clock):
        (store / LEASE).write_bytes(b"half")
        lock.acquire(store)
        lock.release(store)
        assert clock.now >= lease.STALE_SECONDS

    def test_a_run_that_lost_it_stops(self, store, work, clock):
        writer = work.start(store)
        work.commit(writer, 0)
        self.other(store)
        clock.now += lease.STALE_SECONDS
        with pytest.raises(FolderError, match="another run has taken over"):
            work.commit(writer, 1)
        lock.release(store)
        assert (store / LEASE).exists()  # it is the other's

    def test_a_run_that_lost_it_can_wait_for_it_again(self, store, work, clock):
        writer = work.start(store)
        work.commit(writer, 0)
        self.other(store)
        assert work.start(store).done == (0,)  # the other did not renew it
        assert clock.now >= lease.STALE_SECONDS
        self.other(store)
        clock.each = lambda: self.other(store, count=clock.now)
        with pytest.raises(FolderError, match="another run is writing to"):
            work.start(store, fresh=True)
        assert (store / "data/train-00000.parquet").exists()

    def test_a_store_that_cannot_refuse(self, store, monkeypatch):
        real = store.fs.pipe_file

        def pipe_file(path, value, mode="overwrite"):
            if mode == "create":
                raise NotImplementedError  # as a store says that has no conditional requests
            real(path, value)

        monkeypatch.setattr(store.fs, "pipe_file", pipe_file)
        monkeypatch.setattr(lease.time, "sleep", lambda _: None)
        lock.acquire(store)
        lock.check(store)
        lock.release(store)

    def test_it_is_renewed_while_it_is_held(self, store, monkeypatch):
        monkeypatch.setattr(lease, "RENEW_SECONDS", 0.01)
        renewed = threading.Event()
        real = Lease._renew

        def renew(self):
            real(self)
            if self._count >= 2:
                renewed.set()

        monkeypatch.setattr(Lease, "_renew", renew)
        lock.acquire(store)
        assert renewed.wait(30)
        assert lock.is_held(store)
        lock.release(store)
        assert not lock.is_held(store)

    def test_of_two_at_once_one_gets_it(self, s3):
        """The server refuses to create what is there: a second look is not needed."""
        store = place(s3) / "out"
        first = Lease(store)
        first.take(lambda _: None)
        about = (store / LEASE).read_bytes()
        with pytest.raises(OSError, match="pre-?conditions"):
            store.fs.pipe_file((store / LEASE).path, b"mine", mode="create")
        assert (store / LEASE).read_bytes() == about
        first.release()


class TestUnreachable:
    @pytest.fixture
    def nowhere(self, s3, monkeypatch):
        """A server that is not there."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{port}")
        s3fs.S3FileSystem.clear_instance_cache()
        return "s3://bucket/out"

    def test_every_way_in_says_so(self, nowhere, work):
        with pytest.raises(StorageError, match=r"s3://bucket/out cannot be reached: Could not connect"):
            work.start(place(nowhere))
        with pytest.raises(StorageError, match=r"s3://bucket/out cannot be reached: Could not connect"):
            DatasetFolder.open(nowhere)
        with pytest.raises(StorageError, match="cannot be reached"):
            status_lines(place(nowhere))
        with pytest.raises(StorageError, match="cannot be reached"):
            list(read_texts(nowhere))
        with pytest.raises(StorageError, match="cannot be reached"):
            hash_source(nowhere)

    def test_a_store_that_goes_away_loses_nothing(self, s3, work, expected, monkeypatch):
        out = place(s3) / "out"
        writer = work.start(out)
        work.commit(writer, 0)
        with monkeypatch.context() as gone:

            def fail(*arguments, **keywords):
                raise ConnectionError("Connection reset by peer")

            gone.setattr(out.fs, "pipe_file", fail)
            with pytest.raises(StorageError, match=r"train-00001.*Connection reset.*finished work is kept"):
                work.commit(writer, 1)
        writer = work.start(out)
        assert writer.done == (0,)
        work.commit(writer, 0, 1)
        writer.finish(work.card)
        assert contents(out) == expected

    def test_a_look_that_fails_takes_nothing_for_absent(self, s3, work, expected, monkeypatch):
        out = place(s3) / "out"
        work.commit(work.start(out), 0, 1)
        for name in ("info", "ls", "cat_file"):
            with monkeypatch.context() as gone:

                def fail(*arguments, **keywords):
                    raise ConnectionError("Connection reset by peer")

                gone.setattr(out.fs, name, fail)
                with pytest.raises(
                    StorageError, match="s3://.*cannot be (reached|written)|cannot write s3://"
                ):
                    work.start(out)
        writer = work.start(out)
        assert writer.done == (0, 1)
        writer.finish(work.card)
        assert contents(out) == expected

    def test_no_such_bucket(self, s3, work):
        with pytest.raises(
            StorageError, match="s3://no-bucket/out cannot be reached: there is no such bucket"
        ):
            work.start(place("s3://no-bucket/out"))


class TestPlaces:
    def test_urls_of_files_are_paths(self, tmp_path):
        assert place(f"file://{tmp_path}/a%20b") == tmp_path / "a b"

    def test_stores_nobody_knows(self):
        with pytest.raises(SettingsError, match=r"nosuch://a/b: .*; give a path, or a URL such as s3://"):
            place("nosuch://a/b")

    def test_a_store_whose_package_is_missing(self, monkeypatch):
        def missing(*arguments, **keywords):
            raise ImportError("Please install gcsfs to access Google Storage")

        monkeypatch.setattr("upath.UPath", missing)
        with pytest.raises(MissingExtra, match=r"pip install 'pairsmith\[gcs\]'"):
            place("gs://bucket/a")
        with pytest.raises(SettingsError, match="Please install"):
            place("odd://bucket/a")

    def test_a_folder_is_fetched_once(self, store):
        (store / "a/b.txt").write_text("x")
        copy = local_copy(store)
        assert (copy / "a/b.txt").read_text() == "x"
        assert local_copy(store) == copy
        (store / "a/b.txt").write_text("longer")
        assert (local_copy(store) / "a/b.txt").read_text() == "longer"

    def test_a_store_without_a_connection(self):
        with pytest.raises(SettingsError, match=r"ftp://127.0.0.1:1/x: .*give a path, or a URL"):
            place("ftp://127.0.0.1:1/x")

    def test_what_follows_a_question_mark_is_no_part_of_a_name(self):
        path = place("memory://a/texts.jsonl?token=abc")
        path.write_text('{"text": "one"}')
        (record,) = read_texts(str(path))
        assert (record.text, record.where) == ("one", "texts.jsonl:1")


RECIPE = """
name: small
steps:
  - {name: pairs, step: generate, settings: {model: GPT2, inputs: ./in.txt, per_input: 1, shard_size: 4}}
  - {name: clean, step: postprocess, settings: {data: "@pairs"}}
  - name: encoder
    step: train-encoder
    settings: {base: GPT2, data: "@clean", max_steps: 3, checkpoint_steps: 2}
  - {name: after, step: evaluate-sts, settings: {model: "@encoder", data: ./graded.tsv, bootstrap: 0}}
results: {spearman: after/graded.all, pairs: "pairs:rows"}
"""


@pytest.mark.long
def test_a_whole_recipe_in_a_store_is_that_on_the_disk(store, tmp_path, tiny_gpt2, capsys):
    (tmp_path / "in.txt").write_text("".join(f"text number {i}\n" for i in range(10)))
    graded = "".join(f"text {i}\tword {i * i % 7}\t{i % 5}\n" for i in range(20))
    (tmp_path / "graded.tsv").write_text("sentence1\tsentence2\tscore\n" + graded)
    (tmp_path / "small.yaml").write_text(RECIPE.replace("GPT2", str(tiny_gpt2)))
    recipe = load_recipe(tmp_path / "small.yaml")
    results = run_recipe(recipe, tmp_path / "out", Silent())
    there = run_recipe(recipe, store, Silent())
    assert {**results, "seconds": 0} == {**there, "seconds": 0}
    for name in (
        "pairs/data/train-00001.parquet",
        "clean/data/train-00000.parquet",
        "encoder/model.safetensors",
    ):
        assert (store / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    assert run_recipe(recipe, store, Progress()) == there
    assert capsys.readouterr().err.count("already done") == 4
    assert status_lines(store)[0] == f"{store}: recipe small, 4 of 4 steps finished"
