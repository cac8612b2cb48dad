"""Settings that a continued run takes from the earlier run in its folder: shard size and number format."""

from contextlib import suppress
from typing import ClassVar, Protocol, TypeVar

from pairsmith.core.errors import FolderError, PairsmithError
from pairsmith.core.fields import ShardBounds
from pairsmith.core.model_files import multiplies_fast, pick_device, pick_dtype
from pairsmith.core.paths import Place, reaching
from pairsmith.core.settings import Settings
from pairsmith.runs.claim import Run
from pairsmith.runs.journal import read_run
from pairsmith.runs.status import record_of

S = TypeVar("S", bound=Settings)


class _Sharded(Protocol):
    """Settings of a step that has shards; without ``shard_size``, the number of items decides their size."""

    shard_bounds: ClassVar[ShardBounds]

    @property
    def shard_size(self) -> int | None: ...


def shard_size_of(settings: _Sharded, run: Run, count: int) -> int:
    """The number of items of each shard.

    It is ``settings.shard_size`` if that is set, else the shard size of the work that was begun in the
    folder, else a size that suits ``count`` items. All ranks of an array job get the same size, as they count
    the same items and see the same folders.
    """
    if settings.shard_size is not None:
        return settings.shard_size
    if run.kept and not run.fresh:
        for folder in run.folders_of_job():
            size = begun_with(folder, "shard_size")
            if isinstance(size, int) and size > 0:
                return size
    return settings.shard_bounds.pick(count)


def begun_with(folder: Place, name: str) -> object:
    """The value of the setting ``name`` of the work that was begun in ``folder``; None without such work."""
    settings: object = None
    # A damaged record is ignored here: when the folder is claimed, it is reported or restored.
    with suppress(PairsmithError), reaching(folder, FolderError):
        settings = (record_of(folder) or {}).get("settings")
    with suppress(PairsmithError), reaching(folder, FolderError):
        if run := read_run(folder):
            settings = run.settings
    return settings.get(name) if isinstance(settings, dict) else None


def resolve_dtype(settings: S, run: Run | None = None) -> S:
    """``settings`` with a number format in place of ``dtype: auto``, as the format affects a step's rows.

    Every step calls this first. Work that was begun in the run's folder continues in the same format, on any
    machine. If workers run on other machines, the machine that starts them decides the format for all, unless
    ``device`` says that the workers have GPUs. The user is told if the format is slow on this machine.
    """
    dtype, device = getattr(settings, "dtype", None), getattr(settings, "device", None)
    if dtype is None or device is None or dtype == "float32":
        return settings
    chosen_device = device if device.startswith("cuda") else pick_device(device)
    begun = None
    if dtype == "auto" and run and run.kept and not run.fresh:
        begun = _begun_dtype(run.out) or _begun_dtype(run.job_folder)
    precision = begun or pick_dtype(dtype, chosen_device)
    served = str(getattr(settings, "model", "")).startswith(("http://", "https://"))
    slow = chosen_device == "cpu" and precision != "float32" and not multiplies_fast(precision, "cpu")
    if run and slow and not served:
        why = "it is used because the work in this folder was begun with it"
        instead = why if begun else "--dtype auto is faster for new work"
        run.progress.say(
            f"{precision} is slow on this machine: its processor has no fast instructions for it; {instead}"
        )
    return settings.model_copy(update={"dtype": precision})


def _begun_dtype(folder: Place) -> str | None:
    """The number format that the work in a folder was begun in; None without such work."""
    dtype = begun_with(folder, "dtype")
    return dtype if dtype in ("float32", "bfloat16", "float16") else None
