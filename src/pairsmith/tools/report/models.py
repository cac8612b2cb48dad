"""The report's sections on a trained model and on an evaluation."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pairsmith.core.progress import clock
from pairsmith.tools.report.charts import lines
from pairsmith.tools.report.parts import Block, Chart, Facts, Note, Section, Table, number, shown

_NOT_FIGURES = {"about", "seconds"}


def model_section(record: Mapping[str, Any]) -> Section:
    """The section on a model, from its ``training.json``: settings, and how the training went."""
    rows = [("step", str(record.get("step", ""))), *settings_rows(record)]
    if isinstance(record.get("seconds"), int | float):
        rows.append(("time taken", clock(record["seconds"])))
    if record.get("steps"):
        rows.append(("steps", f"{record['steps']:,}; step {record.get('best_step', 0):,} was kept"))
    chosen = [choices(record)] if record.get("choices") else list(curves(record))
    blocks: list[Block] = [Facts(rows), *chosen]
    return Section("Training", blocks)


def choices(record: Mapping[str, Any]) -> Block:
    """The values that were tried for a setting of a classifier, with the figures of each."""
    tried = record["choices"]
    names = list(tried[0])
    return Table(
        [name.replace("_", " ") for name in names],
        [tuple(f"{each[name]:g}" for name in names) for each in tried],
    )


def curves(record: Mapping[str, Any]) -> Iterator[Block]:
    """The validation figures by training step; a line for each learning rate where several were tried."""
    rates = record.get("rates") or []
    series: dict[str, list[tuple[float, float]]] = {}
    names: set[str] = set()
    for tried in rates or [record]:
        for point in tried.get("validation") or []:
            for name, value in point.items():
                if name != "step" and isinstance(value, int | float):
                    names.add(name)
                    line = f"learning rate {tried['learning_rate']:g}" if rates else name
                    series.setdefault(line, []).append((float(point["step"]), float(value)))
    if series:
        yield Chart(lines(series, "step"), f"On the validation data: {', '.join(sorted(names))}.")
    else:
        yield Note("It was trained without validation data.")


def evaluation_section(results: Mapping[str, Any]) -> Section:
    """The section on an evaluation, from its ``results.json``: figures with intervals, and settings."""
    about = results.get("about", {})
    blocks: list[Block] = [Facts([("step", str(about.get("step", ""))), *settings_rows(about)])]
    if figures := list(figure_rows(results)):
        blocks.append(Table(["figure", "value", "95 %"], figures))
    texts = [
        (shown(name, 60), shown(value, 200))
        for name, value in results.items()
        if isinstance(value, str) and name not in _NOT_FIGURES
    ]
    if texts:
        blocks.append(Facts(texts))
    return Section("Evaluation", blocks)


def figure_rows(results: Mapping[str, Any], above: Sequence[str] = ()) -> Iterator[tuple[str, str, str]]:
    """Name, value and 95 % interval (empty where there is none) of every number in the results."""
    for name, value in results.items():
        if name in _NOT_FIGURES or name.endswith("_ci"):
            continue
        if isinstance(value, Mapping):
            yield from figure_rows(value, (*above, name))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            limits = results.get(f"{name}_ci")
            spread = f"{limits[0]:.2f} to {limits[1]:.2f}" if isinstance(limits, list) else ""
            yield shown(" · ".join((*above, name)), 100), number(value, 2), spread


def settings_rows(record: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The settings, inputs and models in a record."""
    rows = [
        (shown(name, 60), shown(str(value), 200))
        for name, value in record.get("settings", {}).items()
        if value not in (None, "", [], {})
    ]
    # An evaluation records these beside its settings, as only their content matters to its identity.
    rows += [(name, shown(str(record[name]), 200)) for name in ("model", "data") if record.get(name)]
    rows += [
        (f"content of {name}", f"SHA-256 {value[:16]}…") for name, value in record.get("inputs", {}).items()
    ]
    rows += [(f"revision of {name}", shown(value, 100)) for name, value in record.get("models", {}).items()]
    return rows
