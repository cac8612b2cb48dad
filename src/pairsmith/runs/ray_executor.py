"""Work on a Ray cluster: actors hold the loaded models, and items go to whichever is free.

Every node needs pairsmith and access to the model. Items travel to the actors and results
back through Ray; only the process that iterates writes.
"""

import logging
import os
import re
import signal
import socket
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pairsmith.core.errors import MissingExtra, PairsmithError, SettingsError, WorkerError, first_line
from pairsmith.runs.work import (
    DEATHS,
    Advance,
    Done,
    Load,
    LostItem,
    R,
    Say,
    W,
    Waiting,
    Work,
    Worker,
    work_through,
)

_WAIT_SECONDS = 5.0
_HOST_AND_PORT = re.compile(r"(?:ray://)?([^:/]+):(\d{1,5})")


class Actor:
    """The code of an actor: it loads the work once, then processes items and counts their units."""

    def __init__(self, load: Load[Any, Any], index: int, folder: Path) -> None:
        if folder.is_dir():  # so that relative paths mean the same as in the command
            os.chdir(folder)
        self._load = load
        self._index = index
        self._work: Work[Any, Any] | None = None

    def ready(self) -> None:
        """Load the work; not in ``__init__``, where Ray would hide an error for users in one of its own."""
        self._work = self._load(self._index)

    def do(self, item: Any) -> tuple[Any, int]:
        """Process an item: its result, and how many units of work it was."""
        assert self._work is not None  # items are given to actors that are ready
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
    """Process the items in ``workers`` actors of the cluster at ``address``, or of one started here.

    An actor takes a core, and a GPU where the cluster has any. A lost actor, with its node or
    without, is replaced and its item done again; ``say`` is called with a message. Where there is
    no room for another one, the remaining actors go on.
    """
    waiting = Waiting(items, workers)
    if not waiting.workers:
        return
    ray = _connect(address)
    # A client (ray://) reaches the cluster through that address alone.
    through = address if address and address.startswith("ray://") else ray.get_runtime_context().gcs_address
    head = _HOST_AND_PORT.fullmatch(through)
    try:
        pool = _Actors(ray, load, waiting.workers, head, say)
        yield from work_through(pool, waiting, advance)
        for worker in pool.workers:
            ray.kill(worker.actor)
    finally:
        ray.shutdown()


@dataclass(eq=False, kw_only=True)
class _ActorWorker(Worker):
    """An actor of the cluster; it is not ready while it waits for a core and loads."""

    actor: Any


class _Actors:
    """The actors, and what Ray has promised of each."""

    def __init__(
        self, ray: Any, load: Load[Any, Any], size: int, head: re.Match[str] | None, say: Say
    ) -> None:
        self._ray, self._load, self._head, self._say = ray, load, head, say
        gpus = 1 if ray.cluster_resources().get("GPU") else 0
        self._remote = ray.remote(Actor).options(num_cpus=1, num_gpus=gpus)
        self._lost_loading = 0
        self._promises: dict[Any, _ActorWorker] = {}
        self.workers = [self._start(index) for index in range(size)]

    def give(self, worker: _ActorWorker) -> None:
        """Send the item."""
        self._promises[worker.actor.do.remote(worker.item)] = worker

    def events(self) -> Iterator[tuple[_ActorWorker, str, Any]]:
        """Wait for some seconds for a promise that is kept or broken; see ``Pool``."""
        ready, _ = self._ray.wait(list(self._promises), num_returns=1, timeout=_WAIT_SECONDS)
        if not ready:
            _check_head(self._head)
        for promise in ready:
            worker = self._promises.pop(promise)
            answer, how = self._answer(promise)
            if how:
                yield worker, "ended", how
            elif worker.ready:
                result, units = answer
                yield worker, "advance", units
                yield worker, "done", result
            else:
                worker.ready, self._lost_loading = True, 0

    def replace(self, worker: _ActorWorker, how: str) -> None:
        """Start another actor; where there is no room for it, the others go on."""
        self._ray.kill(worker.actor)  # it may be alive if only its result was lost
        self.workers[worker.index] = self._start(worker.index)
        self._say(f"worker {worker.index} was lost ({how}); another one takes its place")
        self._lost_loading += not worker.ready
        if self._lost_loading >= DEATHS * len(self.workers):
            raise WorkerError(f"workers exited before they were ready: {how}")

    def _start(self, index: int) -> _ActorWorker:
        worker = _ActorWorker(index, actor=self._remote.remote(self._load, index, Path.cwd()))
        self._promises[worker.actor.ready.remote()] = worker
        return worker

    def _answer(self, promise: Any) -> tuple[Any, str]:
        """What an actor has promised; if it, its node or its result is lost, how."""
        from ray.exceptions import RayError, RayTaskError

        try:
            return self._ray.get(promise), ""
        except RayTaskError as error:
            if isinstance(error.cause, PairsmithError):
                raise error.cause from None
            raise WorkerError(f"a worker failed; this is a bug in pairsmith:\n{error}") from None
        except RayError as error:
            _check_head(self._head)
            return None, first_line(error)


def _check_head(head: re.Match[str] | None) -> None:
    """Raise a ``WorkerError`` if the cluster's head is gone; Ray would wait for it, and then exit."""
    if head is not None and not _answers(head[1], int(head[2])):
        raise WorkerError(
            f"the head of the Ray cluster at {head[0]} is gone; finished work is kept: start the cluster and "
            "run the same command again"
        )


def _answers(host: str, port: int) -> bool:
    """Whether anything listens at this address; Ray itself would try for minutes."""
    try:
        socket.create_connection((host, port), _WAIT_SECONDS).close()
    except OSError:
        return False
    return True


def _connect(address: str | None) -> Any:
    """Ray, connected to the cluster at ``address`` or to a new one on this machine."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray") from None
    host_and_port = _HOST_AND_PORT.fullmatch(address or "")
    if host_and_port and not _answers(host_and_port[1], int(host_and_port[2])):
        raise SettingsError(
            f"--ray-address {address}: nothing answers there; leave it out to start a cluster on this machine"
        )
    if ray.is_initialized():
        raise SettingsError("Ray is in use in this process already; call ray.shutdown() first")
    handler = signal.getsignal(signal.SIGTERM)
    try:
        new = address is None
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False if new else None,
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = f"--ray-address {address}: no Ray cluster answers there" if address else "Ray does not start"
        raise SettingsError(f"{where} ({first_line(error)})") from None
    finally:
        if threading.current_thread() is threading.main_thread() and handler is not None:
            signal.signal(signal.SIGTERM, handler)  # Ray installs its own
    return cast(Any, ray)
