"""The number format that a step computes in, where its settings leave it open."""

from typing import TypeVar

from pairsmith.core.model_files import multiplies_fast, pick_device, pick_dtype
from pairsmith.core.paths import Place
from pairsmith.core.settings import Settings
from pairsmith.runs.begun import begun_with
from pairsmith.runs.claim import Run

S = TypeVar("S", bound=Settings)


def resolve_dtype(settings: S, run: Run | None = None) -> S:
    """The settings with the number format filled in, as it affects a step's rows.

    Every step calls this first. Work that was begun in the run's folder continues in the same format, on any
    machine. With workers on other machines, the machine that starts them decides for all, unless ``device``
    says that they have GPUs. The user is told if the format is slow on this machine.
    """
    dtype, device = getattr(settings, "dtype", None), getattr(settings, "device", None)
    if dtype is None or device is None or dtype == "float32":
        return settings
    chosen_device = device if device.startswith("cuda") else pick_device(device)
    begun = None
    if dtype == "auto" and run and run.kept and not run.fresh:
        begun = _begun(run.out) or _begun(run.whole)
    precision = begun or pick_dtype(dtype, chosen_device)
    served = str(getattr(settings, "model", "")).startswith(("http://", "https://"))
    if (
        run
        and chosen_device == "cpu"
        and not served
        and precision != "float32"
        and not multiplies_fast(precision, chosen_device)
    ):
        instead = (
            "for new work --dtype auto takes less time"
            if begun is None
            else "the work in this folder was begun with it"
        )
        run.progress.say(f"{precision} is slow here, as the processor has no instructions for it; {instead}")
    return settings.model_copy(update={"dtype": precision})


def _begun(folder: Place) -> str | None:
    """The number format that the work in a folder was begun in; None without such work."""
    dtype = begun_with(folder, "dtype")
    return dtype if dtype in ("float32", "bfloat16", "float16") else None
