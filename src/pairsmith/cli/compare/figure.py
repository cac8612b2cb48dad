"""Checks the figure that a comparison compares before anything is trained."""

import re
from collections.abc import Sequence

from pairsmith.cli.compare.file import Measured
from pairsmith.core.errors import SettingsError, known_names_hint
from pairsmith.steps.step import StepTable

_NAME_IN_CAPITALS = re.compile(r"[A-Z]+")


def check_figure(measure: Measured, steps: StepTable) -> None:
    """Raise a ``SettingsError`` if the evaluation has no such figure, as far as it can be told beforehand.

    For ``evaluate-sts``, the names of the test sets are read from the data, unless a step makes them.
    """
    step = steps.get(measure.step)
    # With ``against``, an evaluation also gives its differences from an earlier one.
    known = step.figures if step and "against" not in measure.settings else ()
    data, suites = measure.settings.get("data"), measure.settings.get("suites")
    if known and measure.step == "evaluate-sts" and isinstance(data, str) and not data.startswith("@"):
        known = _with_suites(known, data, [suites] if isinstance(suites, str) else suites)
    if known and not any(_is_of_form(measure.figure, form) for form in known):
        raise SettingsError(
            f"measure.figure: {measure.step} gives no number {measure.figure!r}; "
            f"{known_names_hint(measure.figure, known)}"
        )


def _with_suites(forms: Sequence[str], data: str, names: Sequence[str] | None) -> tuple[str, ...]:
    """``forms`` for each of the test sets in ``data``; the figures of subsets only if the set has several."""
    from pairsmith.data.sts import read_sts

    known = []
    for suite in read_sts(data, names or None):
        for form in forms:
            key = form.removeprefix("SUITE.")
            if len(suite.subsets) > 1 or not key.startswith(("mean", "subsets")):
                known.append(f"{suite.name}.{key}")
    return tuple(known)


def _is_of_form(figure: str, form: str) -> bool:
    """Whether ``figure`` has the keys of ``form``, in which a key in capitals stands for any name."""
    keys = (".+" if _NAME_IN_CAPITALS.fullmatch(key) else re.escape(key) for key in form.split("."))
    return re.fullmatch(r"\.".join(keys), figure) is not None
