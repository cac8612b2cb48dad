"""The number format that a step computes in, where its settings leave that to the machine."""

from typing import TypeVar

from pairsmith.errors import FolderError
from pairsmith.modelfiles import multiplies_fast, pick_device, pick_dtype
from pairsmith.places import Place, reaching
from pairsmith.runs.claim import Run
from pairsmith.runs.status import record_of
from pairsmith.settings import Settings

S = TypeVar("S", bound=Settings)


def settled(settings: S, run: Run | None = None) -> S:
    """The same settings with the number format said; what decides a step's rows is not left open.

    Work that lies half done in the run's folder goes on in the format that it was begun in, on whatever
    machine. Says so where the format was asked for and is a slow one here.

    Raises:
        FolderError: the record in the run's folder cannot be read.
        SettingsError: there is no such device.
    """
    dtype, device = getattr(settings, "dtype", None), getattr(settings, "device", None)
    if dtype is None or device is None:
        return settings
    if dtype != "auto":
        if run and dtype != "float32" and not multiplies_fast(dtype, pick_device(device)):
            run.progress.say(
                f"--dtype {dtype} is slow here: this processor has no instructions for it; auto or float32 "
                "takes less time"
            )
        return settings
    begun = _begun(run.out) if run and run.kept and not run.fresh else None
    return settings.model_copy(update={"dtype": begun or pick_dtype("auto", pick_device(device))})


def _begun(folder: Place) -> str | None:
    """The number format that the work in a folder was begun in, where there is such work."""
    with reaching(folder, FolderError):
        record = record_of(folder) or {}
    found = record.get("settings", {}).get("dtype")
    return found if found in ("float32", "bfloat16", "float16") else None
