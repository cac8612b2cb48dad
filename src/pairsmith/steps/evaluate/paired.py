"""Comparison of an evaluation with an earlier one on the same data: differences, intervals and verdicts."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Generic, Self, TypeVar

from pairsmith.core.errors import DamagedError, FolderError, InputError, counted, one_line, redacted
from pairsmith.core.paths import Place, place, reaching
from pairsmith.core.settings import Settings
from pairsmith.core.text_width import left_aligned, text_width
from pairsmith.metrics.bootstrap import interval
from pairsmith.runs import Run, model_display_name
from pairsmith.steps.evaluate.figures import Resampled
from pairsmith.steps.evaluate.results import (
    FEW_ROWS,
    PREDICTIONS,
    RESULTS,
    EvaluationRecord,
    is_intact,
    read_about,
)

BETTER, WORSE, NOISE = "better", "worse", "within noise"

_WIDEST_INTERVAL = (-100.0, 100.0)
"""All differences of two figures from 0 to 100: the interval if no resample has a value of the figure."""
_SHOWN = 60
"""Largest number of characters of a value in an error message."""
_BEFORE = 20
"""Number of characters before the first difference in an error message, if the values are long."""

S = TypeVar("S", bound=Settings)
D = TypeVar("D")

Line = Mapping[str, Any]
"""A line of ``predictions.jsonl``."""


@dataclass(frozen=True, slots=True)
class EarlierEvaluation:
    """A finished evaluation to compare with: its folder, its record, and the content of ``results.json``."""

    folder: Place
    record: EvaluationRecord
    results: Mapping[str, Any]

    @classmethod
    def open(cls, against: str, step: str) -> Self:
        """Open the folder ``against``, which ``step`` has to have written.

        Raises:
            FolderError: another step wrote the folder, or the evaluation is unfinished.
            DamagedError: the predictions have changed since they were written.
        """
        folder = place(against)
        remedy = f"give a folder that {step} wrote"
        try:
            with reaching(folder, InputError):
                record = read_about(folder)
        except FolderError as error:
            raise FolderError(f"--against: {error}; {remedy}") from error
        earlier = cls(folder, record, json.loads((folder / RESULTS).read_bytes()))
        if record.step != step:
            raise FolderError(f"{earlier.option}: has results of {record.step}; {remedy}")
        if not record.complete:
            raise FolderError(
                f"{earlier.option}: this evaluation is not finished; run its command again to finish it"
            )
        if not is_intact(folder, record):
            raise DamagedError(
                f"{earlier.option}: {PREDICTIONS} has changed since it was written; evaluate its model "
                "again, with --fresh"
            )
        return earlier

    @property
    def option(self) -> str:
        """The option that names the folder, for messages."""
        return f"--against {self.folder}"

    def check_settings(self, settings: Settings, names: Iterable[str]) -> None:
        """Raise a ``FolderError`` unless the settings ``names`` had the same values as in ``settings``.

        Lists may be in another order.
        """
        for name in names:
            earlier_value, value = self.record.settings.get(name), getattr(settings, name)
            if _sorted(earlier_value) != _sorted(value):
                raise FolderError(
                    f"{self.option}: measured with {name} {earlier_value}, here it is {value}; the figures "
                    "depend on it, so give the same value to both evaluations"
                )

    def to_json(self) -> dict[str, Any]:
        """The folder, and the display name of the model that was evaluated, for ``results.json``."""
        model = model_display_name(str(self.results["about"].get("model", "")))
        return {"folder": redacted(str(self.folder)), "model": model}


def _sorted(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Predictions:
    """The lines of ``predictions.jsonl`` in the folder of an evaluation.

    A loop over them reads the file from its beginning, line by line, so that only one line is in memory.
    """

    folder: Place

    def __len__(self) -> int:
        return sum(1 for _ in self._texts())

    def __iter__(self) -> Iterator[Line]:
        return map(json.loads, self._texts())

    def _texts(self) -> Iterator[bytes]:
        file = self.folder / PREDICTIONS
        with reaching(file, InputError), file.open("rb") as texts:
            yield from texts


@dataclass(frozen=True, slots=True, eq=False)
class Paired(Generic[S, D]):
    """How an evaluation is compared with an earlier one on the same rows.

    Attributes:
        rows: what the rows are called, such as ``questions``.
        rows_of: the rows of the data, in the order of ``predictions.jsonl``. Each has the fields of its line
            that do not depend on the model.
        figures: the figures to compare, by name, from the lines of ``predictions.jsonl``, which can be
            iterated several times. Two calls with the same number of lines draw the same resamples, which
            depend on ``bootstrap`` and ``seed`` of the settings alone.
        same: the names of settings that must have the same values in both evaluations.
        same_if_trained: the same for settings that have no effect without the setting ``train``, so they are
            only compared if both evaluations have it.
        normalise: for fields that may be spelled in several ways, by name, a function that returns the same
            value for all spellings. It is applied to the values of both ``rows_of`` and ``predictions.jsonl``
            before they are compared.
        names: returns the names of the figures that an evaluation with these settings will have. If the
            earlier one has none of them, that is an error. None if some figure is in all results.
        advice: for some fields, by name, the end of the error message about rows in which the field differs.
    """

    rows: str
    rows_of: Callable[[S, D], Iterable[Mapping[str, Any]]]
    figures: Callable[[S, Iterable[Line]], Mapping[str, Resampled]]
    same: Sequence[str] = ()
    same_if_trained: Sequence[str] = ()
    normalise: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    names: Callable[[S], Collection[str]] | None = None
    advice: Mapping[str, str] = field(default_factory=dict)

    def open(
        self, step: str, settings: S, read: Callable[[], D]
    ) -> tuple[EarlierEvaluation, Mapping[str, Resampled]] | None:
        """The evaluation by ``step`` that the setting ``against`` names, with its figures; None if unset.

        The folder is read here and not when the evaluation is finished: it may have changed by then.
        ``read`` reads the data.

        Raises:
            FolderError: it was evaluated on other rows, or with other settings, or no figure of it can be
                compared; further faults are those of ``EarlierEvaluation.open``.
        """
        against = getattr(settings, "against", None)
        if against is None:
            return None
        earlier = EarlierEvaluation.open(against, step)
        earlier.check_settings(settings, self.same)
        if getattr(settings, "train", None) and earlier.results["about"].get("train"):
            earlier.check_settings(settings, self.same_if_trained)
        data, lines = read(), Predictions(earlier.folder)
        for number, (row, line) in enumerate(zip_longest(self.rows_of(settings, data), lines), start=1):
            if fault := self._difference(row, line):
                count = sum(1 for _ in self.rows_of(settings, data))
                raise FolderError(
                    f"{earlier.option}: measured on other {self.rows} (there {len(lines):,}, here "
                    f"{count:,}): row {number:,} {fault}"
                )
        figures = self.figures(settings, lines)
        if self.names and figures.keys().isdisjoint(names := self.names(settings)):
            raise FolderError(
                f"{earlier.option}: has none of the figures of this evaluation (there "
                f"{', '.join(figures)}; here {', '.join(names)}); give a result that has one of them"
            )
        return earlier, figures

    def _difference(self, row: Mapping[str, Any] | None, line: Line | None) -> str:
        """How the row of a line of predictions differs from ``row``, with advice; empty if it is the same."""
        advice = "give a result on the same rows in the same order, or first evaluate its model on these data"
        if row is None or line is None:
            return f"is missing {'here' if row is None else 'there'}; {advice}"
        for name, value in row.items():
            normal = self.normalise.get(name, lambda value: value)
            if normal(line.get(name)) != normal(value):
                there, here = _excerpts(line.get(name), value)
                return f"has the {name} {there!r} there, {here!r} here; {self.advice.get(name, advice)}"
        return ""

    def compare(
        self, opened: tuple[EarlierEvaluation, Mapping[str, Resampled]] | None, settings: S, run: Run
    ) -> dict[str, Any] | None:
        """The finished evaluation in the run's folder minus the earlier one, for ``results.json``.

        ``opened`` is the result of ``open``.
        """
        if opened is None:
            return None
        earlier, earlier_figures = opened
        own = Predictions(run.out)
        warn_of_few(len(own), self.rows, run)
        return earlier.to_json() | paired_differences(self.figures(settings, own), earlier_figures)


def _excerpts(there: object, here: object) -> list[str]:
    """At most ``_SHOWN`` characters of both values, each as one line, among them the first that differs."""
    lines = [one_line(str(value)) for value in (there, here)]
    same = next((at for at, (a, b) in enumerate(zip_longest(*lines)) if a != b), 0)
    start = 0 if same < _SHOWN - _BEFORE else same - _BEFORE
    return [("…" if start else "") + line[start : start + _SHOWN] for line in lines]


def warn_of_few(count: int, rows: str, run: Run) -> None:
    """Warn if a comparison is over few rows; ``rows`` are what they are called, such as ``queries``."""
    if count < FEW_ROWS:
        few = counted(count, f"{rows} are")
        run.progress.say(
            f"{few} few, which makes the intervals too narrow: take better or worse as a hint only"
        )


def paired_differences(
    figures: Mapping[str, Resampled], earlier: Mapping[str, Resampled]
) -> dict[str, dict[str, Any]]:
    """The ``figures`` minus those of an earlier evaluation, for ``results.json``, see ``with_verdict``.

    Both have to be drawn over the same resamples, so that hard and easy rows affect both alike. A figure that
    only one of them has is left out.
    """
    return {
        name: with_verdict(
            figure.value - earlier[name].value,
            interval(figure.draws - earlier[name].draws) or _WIDEST_INTERVAL,
        )
        for name, figure in figures.items()
        if name in earlier
    }


def with_verdict(difference: float, limits: tuple[float, float]) -> dict[str, Any]:
    """A difference, the limits of its 95 % interval (both ×100), and a verdict, for ``results.json``.

    The ``verdict`` is ``BETTER`` or ``WORSE``, or ``NOISE`` if the interval contains 0.
    """
    low, high = (round(limit, 4) + 0.0 for limit in limits)  # -0.0 becomes 0.0
    return {
        "difference": round(difference, 4) + 0.0,
        "difference_ci": [low, high],
        "verdict": BETTER if low > 0 else WORSE if high < 0 else NOISE,
    }


def paired_table(
    against: Mapping[str, Any], rows: str, figures: Mapping[str, Mapping[str, Any]] | None = None
) -> str:
    """Differences, as ``with_verdict`` returns them, as a text table with a line for each.

    ``against`` is the comparison in ``results.json``; ``rows`` names the items that both evaluations share.
    ``figures`` are the differences by the names to show; None: those of ``against``, by their own names.
    """
    if figures is None:
        figures = {name: figure for name, figure in against.items() if isinstance(figure, Mapping)}
    width = max(13, *map(text_width, figures)) + 1
    lines = [f"compared with {against['folder']} ({against['model']}), over the same {rows}"]
    lines.append(f"{'difference':<{width}}{'×100':>6}  (95 %)")
    for name, figure in figures.items():
        low, high = figure["difference_ci"]
        lines.append(
            f"{left_aligned(name, width)}{figure['difference']:+6.2f}  [{low:+.2f}, {high:+.2f}]  "
            f"{figure['verdict']}"
        )
    return "\n".join(lines)
