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
from pathlib import Path
from typing import Any, cast

from pairsmith.core.errors import MissingExtra, PairsmithError, SettingsError, WorkerError, first_line
from pairsmith.runs.work import DEATHS, Advance, Done, Load, LostItem, R, Say, W, Waiting, Work

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
    from ray.exceptions import RayError, RayTaskError

    try:
        remote = ray.remote(Actor).options(
            num_cpus=1, num_gpus=1 if ray.cluster_resources().get("GPU") else 0
        )
        actors = [remote.remote(load, index, Path.cwd()) for index in range(waiting.workers)]
        # Maps a promise to its actor and the item's number: None while the actor waits for a core and loads.
        promises: dict[Any, tuple[int, int | None]] = {
            actor.ready.remote(): (index, None) for index, actor in enumerate(actors)
        }
        running: dict[int, W] = {}
        lost_loading = 0
        free: list[int] = []
        while True:
            while free and (entry := waiting.take()):
                index, (place, item) = free.pop(), entry
                running[place] = item
                promises[actors[index].do.remote(item)] = index, place
            if not running and waiting.is_empty():
                break
            ready, _ = ray.wait(list(promises), num_returns=1, timeout=_WAIT_SECONDS)
            if not ready:
                _check_head(head)
            for promise in ready:
                index, number = promises.pop(promise)
                try:
                    answer = ray.get(promise)
                except RayTaskError as error:
                    if isinstance(error.cause, PairsmithError):
                        raise error.cause from None
                    raise WorkerError(f"a worker failed; this is a bug in pairsmith:\n{error}") from None
                except RayError as error:  # the actor, its node or its result is lost
                    _check_head(head)
                    how = first_line(error)
                    ray.kill(actors[index])  # it may be alive if only its result was lost
                    actors[index] = remote.remote(load, index, Path.cwd())
                    promises[actors[index].ready.remote()] = index, None
                    say(f"worker {index} was lost ({how}); another one takes its place")
                    if number is None:
                        lost_loading += 1
                        if lost_loading >= DEATHS * len(actors):
                            raise WorkerError(f"workers exited before they were ready: {how}") from None
                    elif not waiting.put_back(number, item := running.pop(number)):
                        yield LostItem(item, how)
                    continue
                free.append(index)
                if number is None:
                    lost_loading = 0
                else:
                    result, units = answer
                    advance(units)
                    yield Done(running.pop(number), result)
        for actor in actors:
            ray.kill(actor)
    finally:
        ray.shutdown()


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
