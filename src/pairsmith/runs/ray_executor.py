"""The executor on a Ray cluster: actors hold the loaded models, and each item goes to an actor that is free.

Every node needs pairsmith and access to the model. Ray transports the items to the actors and the results
back; only the process that iterates over the results writes to the folder.
"""

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from pairsmith.core.errors import MissingExtra, PairsmithError, SettingsError, WorkerError, first_line
from pairsmith.core.progress import Say
from pairsmith.runs.executors import LogSender
from pairsmith.runs.work import (
    DEATHS,
    Advance,
    Done,
    Load,
    LostItem,
    R,
    W,
    Waiting,
    Work,
    Worker,
    work_through,
)

_WAIT_SECONDS = 5.0
"""Seconds to wait for an event, or for a connection."""
_HOST_AND_PORT = re.compile(r"(?:ray://)?(\[[^\]/]+\]|[^:/]+):(\d{1,5})")


class Actor:
    """The code that runs in an actor: it loads the work once, then processes items and counts their units.

    What pairsmith logs is put into ``log``, the actor of a Ray queue, if it is given. Each record is in the
    queue before the work goes on, so that an item's records come before its result.
    """

    def __init__(self, load: Load[Any, Any], index: int, folder: Path, log: Any = None) -> None:
        if folder.is_dir():  # so that relative paths mean the same as in the main process
            os.chdir(folder)
        if log is not None:
            import ray

            handler = LogSender(lambda _, record: ray.get(log.put.remote(record)))
            logging.getLogger("pairsmith").addHandler(handler)
        self._load = load
        self._index = index
        self._work: Work[Any, Any] | None = None

    def ready(self) -> None:
        """Load the work; in ``__init__``, Ray would wrap a user's error in an error of its own."""
        self._work = self._load(self._index)

    def do(self, item: Any) -> tuple[Any, int]:
        """Process an item; returns its result and its number of units of work."""
        assert self._work is not None  # only actors that are ready get items
        units = 0

        def count(amount: int) -> None:
            nonlocal units
            units += amount

        return self._work(item, count), units


def run_ray(
    load: Load[W, R],
    items: Iterable[W],
    advance: Advance,
    *,
    workers: int,
    say: Say = lambda _: None,
    address: str | None = None,
) -> Iterator[Done[W, R] | LostItem[W]]:
    """Process the items in ``workers`` actors of the cluster at ``address``, or of a new one on this machine.

    An actor takes a core, and a GPU if the cluster has any. If an actor is lost, alone or with its node,
    ``say`` is called with a message, another actor takes its place, and the item is processed again. If the
    cluster has no room for another actor, the remaining ones continue.
    """
    waiting = Waiting(items, workers)
    if not waiting.workers:
        return
    ray = _connect(address)
    # A client (ray://) can reach the cluster only through the given address.
    through = address if address and address.startswith("ray://") else ray.get_runtime_context().gcs_address
    head = _HOST_AND_PORT.fullmatch(through)
    try:
        pool = _Actors(ray, load, waiting.workers, head, say)
        yield from work_through(pool, waiting, advance)
        pool.close()
    finally:
        ray.shutdown()


@dataclass(eq=False, kw_only=True)
class _ActorWorker(Worker):
    """A worker that is an actor of the cluster; it is not ready while it waits for a core or loads."""

    actor: Any


class _Actors:
    """A ``Pool`` of actors.

    The keys of ``_promises`` are Ray's references to what is pending. The value is the actor whose result is
    pending, or None for the next log record of any actor.
    """

    def __init__(
        self, ray: Any, load: Load[Any, Any], size: int, head: re.Match[str] | None, say: Say
    ) -> None:
        from ray.util.queue import Queue

        self._ray, self._load, self._head, self._say = ray, load, head, say
        gpus = 1 if ray.cluster_resources().get("GPU") else 0
        self._remote = ray.remote(Actor).options(num_cpus=1, num_gpus=gpus)
        self._lost_loading = 0
        self._log = cast(Any, Queue(actor_options={"num_cpus": 0}).actor)
        self._promises: dict[Any, _ActorWorker | None] = {self._log.get.remote(): None}
        self.workers = [self._start(index) for index in range(size)]

    def give(self, worker: _ActorWorker) -> None:
        """Send the actor its item."""
        self._promises[worker.actor.do.remote(worker.item)] = worker

    def events(self) -> Iterator[tuple[_ActorWorker, str, Any]]:
        """Wait up to five seconds for a result, or for the loss of an actor (see ``Pool``)."""
        ready, _ = self._ray.wait(list(self._promises), num_returns=1, timeout=_WAIT_SECONDS)
        if not ready:
            _check_head(self._head)
        for promise in ready:
            worker = self._promises.pop(promise)
            answer, how = self._answer(promise)
            if worker is None:
                self._tell(answer, how)
            elif how:
                yield worker, "ended", how
            elif worker.ready:
                result, units = answer
                yield worker, "advance", units
                yield worker, "done", result
            else:
                worker.ready, self._lost_loading = True, 0

    def replace(self, worker: _ActorWorker, how: str) -> None:
        """Start another actor; it waits if the cluster has no room for it."""
        self._ray.kill(worker.actor)  # the actor may be alive, if only its result was lost
        self.workers[worker.index] = self._start(worker.index)
        self._say(f"worker {worker.index} was lost ({how}); another one takes its place")
        self._lost_loading += not worker.ready
        if self._lost_loading >= DEATHS * len(self.workers):
            self._tell_rest()
            raise WorkerError(
                f"workers ended again and again while they were loading ({how}); see whether each node has "
                "pairsmith, the model and enough memory"
            )

    def close(self) -> None:
        """Log the records that are left in the queue, and end the actors."""
        self._tell_rest()
        for worker in self.workers:
            self._ray.kill(worker.actor)

    def _tell_rest(self) -> None:
        """Log the records that are in the queue, and request no more."""
        self._log.put.remote(None)  # after all records of finished work, and of work that failed
        while promises := [promise for promise, worker in self._promises.items() if worker is None]:
            del self._promises[promises[0]]
            self._tell(*self._answer(promises[0]))

    def _tell(self, record: logging.LogRecord | None, how: str) -> None:
        """Log a record of an actor and request the next one, unless the queue is lost, as ``how`` says."""
        if record is not None and not how:
            logging.getLogger(record.name).handle(record)
            self._promises[self._log.get.remote()] = None

    def _start(self, index: int) -> _ActorWorker:
        worker = _ActorWorker(index, actor=self._remote.remote(self._load, index, Path.cwd(), self._log))
        self._promises[worker.actor.ready.remote()] = worker
        return worker

    def _answer(self, promise: Any) -> tuple[Any, str]:
        """A promise's result and ""; None and the reason if the actor, its node or the result is lost."""
        from ray.exceptions import RayError, RayTaskError

        try:
            return self._ray.get(promise), ""
        except RayTaskError as error:
            self._tell_rest()  # what the worker logged may say why it failed
            if isinstance(error.cause, PairsmithError):
                raise error.cause from None
            raise WorkerError(f"a worker failed; this is a bug in pairsmith:\n{error}") from None
        except RayError as error:
            _check_head(self._head)
            return None, first_line(error)


def _check_head(head: re.Match[str] | None) -> None:
    """Raise ``WorkerError`` if the cluster's head is gone; Ray would wait for it, then end this process."""
    if head is not None and not _answers(head[1], int(head[2])):
        raise WorkerError(
            f"the head of the Ray cluster at {head[0]} is gone; finished work is kept: start the cluster and "
            "run the same command again"
        )


def _answers(host: str, port: int) -> bool:
    """Whether a process listens at this address; Ray itself would try to connect for minutes."""
    try:
        socket.create_connection((host.strip("[]"), port), _WAIT_SECONDS).close()
    except OSError:
        return False
    return True


def check_cluster(address: str | None) -> None:
    """Raise an error if Ray is not installed, or if nothing answers at ``address``; Ray is not started."""
    if find_spec("ray") is None:
        raise MissingExtra("ray", "ray")
    host_and_port = _HOST_AND_PORT.fullmatch(address or "")
    if host_and_port and not _answers(host_and_port[1], int(host_and_port[2])):
        raise SettingsError(
            f"--ray-address {address}: nothing answers there; leave it out to start a cluster on this machine"
        )


def _connect(address: str | None) -> Any:
    """Ray, connected to the cluster at ``address`` or to a new one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    check_cluster(address)
    import ray

    if ray.is_initialized():
        raise SettingsError("this process is already connected to Ray; call ray.shutdown() first")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        new = address is None
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False if new else None,
        )
    except Exception as error:  # Ray raises Exception itself if it does not start in time
        where = f"--ray-address {address}: no Ray cluster answers there" if address else "Ray does not start"
        tokens = "; if it asks for a token, set RAY_AUTH_MODE=token" if address else ""
        raise SettingsError(f"{where} ({first_line(error)}){tokens}") from None
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)  # Ray has installed a handler of its own
    return cast(Any, ray)
