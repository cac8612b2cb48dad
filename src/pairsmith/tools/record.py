"""The record that a tool leaves in its folder, and the folder's lock while the tool writes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pairsmith.runs import Manifest, Run, lock, write_json
from pairsmith.runs.claim import claim
from pairsmith.runs.folder import read_manifest
from pairsmith.runs.identity import Identity


@contextmanager
def recorded(
    run: Run, identity: Identity, name: str, *, any_work: bool = False
) -> Iterator[Callable[..., None]]:
    """Lock the run's folder for a tool; yields a function that writes the record ``name``, with more fields.

    A folder that another tool or other work wrote is refused; other work of this tool only without
    ``any_work``.
    """
    claim(run, identity, name, lambda out: read_manifest(out, name, Manifest), lambda _: any_work)
    try:
        yield lambda **more: write_json(run.out / name, identity.as_record() | more)
    finally:
        lock.release(run.out)
