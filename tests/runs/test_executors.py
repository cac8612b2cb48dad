"""Processes that work, die and are replaced."""

import logging
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
import torch

from pairsmith.core.errors import InputError, MissingExtra, SettingsError, WorkerError
from pairsmith.core.model_files import pick_device
from pairsmith.models.language.waits import wait_to_retry
from pairsmith.runs.executors import ExecutorChoice, execute
from pairsmith.runs.ray_executor import Actor, _answers
from pairsmith.runs.work import Done, LostItem

pytestmark = pytest.mark.slow


class Square:
    """Work that can be told to go wrong: at an item, always or only the first time."""

    def __init__(self, marks, **trouble):
        self.marks = Path(marks)
        self.trouble = trouble

    def __call__(self, worker):
        if "loading" in self.trouble:
            os.kill(os.getpid(), signal.SIGKILL)

        def work(item, advance):
            advance(1)
            for kind, where in self.trouble.items():
                if where == item:
                    getattr(self, kind)(item)
            return item * item, os.getpid(), os.environ.get("OMP_NUM_THREADS")

        return work

    def once(self, item):
        mark = self.marks / f"died-{item}"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def always(self, item):
        with (self.marks / "deaths").open("a") as file:
            file.write("x")
        os._exit(7)

    def refused(self, item):
        raise InputError(f"{item} is refused")

    def extra(self, item):
        raise MissingExtra("ray", "ray")

    def ending(self, item):
        raise EOFError("a file ended")

    def logged(self, item):
        for n in range(20):
            logging.getLogger("pairsmith").warning("note %d", n)

    def bug(self, item):
        raise ZeroDivisionError("a bug")


@pytest.fixture
def run(tmp_path):
    said, units = [], []

    def runner(items, workers=2, executor="local", **trouble):
        load = Square(tmp_path, **trouble)
        return list(execute(load, items, units.append, ExecutorChoice(executor, workers), said.append))

    runner.said, runner.units, runner.marks = said, units, tmp_path
    return runner


def squares(outcomes):
    return {outcome.item: outcome.result[0] for outcome in outcomes if isinstance(outcome, Done)}


@pytest.mark.parametrize(("count", "workers"), [(5, 1), pytest.param(5, 2, marks=pytest.mark.long), (2, 3)])
def test_every_item_is_done_once(run, count, workers):
    items = range(1, count + 1)
    outcomes = run(items, workers)
    assert squares(outcomes) == {item: item * item for item in items}
    assert len(outcomes) == count
    assert sum(run.units) == count
    processes = {outcome.result[1] for outcome in outcomes}
    assert (os.getpid() in processes) == (workers == 1)


def test_no_items_start_nothing(run):
    assert run([]) == []
    assert run([], 1, loading=True) == []


def test_workers_share_the_cores(run, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (one, _) = run([1, 2])
    assert int(one.result[2]) >= 1
    assert "OMP_NUM_THREADS" not in os.environ
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    (one, _) = run([1, 2])
    assert one.result[2] == "3"


class DeviceOfTwo:
    """Work that waits until each of three workers has an item, and says which of two GPUs it has."""

    def __init__(self, marks):
        self.marks = Path(marks)

    def __call__(self, worker):
        torch.cuda.device_count = lambda: 2  # in the worker's process only

        def work(item, advance):
            (self.marks / str(worker)).touch()
            while len(list(self.marks.iterdir())) < 3:
                os.sched_yield()
            return worker, pick_device("auto")

        return work


def test_workers_take_one_gpu_after_the_other(tmp_path):
    outcomes = execute(DeviceOfTwo(tmp_path), range(3), lambda _: None, ExecutorChoice("local", 3))
    assert sorted(outcome.result for outcome in outcomes) == [(0, "cuda:0"), (1, "cuda:1"), (2, "cuda:0")]


def wait_for_server(url):
    wait_to_retry(0.0, url, "503 no room", report=True, by_server=False, stopped=threading.Event())


class OfBusyServer:
    """Work in which each of two workers has the same fault of a server."""

    def __init__(self, marks):
        self.marks = Path(marks)

    def __call__(self, worker):
        def work(item, advance):
            wait_for_server("http://busy.example")
            (self.marks / str(worker)).touch()
            while len(list(self.marks.iterdir())) < 2:
                os.sched_yield()

        return work


class UntilTold:
    """Work that has a server's fault, and says whether the main process told it while the work went on."""

    def __init__(self, mark):
        self.mark = mark

    def __call__(self, worker):
        def work(item, advance):
            wait_for_server("http://full.example")
            deadline = time.monotonic() + 30
            while not self.mark.exists() and time.monotonic() < deadline:
                os.sched_yield()
            return self.mark.exists()

        return work


def test_what_several_workers_log_of_a_server_is_told_once(tmp_path, caplog, capfd):
    assert len(list(execute(OfBusyServer(tmp_path), [1, 2], lambda _: None, ExecutorChoice(workers=2)))) == 2
    assert caplog.messages == ["http://busy.example: 503 no room; trying again in 0 s"]
    assert "busy.example" not in capfd.readouterr().err  # no worker writes it itself


def test_a_worker_that_dies_is_replaced_and_its_item_done_again(run):
    assert squares(run([1, 2, 3, 4], once=3)) == {1: 1, 2: 4, 3: 9, 4: 16}
    (line,) = run.said
    assert "ended (signal 9 (out of memory?)); another one takes its place" in line


def test_an_item_that_ends_three_workers_is_set_aside_and_the_rest_done(run):
    outcomes = run([1, 2, 3, 4], always=2)
    assert squares(outcomes) == {1: 1, 3: 9, 4: 16}
    assert [outcome for outcome in outcomes if isinstance(outcome, LostItem)] == [LostItem(2, "exit code 7")]
    assert (run.marks / "deaths").read_text() == "xxx"


def test_what_a_dead_worker_had_done_of_its_item_is_not_counted_twice(run):
    run([1, 2, 3, 4], once=3)
    assert sum(run.units) == 4


def test_workers_that_cannot_even_start_end_the_run(run):
    with pytest.raises(WorkerError, match=r"all workers ended while they were loading \(signal 9"):
        run([1, 2], loading=True)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_meant_for_people_reaches_them_as_it_is(run, workers):
    with pytest.raises(InputError, match=r"^2 is refused$"):
        run([1, 2, 3], workers, refused=2)
    with pytest.raises(MissingExtra, match=r"pip install 'pairsmith\[ray\]'"):
        run([1, 2, 3], workers, extra=2)


def test_a_bug_in_a_worker_is_shown_with_its_traceback(run):
    with pytest.raises(WorkerError, match=r"(?s)a bug in pairsmith.*in bug.*ZeroDivisionError: a bug"):
        run([1, 2, 3], bug=2)


def test_the_end_of_a_file_is_not_taken_for_the_end_of_the_main_process(run):
    with pytest.raises(WorkerError, match="EOFError: a file ended"):
        run([1, 2, 3], ending=2)


def test_leaving_early_ends_the_workers(tmp_path):
    outcomes = execute(Square(tmp_path), [1, 2, 3, 4], lambda _: None, ExecutorChoice(workers=2))
    process = next(outcomes).result[1]
    outcomes.close()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
    pytest.fail("the worker is still there")


# Ray leaves processes and sockets of its own to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
class TestRay:
    """The same promises on a cluster that is started here."""

    @pytest.fixture(autouse=True)
    def _ray(self):
        pytest.importorskip("ray")

    @pytest.mark.long
    def test_every_item_is_done_once(self, run):
        assert squares(run([1, 2, 3], 2, "ray")) == {1: 1, 2: 4, 3: 9}
        assert sum(run.units) == 3

    @pytest.mark.long
    def test_an_item_that_ends_three_workers_is_set_aside_and_the_rest_done(self, run):
        outcomes = run([1, 2, 3], 2, "ray", always=2)
        assert squares(outcomes) == {1: 1, 3: 9}
        assert [outcome.item for outcome in outcomes if isinstance(outcome, LostItem)] == [2]
        assert len(run.said) == 3

    @pytest.mark.long
    def test_errors_meant_for_people_and_bugs(self, run):
        with pytest.raises(InputError, match=r"^2 is refused$"):
            run([1, 2, 3], 2, "ray", refused=2)
        with pytest.raises(WorkerError, match=r"(?s)a bug in pairsmith.*ZeroDivisionError"):
            run([1, 2, 3], 2, "ray", bug=2)

    @pytest.mark.long
    def test_more_workers_than_cores_hang_nothing(self, run):
        assert squares(run(list(range(12)), 12, "ray")) == {n: n * n for n in range(12)}

    @pytest.mark.long
    def test_what_several_workers_log_of_a_server_is_told_once_and_at_once(self, tmp_path, caplog):
        mark = tmp_path / "told"
        told = logging.Handler()
        told.emit = lambda _: mark.touch()
        logging.getLogger("pairsmith").addHandler(told)
        try:
            outcomes = execute(UntilTold(mark), [1, 2], lambda _: None, ExecutorChoice("ray", 2))
            assert [outcome.result for outcome in outcomes] == [True, True]
        finally:
            logging.getLogger("pairsmith").removeHandler(told)
        assert caplog.messages == ["http://full.example: 503 no room; trying again in 0 s"]

    @pytest.mark.long
    def test_all_that_a_worker_logs_of_its_last_item_is_told(self, tmp_path, caplog):
        outcomes = execute(Square(tmp_path, logged=1), [1], lambda _: None, ExecutorChoice("ray", 1))
        assert squares(outcomes) == {1: 1}
        assert caplog.messages == [f"note {n}" for n in range(20)]

    @pytest.mark.long
    def test_what_a_worker_logs_before_it_fails_is_told(self, run, caplog, monkeypatch):
        import ray

        wait = ray.wait  # the last promise is the worker's, so its failure arrives before all records
        monkeypatch.setattr(ray, "wait", lambda promises, **options: wait(promises[-1:], **options))
        with pytest.raises(InputError, match=r"^1 is refused$"):
            run([1], 1, "ray", logged=1, refused=1)
        assert caplog.messages == [f"note {n}" for n in range(20)]

    @pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "[::1]:1"])
    def test_no_cluster_at_the_address(self, tmp_path, address):
        work = execute(Square(tmp_path), [1], print, ExecutorChoice("ray", 1, address))
        with pytest.raises(SettingsError, match=re.escape(f"{address}: nothing answers there")):
            list(work)


def test_an_ipv6_address_is_tried_without_its_brackets():
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("needs IPv6")
    with listener:
        assert _answers("[::1]", listener.getsockname()[1])


def test_an_actor_works_where_the_command_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir("/")  # as of a cluster that was started there
    actor = Actor(lambda _: lambda item, advance: Path(item).resolve(), 0, tmp_path)
    actor.ready()
    assert actor.do("out")[0] == tmp_path.resolve() / "out"
    elsewhere = Actor(lambda _: lambda item, advance: Path(item).resolve(), 0, tmp_path / "not here")
    elsewhere.ready()
    assert elsewhere.do("out")[0] == tmp_path.resolve() / "out"
