"""What most evaluation steps share: the order of their work, and the estimate of its cost from a sample.

A plan does not run the step on a part of the file, because many evaluations read formats that cannot be cut
into rows, and because a model without a trained head stands in for one that an earlier step will train.
Instead it times the model on a sample of the items that were read.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Generic, TypeVar

from pairsmith.core.model_names import model_revision
from pairsmith.core.paths import is_folder, place
from pairsmith.core.progress import Progress, Say
from pairsmith.core.settings import Settings
from pairsmith.data.files.folders import own_folder
from pairsmith.data.splits import to_measure_on, to_train_on
from pairsmith.runs import DatasetFolder, Run, hash_source, resolve_dtype
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.identity import Identity
from pairsmith.steps.evaluate.paired import Paired, paired_table
from pairsmith.steps.evaluate.results import AGAINST, Evaluated, evaluate_once
from pairsmith.steps.planning import evenly_spaced, timed
from pairsmith.steps.shared import refuse_sources, with_sources

S = TypeVar("S", bound=Settings)
D = TypeVar("D")
T = TypeVar("T")

CALIBRATION_ITEMS = 512
"""Number of items of the sample that a plan times."""


def _hash_of_data(settings: Any, _: object) -> Mapping[str, str]:
    return {"data": hash_source(settings.data)}


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation(Generic[S, D]):
    """A step that evaluates a model; a call with settings and a run returns the content of ``results.json``.

    Attributes:
        name: the name of the step.
        read: reads the data; its settings name one split of each folder (``with_evaluation_splits``).
        compute: evaluates the model that the settings name on these data.
        table: formats the results as a table for the user.
        planner: estimates the cost of the step from the same settings as ``read`` gets, and from the
            estimates of earlier steps.
        paired: how it is compared with the earlier evaluation that the setting ``against`` names.
        hashes: returns the hashes of the data, by name. Its second argument is a function that reads the
            data; it need not be called if the files can be hashed without reading their rows.
        revision: returns the revision of a model, given its name.
        check_labels: raises an error if the data that were read have labels that a model with these labels
            does not know; None if the evaluation has no labels.
    """

    name: str
    read: Callable[[S], D]
    compute: Callable[[S, D, Progress], Evaluated]
    table: Callable[[Mapping[str, Any]], str]
    planner: Callable[[S, Before], Estimate]
    paired: Paired[S, D]
    hashes: Callable[[S, Callable[[], D]], Mapping[str, str]] = _hash_of_data
    revision: Callable[[str], str] = model_revision
    check_labels: Callable[[S, D, Collection[str]], object] | None = None

    def check_data(self, settings: S, labels: Collection[str] = ()) -> None:
        """Read the data, without the model, and raise an error if they or ``against`` have a fault.

        ``labels`` are those that the model will know; empty if they are not known before it is trained.
        """
        settings = with_evaluation_splits(settings)
        data = self.read(settings)
        if labels and self.check_labels:
            self.check_labels(settings, data, labels)
        self.paired.open(self.name, settings, lambda: data)

    def __call__(self, settings: S, run: Run) -> dict[str, Any]:
        """Evaluate, write the results into the run's folder, and show a table."""
        settings = with_evaluation_splits(resolve_dtype(settings, run), run.progress.say)
        read = cache(partial(self.read, settings))
        inputs = self.hashes(settings, read)
        models = {"model": self.revision(getattr(settings, "model", ""))}
        # If "data" is not among the inputs, only some files in it are hashed, and others may be added.
        data = getattr(settings, "data", None) if "data" in inputs else None
        refuse_sources(run, data=data, against=getattr(settings, AGAINST, None))
        earlier = self.paired.open(self.name, settings, read)
        return evaluate_once(
            run,
            Identity.of(self.name, settings.deciding(), inputs, models),
            settings,
            lambda: self.compute(settings, read(), run.progress),
            table=self._table,
            compare=partial(self.paired.compare, earlier, settings, run),
        )

    def _table(self, results: Mapping[str, Any]) -> str:
        table = self.table(results)
        if AGAINST not in results:
            return table
        return f"{table}\n{paired_table(results[AGAINST], self.paired.rows)}"

    def plan(self, settings: S, before: Before) -> Estimate:
        """Estimate the cost of the step; raises the same errors as the step."""
        return self.planner(with_evaluation_splits(settings), before)


def with_evaluation_splits(settings: S, say: Say | None = None) -> S:
    """The settings with one split of each dataset folder: ``train`` of training data, ``test`` of the others.

    A split that the settings name stays. ``say`` is called with a message about splits that are not used, if
    there are any.
    """

    def at_split(name: str, source: str) -> str:
        if not is_folder(place(source) / "data"):  # the evaluation itself reads other kinds of folders
            return source
        if name == "train":
            return to_train_on(source, "learned from", say)
        return to_measure_on(source, "measured on", say)

    return with_sources(settings, ("data", "judgements", "train"), at_split)


def evaluation_estimate(seconds: float, size: int) -> Estimate:
    """The estimate for an evaluation of ``seconds`` seconds whose predictions take ``size`` bytes."""
    return Estimate(seconds, disk=4096 + size)


def extrapolated(
    load: Callable[[], Callable[[Sequence[T]], object]],
    items: Sequence[T],
    count: float,
    size: int | Callable[[T], int],
    *,
    seconds: float = 0.0,
    most: int = CALIBRATION_ITEMS,
    documents: int = 0,
) -> Estimate:
    """The estimate for an evaluation of ``count`` items, from the time for a sample of ``items``.

    Args:
        load: loads the model and returns the function to time, as for ``timed``.
        items: the items to take the sample from.
        count: the number of items of the evaluation.
        size: the size of all predictions in bytes, or a function that returns the size for an item.
        seconds: duration of other work.
        most: about the number of items in the sample.
        documents: how many of the items are documents, whose vectors a step may keep for later steps.
    """
    loading, per_item, _ = timed(load, evenly_spaced(items, most))
    if not isinstance(size, int):
        size = int(sum(map(size, items)) * count // max(1, len(items)))
    estimate = evaluation_estimate(seconds + loading + per_item * count, size)
    return replace(estimate, encoding=per_item * documents)


def written_by_program(source: str, *steps: str) -> bool:
    """Whether ``source`` is a folder that one of ``steps`` wrote from texts that a language model generated.

    A folder of ``postprocess`` without a task, or of ``filter-queries`` without a column ``kind``, was not
    made from generated texts. A folder of ``remove`` counts as written by the step whose rows it holds.
    """
    own = own_folder(source)
    if own is None:
        return False
    folder = DatasetFolder.open(own)
    step = folder.manifest.rows_of
    if step == "postprocess" and folder.manifest.settings.get("task") is None:
        return False
    if step == "filter-queries" and "kind" not in folder.schema().names:
        return False
    return step in steps
