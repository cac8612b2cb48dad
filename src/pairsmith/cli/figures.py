"""Checks the names of an evaluation's figures before anything is trained."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pairsmith.core.errors import UserError, known_names_hint
from pairsmith.steps.step import Step

_NAME_IN_CAPITALS = re.compile(r"[A-Z]+")


def figure_forms(name: str, step: Step, settings: Mapping[str, Any]) -> Sequence[str]:
    """The figures that the evaluation ``name`` gives; empty if they are not known beforehand.

    For ``evaluate-sts``, the names of the test sets are read from the data, unless a step makes them.

    Args:
        name: the name of the step, such as ``evaluate-qa``.
        step: the entry of the step in the table of steps.
        settings: the step's settings.
    """
    forms: Sequence[str] = step.figures
    data, suites = settings.get("data"), settings.get("suites")
    if name == "evaluate-sts" and not str(data).startswith("@"):
        if not isinstance(data, str):
            return ()  # the step itself reports data that are missing or have faults
        try:
            forms = _with_suites(forms, data, [suites] if isinstance(suites, str) else suites)
        except UserError:
            return ()
    # An evaluation also gives its differences from an earlier one.
    return [*forms, "against.FIGURE"] if forms and settings.get("against") else forms


def figure_fault(name: str, figure: str, forms: Sequence[str], *, intervals: bool) -> str | None:
    """An error message if the evaluation ``name`` gives no such figure.

    Args:
        name: the name of the step, such as ``evaluate-qa``.
        figure: the keys of the figure in ``results.json``, joined by dots.
        forms: the figures that it gives, see ``figure_forms``; if empty, any figure is accepted.
        intervals: whether the 95 % interval of a number, ``f1_ci`` of ``f1``, is accepted, too.
    """
    figures = [figure, re.sub(r"_ci(?=\.|$)", "", figure)] if intervals else [figure]
    if not forms or any(_is_of_form(number, form) for number in figures for form in forms):
        return None
    return f"{name} gives no number {figure!r}; {known_names_hint(figure, forms)}"


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
