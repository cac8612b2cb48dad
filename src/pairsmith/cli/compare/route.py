"""``pairsmith compare``: which way of making rows gives the best model, for one task and one base model.

comparison -> a recipe for each seed -> rows, models, figures -> means with intervals, and costs
"""

import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pairsmith.cli.compare.file import Comparison, EvaluationEntry
from pairsmith.cli.compare.outcome import Cost, Score, as_record
from pairsmith.cli.compare.page import page
from pairsmith.cli.compare.recipe import Trial, as_recipe, once_recipe, steps_of_ways, trials
from pairsmith.cli.compare.tokens import written_tokens
from pairsmith.cli.figures import figure_fault, figure_forms
from pairsmith.cli.recipes import Recipe, load_recipe
from pairsmith.cli.run_record import RUN_RECORD
from pairsmith.cli.running import figure_of, run_recipe
from pairsmith.cli.steps import STEPS
from pairsmith.core.errors import FolderError, SettingsError, StorageError, counted, known_names_hint
from pairsmith.core.paths import Place
from pairsmith.core.progress import Progress
from pairsmith.runs.storage import write_atomic, write_json
from pairsmith.tools.report.route import COMPARISON

COMPARISON_RECORD = "comparison.json"
ONCE = "once"
_FAULT = re.compile(r".*?recipe\.yaml:\d+: (?P<setting>[\w.-]+): ")
_REMEDY = re.compile(r" with --set \S+=PATH")
_OWN_FILES = {COMPARISON_RECORD, COMPARISON, ONCE}


def run_comparison(
    comparison: Comparison,
    out: Place,
    progress: Progress,
    *,
    fresh: bool = False,
    fresh_steps: Sequence[str] = (),
    only_write: bool = False,
) -> tuple[list[Score], dict[str, Cost]]:
    """Run a comparison, and write ``comparison.json`` and ``comparison.html`` into ``out``.

    Each seed has a folder ``seed-N`` with an ordinary recipe, ``recipe.yaml``, and the folder ``run`` of its
    run. Steps that an earlier call finished are not run again, except the steps of ``fresh_steps``, which
    start over with every seed, or once if they are under ``once``. With ``only_write``, only the recipes are
    written, and both results are empty.

    Returns:
        the scores of all trials, and the cost of each way.
    """
    if not isinstance(out, Path):
        raise FolderError(f"--out {out}: a comparison needs a folder on this machine; give a path")
    _refuse_others(out)
    check_figure(comparison.measure)
    _check_recipe(comparison)
    folders = {seed: out / f"seed-{seed}" for seed in comparison.seeds}
    once_run = out.resolve() / ONCE / "run"
    recipes = {seed: as_recipe(comparison, seed, once_run) for seed in comparison.seeds}
    once = once_recipe(comparison) if comparison.once else None
    _check_steps(fresh_steps, [*recipes.values(), *([once] if once else [])])
    once_file = _write_recipe(once, out / ONCE) if once else None
    files = {seed: _write_recipe(recipes[seed], folder) for seed, folder in folders.items()}
    if only_write:
        for path in filter(None, [once_file, *files.values()]):
            progress.say(f"wrote {path}")
        if once_file is not None:
            progress.say(f"to run first: pairsmith run {once_file} --out {out / ONCE / 'run'}")
        return [], {}

    def run_one(recipe: Recipe, folder: Path, before: Path | None = None) -> dict[str, Any]:
        own = {step.name for step in recipe.steps}
        afresh = [name for name in fresh_steps if name in own]
        return run_recipe(recipe, folder, progress, fresh=fresh, fresh_steps=afresh, before=before)

    if once_file is not None:
        run_one(load_recipe(once_file), once_run)
    # Loaded only now, as loading checks that the folders which the steps under ``once`` write exist.
    runs = [_Run(folder / "run", load_recipe(files[seed])) for seed, folder in folders.items()]
    figures = []
    for number, (seed, run) in enumerate(zip(folders, runs, strict=True), start=1):
        progress.say(f"seed {seed} ({number}/{len(runs)}) → {folders[seed]}")
        figures.append(run_one(run.recipe, run.folder, once_run))
    scores = [_score(trial, figures, runs) for trial in trials(comparison)]
    costs = {
        way: _cost([step.name for step in steps], runs) for way, steps in steps_of_ways(comparison).items()
    }
    write_json(out / COMPARISON_RECORD, as_record(comparison, scores, costs))
    write_atomic(out / COMPARISON, page(comparison, scores, costs).encode("utf-8", "replace"))
    progress.say(f"wrote {out / COMPARISON}")
    return scores, costs


@dataclass(frozen=True, slots=True)
class _Run:
    """A recipe and the folder of its run; the methods read the costs of steps once the recipe has run."""

    folder: Path
    recipe: Recipe

    def spent(self, steps: Iterable[str]) -> float:
        """How many seconds these steps took together."""
        record: dict[str, float] = json.loads((self.folder / RUN_RECORD).read_text(encoding="utf-8"))["spent"]
        return round(sum(record.get(name, 0.0) for name in steps), 1)

    def rows(self, step: str) -> int:
        """Number of rows that a step made."""
        return int(figure_of(f"{step}:rows", self.folder, "rows"))

    def tokens(self, steps: Sequence[str]) -> int:
        """Number of tokens that models generated in these steps."""
        count = 0
        for step in self.recipe.steps:
            if step.name in steps:
                model = getattr(step.settings(self.folder), "model", None)
                count += written_tokens(self.folder / step.name, step.kind, model)
        return count


def _check_steps(names: Iterable[str], recipes: Iterable[Mapping[str, Any]]) -> None:
    """Raise a ``SettingsError`` unless a recipe has a step of each name."""
    known = {step["name"] for recipe in recipes for step in recipe["steps"]}
    for name in names:
        if name not in known:
            hint = known_names_hint(name, known)
            raise SettingsError(f"--fresh-step {name}: the comparison has no such step; {hint}")


def _refuse_others(out: Path) -> None:
    """Refuse a folder that holds anything but a comparison."""
    if out.exists() and not out.is_dir():
        raise FolderError(f"--out {out} is a file; give a folder")
    inside = sorted(file.name for file in out.iterdir()) if out.is_dir() else []
    others = [name for name in inside if not name.startswith(("seed-", ".")) and name not in _OWN_FILES]
    if others:
        raise FolderError(
            f"--out {out} holds something other than a comparison ({others[0]}); give another folder"
        )


def _write_recipe(recipe: Mapping[str, Any], folder: Path) -> Path:
    """Write a recipe to ``folder`` and return the file's path."""
    path = folder / "recipe.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder} cannot be created: {error.strerror}") from None
    write_atomic(path, yaml.safe_dump(recipe, sort_keys=False, allow_unicode=True).encode())
    return path


def check_figure(measure: EvaluationEntry) -> None:
    """Raise a ``SettingsError`` if the evaluation gives no such number (see ``figure_fault``)."""
    if step := STEPS.get(measure.step):
        forms = figure_forms(measure.step, step, measure.settings)
        if fault := figure_fault(measure.step, measure.figure, forms, intervals=False):
            raise SettingsError(f"measure.figure: {fault}")


def _check_recipe(comparison: Comparison) -> None:
    """Check the whole comparison as one recipe before anything is run."""
    recipe = as_recipe(comparison.model_copy(update={"once": ()}), comparison.seeds[0], Path())
    recipe["steps"] = [*once_recipe(comparison)["steps"], *recipe["steps"]]
    with tempfile.TemporaryDirectory() as folder:
        try:
            load_recipe(_write_recipe(recipe, Path(folder)))
        except SettingsError as error:
            faults = _faults_of_comparison(str(error).splitlines())
            raise SettingsError(
                "the recipe made from this comparison has faults:\n" + "\n".join(faults)
            ) from None


def _faults_of_comparison(lines: Iterable[str]) -> Iterator[str]:
    """The faults of the recipe that is made from a comparison, each once, in words for the comparison's file.

    The messages name steps of the recipe, but neither lines of its file, which is removed, nor ``--set``,
    which a comparison does not have. As trials differ only in their rows, many steps may have the same fault.
    """
    settings: dict[str, list[str]] = {}
    for line in lines:
        match = _FAULT.match(line)
        fault = line[match.end() :] if match else line
        settings.setdefault(_REMEDY.sub("", fault), []).append(match["setting"] if match else "")
    for fault, (first, *others) in settings.items():
        more = f" (and {counted(len(others), 'more steps')})" if others else ""
        yield f"{first}{more}: {fault}" if first else fault


def _score(trial: Trial, figures: Sequence[Mapping[str, Any]], runs: Sequence[_Run]) -> Score:
    name = f"{trial.way} {trial.rows}"
    values = []
    for results in figures:
        value = results[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SettingsError(f"measure.figure: {name} is {value!r}, not a number; choose another figure")
        values.append(float(value))
    rows = [run.rows(trial.data) if trial.ways else 0 for run in runs]
    return Score(trial, rows, values, [run.spent([trial.trained]) for run in runs])


def _cost(steps: Sequence[str], runs: Sequence[_Run]) -> Cost:
    """The cost of a way with these steps, in each of the runs."""
    return Cost(
        [run.spent(steps) for run in runs],
        [run.tokens(steps) for run in runs],
        [run.rows(steps[-1]) for run in runs],
    )
