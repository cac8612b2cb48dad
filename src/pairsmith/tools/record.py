"""The record that a tool writes into its folder, and the lock of the folder while the tool works."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pairsmith.runs import Manifest, Run, lock, write_json
from pairsmith.runs.claim import claim
from pairsmith.runs.identity import Identity
from pairsmith.runs.manifest import read_manifest


@contextmanager
def recorded(
    run: Run, identity: Identity, name: str, *, any_work: bool = False
) -> Iterator[Callable[..., None]]:
    """Lock the run's folder for a tool; yields a function that writes the record ``name`` with more fields.

    A folder that another tool or a step wrote is refused. A folder that the same tool wrote with other
    settings or data is refused unless ``any_work`` is set.
    """
    claim(
        run,
        identity,
        name,
        lambda out: read_manifest(out, name, Manifest),
        lambda _: any_work,
        in_parts=False,
    )
    try:
        yield lambda **more: write_json(run.out / name, identity.as_record() | more)
    finally:
        lock.release(run.out)
