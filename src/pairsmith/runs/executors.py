"""Executors, which process items of work in this process, in several processes, or on a Ray cluster.

The interface is the function ``execute``. It takes the items, each of which is read when its turn comes, and
a function that loads the work, for example its models, in each worker. It returns an iterator over the
results in the order in which they finish. Only the process that iterates commits results, so the kind and
number of workers cannot change what is written.
"""

import logging
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from logging.handlers import QueueHandler
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Self, cast

from pairsmith.core.errors import PairsmithError, SettingsError, WorkerError, counted
from pairsmith.core.fields import ExecutorName, WorkerSettings
from pairsmith.core.model_files import set_worker_number
from pairsmith.core.progress import Say
from pairsmith.runs.work import Advance, Done, Load, LostItem, R, W, Waiting, Work, Worker, work_through

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

_JOIN_SECONDS = 2.0
"""Seconds that a process has for ending by itself before it is killed."""


@dataclass(frozen=True, slots=True)
class ExecutorChoice:
    """Where the work is done: by which executor, with how many workers, on which cluster.

    With ``array``, this process is one rank of an array job, and processes its shards on this machine.
    """

    executor: ExecutorName = "local"
    workers: int = 1
    ray_address: str | None = None

    @classmethod
    def of(cls, settings: WorkerSettings) -> Self:
        """The choice that a step's settings make."""
        return cls(settings.executor, settings.workers, settings.ray_address)


def execute(
    load: Load[W, R], items: Iterable[W], advance: Advance, where: ExecutorChoice, say: Say = lambda _: None
) -> Iterator[Done[W, R] | LostItem[W]]:
    """Process the items with the executor that ``where`` chooses.

    See ``run_in_this_process``, ``run_processes`` and ``ray_executor.run_ray``. ``advance`` is called with
    the number of finished units of work, ``say`` with messages about workers.
    """
    workers = where.workers
    if where.executor == "ray":
        from pairsmith.runs.ray_executor import run_ray

        return run_ray(load, items, advance, workers=workers, say=say, address=where.ray_address)
    if workers == 1:
        return run_in_this_process(load, items, advance)
    return run_processes(load, items, advance, workers=workers, say=say)


def run_in_this_process(load: Load[W, R], items: Iterable[W], advance: Advance) -> Iterator[Done[W, R]]:
    """Process the items one after the other in this process."""
    work: Work[W, R] | None = None
    for item in items:
        work = work or load(0)
        yield Done(item, work(item, advance))


def run_processes(
    load: Load[W, R], items: Iterable[W], advance: Advance, *, workers: int, say: Say = lambda _: None
) -> Iterator[Done[W, R] | LostItem[W]]:
    """Process the items in ``workers`` processes of this machine, which share its cores.

    If a process dies, ``say`` is called with a message, another process takes its place, and the item is
    processed again.
    """
    waiting = Waiting(items, workers)
    if not waiting.workers:
        return
    pool = _Pool(load, waiting.workers, say)
    try:
        yield from work_through(pool, waiting, advance)
    finally:
        pool.close()


@dataclass(eq=False, kw_only=True)
class _Process(Worker):
    """A worker that is a process, with the main process's end of the pipe to it."""

    process: BaseProcess
    pipe: Connection


_LARGE = ("torch", "transformers", "sentence_transformers")
"""Libraries that take seconds to import."""
_RAISED = "exit code 1"
"""How a Python process ended that was ended by an exception; the exception is on standard error."""


def refuse_import_by_worker() -> None:
    """Raise a ``SettingsError`` if this process is a worker that is importing the script that started it.

    A worker process imports the script that started it, to get the script's functions and classes. Without
    the guard, the import would start the same recipe a second time.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SettingsError(
            "each worker process imports the script that started it; put what the script does below "
            'if __name__ == "__main__":'
        )


def processes_for(load: Load[Any, Any]) -> "SpawnContext | ForkServerContext":
    """How worker processes are started: without this process's state, and if possible without slow imports.

    On Linux, a fork server imports the large libraries that this process has imported, and every worker
    starts as a copy of the fork server, in which nothing was computed. If a library has looked for a GPU,
    copies of the process cannot use that GPU; so with a torch built for GPUs, each worker starts as a new
    Python process.
    """
    torch = sys.modules.get("torch")
    if sys.platform != "linux" or (torch and (torch.version.cuda or torch.version.hip)):
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    function = load.func if isinstance(load, partial) else load
    module = getattr(function, "__module__", None) or type(function).__module__
    context.set_forkserver_preload([*(name for name in _LARGE if name in sys.modules), module])
    return context


class _Pool:
    """A ``Pool`` of worker processes on this machine."""

    def __init__(self, load: Load[Any, Any], size: int, say: Say) -> None:
        self._load = load
        self._say = say
        self._context = processes_for(load)
        self._threads = max(1, cores() // size)
        self.workers: list[_Process] = []
        try:
            for index in range(size):
                self.workers.append(self._start(index))
        except BaseException:
            self.close()
            raise

    def give(self, worker: _Process) -> None:
        """Send the worker its item; if the worker has just ended, ``events`` will report it."""
        with suppress(OSError):
            worker.pipe.send(worker.item)

    def events(self) -> Iterator[tuple[_Process, str, Any]]:
        """Wait for messages from the workers, and yield them (see ``Pool``)."""
        by_pipe = {worker.pipe: worker for worker in self.workers}
        for pipe in wait(list(by_pipe)):
            worker = by_pipe[pipe]  # type: ignore[index]  # wait returns what it was given
            try:
                kind, value = worker.pipe.recv()
            except (EOFError, OSError):
                kind, value = "ended", how_it_ended(worker.process)
            if kind == "error":
                raise value
            if kind == "crash":
                raise WorkerError(f"a worker failed; this is a bug in pairsmith:\n{value}")
            if kind == "ready":
                worker.ready = True
            elif kind == "log":
                logging.getLogger(value.name).handle(value)
            else:
                yield worker, kind, value

    def replace(self, worker: _Process, how: str) -> None:
        """Start another process in place of one that ended, unless it ended while it was loading."""
        worker.pipe.close()
        self.workers = [other for other in self.workers if other is not worker]
        if worker.ready:
            self._say(f"worker {worker.index} ended ({how}); another one takes its place")
            self.workers.append(self._start(worker.index))
            return
        if not self.workers:
            advice = "give fewer --workers if memory ran out"
            if how == _RAISED:
                advice = "their errors, above this one, say why"
            raise WorkerError(f"all workers ended while they were loading ({how}); {advice}")
        remaining = counted(len(self.workers), "workers are") + " left"
        self._say(f"worker {worker.index} ended while loading ({how}); {remaining}")

    def close(self) -> None:
        """End every process."""
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            how_it_ended(worker.process)
            worker.pipe.close()

    def _start(self, index: int) -> _Process:
        own_end, worker_end = self._context.Pipe()
        try:
            with _threads(self._threads), ExitStack() as stack:
                stack.enter_context(ignoring_interrupts())
                arguments = (self._load, index, worker_end, dict(os.environ))
                process = self._context.Process(target=_serve, args=arguments, daemon=True)
                if self._context.get_start_method() == "forkserver":
                    forkserver.ensure_running()
                    # Its copies ignore Ctrl-C, too. The first start waits until the fork server has imported
                    # the libraries, and this process must not ignore Ctrl-C for so long.
                    stack.close()
                process.start()
        except BaseException:
            own_end.close()
            raise
        finally:
            worker_end.close()
        return _Process(index, process=process, pipe=own_end)


def _serve(load: Load[Any, Any], index: int, pipe: Connection, environment: dict[str, str]) -> None:
    """Run a worker: load the work, then process items until the main process closes the pipe or ends.

    The worker gets ``environment``, the current environment variables of the main process: the fork server
    still has those from when the first worker was started.
    """
    _set_up_worker(environment)
    if pipe.poll():  # nothing is sent before "ready": the main process was stopped, and the pipe is closed
        return
    set_worker_number(index)
    lock = threading.Lock()

    def send(kind: str, value: Any = None) -> None:
        try:
            with lock:
                pipe.send((kind, value))
        except BrokenPipeError:
            raise SystemExit from None

    logging.getLogger("pairsmith").addHandler(LogSender(send))
    try:
        work = load(index)
        send("ready")
        while True:
            try:
                item = pipe.recv()
            except EOFError:
                return
            send("done", work(item, lambda amount: send("advance", amount)))
    except PairsmithError as error:
        send("error", error)
    except Exception:
        send("crash", traceback.format_exc())


class LogSender(QueueHandler):
    """Sends a worker's log records to the main process, so that what all workers log is shown only once."""

    def __init__(self, send: Callable[[str, logging.LogRecord], None]) -> None:
        super().__init__(cast(Any, None))  # a pipe takes the place of its queue
        self._send = send

    def enqueue(self, record: logging.LogRecord) -> None:
        """Send a record, which ``prepare`` of the base class has made picklable."""
        self._send("log", record)


def _set_up_worker(environment: dict[str, str]) -> None:
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if (count := environment.get("OMP_NUM_THREADS", "")).isdigit() and (torch := sys.modules.get("torch")):
        torch.set_num_threads(max(1, int(count)))  # torch read the variable when it was imported


def how_it_ended(process: BaseProcess) -> str:
    """How a process ended, in words; a process that has not ended after ``_JOIN_SECONDS`` is killed."""
    process.join(_JOIN_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    code = process.exitcode
    if code is not None and code < 0:
        return f"signal {-code}{' (out of memory?)' if code == -9 else ''}"
    return f"exit code {code}{' (out of memory?)' if code == 137 else ''}"  # 128 + 9, as a shell tells it


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Make processes started in this context ignore Ctrl-C, as the main process handles it and ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Make processes started in this context use ``count`` threads, unless the user set a number."""
    name = "OMP_NUM_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = str(count)
    try:
        yield
    finally:
        del os.environ[name]
