"""Runs a recipe: its steps in order, except finished ones, and its table of results."""

import gc
import json
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from upath import UPath

from pairsmith import __version__
from pairsmith.cli.recipe_checks import check_extras, labels_of_model
from pairsmith.cli.recipes import RESULT, RUN_REFERENCE, PlannedStep, Recipe
from pairsmith.cli.run_record import RUN_RECORD, FinishedStep, RunRecord, record_of
from pairsmith.cli.setting_texts import texts_in
from pairsmith.core.errors import (
    BusyError,
    FolderError,
    OtherWorkError,
    SettingsError,
    StorageError,
    UserError,
    errors_in_other_words,
    known_names_hint,
)
from pairsmith.core.model_files import return_freed_memory
from pairsmith.core.paths import MANIFEST, Place, exists, is_folder, place
from pairsmith.core.progress import InOtherWords, Progress
from pairsmith.core.settings import Settings
from pairsmith.core.validation import shown_value

RESULTS = "results.json"

_running: dict[str, object] = {}
"""The folders in which this process runs recipes: locks do not keep out its other threads."""


def run_recipe(
    recipe: Recipe,
    out: Place,
    progress: Progress,
    *,
    fresh: bool = False,
    fresh_steps: Sequence[str] = (),
    before: Place | None = None,
) -> dict[str, Any]:
    """Run the steps in order, each in its folder ``out/name``, and write ``out/results.json``.

    A step is not run again if an earlier call has finished it with the same settings and inputs, and its
    folder is unchanged. A step that was stopped is continued if it can be. A step is started over if its
    settings are the same, but its input from earlier steps has changed; so is each of ``fresh_steps``, and
    with ``fresh`` every step. ``before`` is a folder in which another recipe has run steps: what this recipe
    reads there, by path, counts as input from earlier steps.

    A figure that a step's files do not hold is reported when the step is finished. The later steps still run,
    and the error is raised after the last one, when the other figures are written.

    Returns:
        the figures under the recipe's ``results``, and ``seconds``, the total time of the steps.

    Raises:
        BusyError: another process or thread runs a recipe in ``out``; with ``fresh``, it would lose what it
            has made.
    """
    from pairsmith.runs import lock
    from pairsmith.runs.storage import make_folder

    check_extras(recipe.extras)
    for planned in recipe.steps:
        if planned.values.get("executor") == "array":
            raise SettingsError(
                f"{planned.name}: executor array works only for single commands; in a recipe, use local or "
                "ray"
            )
    if not record_of(recipe, out, fresh, fresh_steps).steps:
        _check_evaluation_data(recipe, out)
    make_folder(out)
    key, this_run = str(out if isinstance(out, UPath) else out.resolve()), object()
    if _running.setdefault(key, this_run) is not this_run:
        raise BusyError(f"another run is writing to {out}; wait for it, or give another --out")
    try:
        lock.acquire(out, progress.say)
        # Read again, as another process may have finished steps before it released the folder.
        record = record_of(recipe, out, fresh, fresh_steps)
        return _run_steps(recipe, out, progress, _RunState(out / RUN_RECORD, record, before))
    finally:
        lock.release(out)
        del _running[key]


def _run_steps(recipe: Recipe, out: Place, progress: Progress, state: "_RunState") -> dict[str, Any]:
    """Run the steps of a recipe in ``out``, which this process has locked; returns the figures."""
    from pairsmith.runs import lock, write_json

    state.save()
    for number, planned in enumerate(recipe.steps, start=1):
        folder = out / planned.name
        header = f"step {number}/{len(recipe.steps)} · {planned.kind} → {folder}"
        settings = planned.settings(out)
        earlier = state.contents([step.name for step in recipe.steps[: number - 1]])
        fingerprint = _fingerprint(planned, settings, earlier, recipe.results)
        if state.has_finished(planned.name, fingerprint, folder):
            progress.say(f"{header} · already done")
            continue
        progress.say(header)
        started = time.monotonic()
        if RUN_REFERENCE in planned.references():
            write_json(out / RESULTS, _figures(recipe, out, state.record)[0])
        try:
            with errors_in_other_words(planned.keys()):
                _run_step(planned, settings, folder, InOtherWords(progress, planned.keys()), state)
            own = _fingerprint(planned, settings)
            lock.check(out)  # a folder that was moved is not made again
            state.finish(
                planned.name, FinishedStep(fingerprint=fingerprint, own=own, content=_content(folder))
            )
            for fault in _figures(recipe, out, state.record, only=planned.name)[1]:
                progress.say(fault)
        finally:
            with suppress(StorageError, FolderError):  # so that what ended the step is reported, not this
                lock.check(out)
                state.spend(planned.name, time.monotonic() - started)
        gc.collect()  # else a trainer's reference cycles would keep memory after the step
        return_freed_memory()
    figures, faults = _figures(recipe, out, state.record)
    write_json(out / RESULTS, figures)
    if faults:
        raise SettingsError("\n".join(faults))
    return figures


def closing_lines(recipe: Recipe, out: Place) -> Iterator[str]:
    """Lines on what a finished run in ``out`` made: its pages and models, and a command that searches."""
    folders = {planned.kind: out / planned.name for planned in recipe.steps}
    for planned in recipe.steps:
        if planned.kind == "report":
            yield f"page:  {out / planned.name / 'report.html'}"
        elif planned.kind.startswith("train-") or planned.kind == "infuse":
            yield f"model: {out / planned.name}"
    if {"chunk", "train-retriever"} <= folders.keys():
        model, corpus = (shlex.quote(str(folders[kind])) for kind in ("train-retriever", "chunk"))
        yield f"next:  pairsmith search --model {model} --corpus {corpus}"


def _check_evaluation_data(recipe: Recipe, out: Place) -> None:
    """Read the data of evaluations that need no earlier rows, so that faults are reported before any work."""
    for planned in recipe.steps:
        if not planned.kind.startswith("evaluate-"):
            continue
        sources = [value for name, value in planned.values.items() if name not in ("model", "against")]
        refers = any(text.startswith("@") for value in sources for text in texts_in(value))
        check = planned.step.data_checker()
        if check and not refers:
            labels = labels_of_model(planned, recipe.steps)
            settings = planned.settings(out)
            if str(planned.values.get("against")).startswith("@"):  # compared later, when its folder exists
                settings = settings.model_copy(update={"against": None})
            with errors_in_other_words(planned.keys()):
                check(settings, labels)


def _figures(
    recipe: Recipe, out: Place, record: RunRecord, only: str = ""
) -> tuple[dict[str, Any], list[str]]:
    """The recipe's figures from the steps that are finished, and ``seconds``, the time of all steps.

    With ``only``, only the figures of the step with this name. The second result has a message for each
    figure that the files of its step do not hold.
    """
    figures: dict[str, Any] = {}
    faults = []
    for name, source in recipe.results.items():
        match = RESULT.fullmatch(source)
        if match is None or match["step"] not in ({only} if only else record.steps):
            continue
        try:
            figures[name] = figure_of(source, out, name)
        except SettingsError as error:
            faults.append(str(error))
    return figures | {"seconds": round(sum(record.spent.values()), 1)}, faults


@dataclass(frozen=True, slots=True)
class _RunState:
    """The record of a recipe's run, which is written to ``file`` whenever it changes."""

    file: Place
    record: RunRecord
    before: Place | None  # a folder of steps of another recipe, which count as earlier steps

    def reads_earlier_steps(self, planned: PlannedStep) -> bool:
        """Whether a step reads what an earlier step wrote."""
        if planned.references() or self.before is None:
            return bool(planned.references())
        texts = (text for value in planned.values.values() for text in texts_in(value))
        return any(text.startswith(f"{self.before}/") for text in texts)

    def has_finished(self, name: str, fingerprint: str, folder: Place) -> bool:
        """Whether the step is finished with this fingerprint, and its folder is unchanged."""
        done = self.record.steps.get(name)
        if done is None or not is_folder(folder):
            return False
        return (done.fingerprint, done.content) == (fingerprint, _content(folder))

    def contents(self, names: Sequence[str]) -> dict[str, str | None]:
        """By name, the hash of what each of these steps wrote; steps that are not finished are left out."""
        return {name: self.record.steps[name].content for name in names if name in self.record.steps}

    def begin(self, name: str) -> None:
        """Record that a step has been started over, so that later calls continue it, and forget its time."""
        self.record.afresh.discard(name)
        self.record.steps.pop(name, None)
        self.record.spent.pop(name, None)
        self.save()

    def finish(self, name: str, done: FinishedStep) -> None:
        """Record a finished step."""
        self.record.afresh.discard(name)
        self.record.steps[name] = done
        self.save()

    def spend(self, name: str, seconds: float) -> None:
        """Add to the recorded time of a step."""
        self.record.spent[name] = round(self.record.spent.get(name, 0.0) + seconds, 3)
        self.save()

    def save(self) -> None:
        """Write the file."""
        from pairsmith.runs import write_json

        write_json(self.file, self.record.model_dump() | {"afresh": sorted(self.record.afresh)})


def _run_step(
    planned: PlannedStep, settings: Settings, folder: Place, progress: Progress, state: _RunState
) -> None:
    """Run a step; start it over if it was made from output of earlier steps that has changed since."""
    from pairsmith.runs import Run

    anew = Run(folder, progress, True, lambda: state.begin(planned.name))
    if planned.name in state.record.afresh:
        planned.step.run(settings, anew)
        return
    done = state.record.steps.get(planned.name)
    try:
        planned.step.run(settings, Run(folder, progress))
    except OtherWorkError as error:
        if (
            done is None
            or done.own != _fingerprint(planned, settings)
            or not state.reads_earlier_steps(planned)
        ):
            raise _for_recipes(error, folder) from None
        progress.say(f"{folder}: the output of earlier steps has changed; this step starts over")
        planned.step.run(settings, anew)


def _for_recipes(error: OtherWorkError, folder: Place) -> OtherWorkError:
    """``error`` with a remedy for recipes, in which ``--fresh`` would start every step over."""
    message, _, remedy = str(error).partition("\n")
    if not remedy:  # the work of another step, for which the message names the only remedy
        return error
    kept = remedy.partition("in this one; ")[2]  # which parts of the step's work a fresh start uses again
    return OtherWorkError(
        f"{message}\ngive --fresh-step {folder.name} to pairsmith run or compare to make this step anew, and "
        f"all steps that read it{f' ({kept})' if kept else ''}, or give another --out; --fresh would start "
        "every step of the recipe over",
        error.changed,
    )


def _fingerprint(
    planned: PlannedStep,
    settings: Settings,
    earlier: Mapping[str, str | None] | None = None,
    results: Mapping[str, str] | None = None,
) -> str:
    """A hash of what decides a step's output: its settings and, with ``earlier``, its inputs.

    ``earlier`` has, by name, the hashes of what the earlier steps wrote; a step such as a report may read all
    of them, and the figures that the recipe names under ``results``. References are hashed as they are, not
    as paths, so that a run can be moved and stays finished.
    """
    from pairsmith.data.splits import split_of
    from pairsmith.runs.storage import hash_json

    values = settings.model_dump(mode="json", exclude=settings.kept_folders())
    keys_of_run = {key for key, value in planned.values.items() if value == RUN_REFERENCE}
    content: dict[str, Any] = {}
    for key, value in values.items():
        if key in keys_of_run and earlier is not None:
            # Not the hash of the run's folder, as this step's own folder is in it.
            content[key] = [dict(earlier), dict(results or {})]
            continue
        for number, text in enumerate(texts_in(value)):
            if earlier is not None and text and exists(place(split_of(text)[0])):
                name = f"{key}: {place(text).name}"
                # Files of several folders may have the same name.
                content[f"{name}, {number}" if name in content else name] = _content(text)
    values |= {key: value for key, value in planned.values.items() if key in values and texts_in(value)}
    return hash_json([__version__, planned.kind, values, content])


def _content(path: str | Place) -> str | None:
    """A hash of the content of ``path``; None if it cannot be read, which the step itself will report."""
    from pairsmith.runs import hash_source

    try:
        return hash_source(path)
    except UserError:
        return None


def figure_of(source: str, out: Place, name: str) -> Any:
    """The figure of the run in ``out`` that ``source`` refers to (``step/key.key`` or ``step:rows``).

    ``name`` is the name of the figure, for messages.
    """
    match = RESULT.fullmatch(source)
    assert match is not None  # checked when the recipe was read
    file, keys = RESULTS, (match["keys"] or "").split(".")
    if match["count"]:
        file, keys = MANIFEST, ["counts", match["count"]]
    path = out / match["step"] / file
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"results.{name}: the step {match['step']} wrote no {file}") from None
    except ValueError:
        raise FolderError(f"{path} is damaged; remove {path.parent} and run the same command again") from None
    rest = keys
    while rest:
        # A key may contain a dot itself, such as the label 0.5, so the longest existing key is taken.
        joined = [".".join(rest[:count]) for count in range(len(rest), 0, -1)]
        key = next((key for key in joined if isinstance(value, dict) and key in value), None)
        if key is None:
            hint = (
                known_names_hint(rest[0], value)
                if isinstance(value, dict)
                else f"only the value {shown_value(value)}"
            )
            raise SettingsError(f"results.{name}: {path} has no {'.'.join(keys)}: no {rest[0]!r}; {hint}")
        value, rest = value[key], rest[key.count(".") + 1 :]
    return value
