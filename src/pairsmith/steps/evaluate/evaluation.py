"""What most evaluations share: the order of their work, and the extrapolation of its cost from a sample.

Many read formats of their own, whose rows cannot be cut, and models without heads stand in for those that an
earlier step will train; so a plan times the work on what the readers yield, not the step on a part of a file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Generic, TypeVar

from pairsmith.core.model_names import model_revision
from pairsmith.core.progress import Progress
from pairsmith.core.settings import Settings
from pairsmith.runs import Run, hash_source, resolve_dtype
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.steps.evaluate.results import Evaluated, evaluate_once, with_evaluation_splits
from pairsmith.steps.planning import evenly_spaced, timed

S = TypeVar("S", bound=Settings)
D = TypeVar("D")
T = TypeVar("T")

CALIBRATION_ITEMS = 512


def _hash_of_data(settings: Any, _: object) -> Mapping[str, str]:
    return {"data": hash_source(settings.data)}


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation(Generic[S, D]):
    """A step that evaluates a model; called with settings and a run, it returns what ``results.json`` holds.

    Attributes:
        name: of the step.
        read: reads the data that the settings name.
        compute: evaluates the model of the settings on them.
        table: makes of the results what is shown to the user.
        planner: says what the step will cost, given settings with a split for each folder.
        hashes: hashes of what is read, by name, given a function that reads it, as the hash of some files
            does not need their rows.
        revision: the revision of a model by its name.
    """

    name: str
    read: Callable[[S], D]
    compute: Callable[[S, D, Progress], Evaluated]
    table: Callable[[Mapping[str, Any]], str]
    planner: Callable[[S, Before], Estimate]
    hashes: Callable[[S, Callable[[], D]], Mapping[str, str]] = _hash_of_data
    revision: Callable[[str], str] = model_revision

    def __call__(self, settings: S, run: Run) -> dict[str, Any]:
        """Evaluate, write the results into the run's folder, and show a table."""
        settings = with_evaluation_splits(resolve_dtype(settings, run), run.progress.say)
        data, model = cache(partial(self.read, settings)), getattr(settings, "model", "")
        return evaluate_once(
            run,
            self.name,
            settings,
            inputs=self.hashes(settings, data),
            models={"model": self.revision(model)},
            compute=lambda: self.compute(settings, data(), run.progress),
            table=self.table,
        )

    def plan(self, settings: S, before: Before) -> Estimate:
        """What the step will cost; errors as for the step."""
        return self.planner(with_evaluation_splits(settings), before)


def evaluation_estimate(seconds: float, size: int) -> Estimate:
    """The estimate for an evaluation whose predictions take ``size`` bytes."""
    return Estimate(seconds=seconds, memory=peak_memory(), disk=4096 + size, rows={})


def extrapolated(
    load: Callable[[], Callable[[Sequence[T]], object]],
    items: Sequence[T],
    count: float,
    size: int | Callable[[T], int],
    *,
    seconds: float = 0.0,
    most: int = CALIBRATION_ITEMS,
    few: int = 8,
) -> Estimate:
    """The estimate for an evaluation of ``count`` items, of which about ``most`` of ``items`` are timed.

    ``load`` and ``few`` are as for ``timed``. ``size`` is the bytes of all predictions, or gives those of an
    item's; ``seconds`` are those of other work.
    """
    loading, per_item, _ = timed(load, evenly_spaced(items, most), few)
    if not isinstance(size, int):
        size = int(sum(map(size, items)) * count // max(1, len(items)))
    return evaluation_estimate(seconds + loading + per_item * count, size)
