"""Running a recipe: its steps in order, what was finished before left alone, and a table at the end."""

import gc
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pydantic import Field, ValidationError

from pairsmith import __version__
from pairsmith.errors import FolderError, OtherWorkError, SettingsError, StorageError, UserError, choices
from pairsmith.faults import shown
from pairsmith.memory import trim
from pairsmith.places import Place, inside, is_folder, place, reaching, size_of
from pairsmith.progress import Progress
from pairsmith.recipes import RESULT, PlannedStep, Recipe, exists, texts_in
from pairsmith.settings import Settings

RECORD = "run.json"
RESULTS = "results.json"


class Done(Settings):
    """A step that was finished: what decided its outcome, and what it wrote.

    ``own`` is what the recipe itself says of it: the fingerprint without the content of its inputs.
    """

    fingerprint: str
    own: str = ""
    content: str | None


class Record(Settings):
    """What ``run.json`` holds: the recipe's name, its steps' names, and the finished steps by name.

    ``afresh`` are steps that an earlier call with ``--fresh`` was to start over and has not come to;
    ``spent`` are the seconds that calls have worked on each step, those left out that a kill ended.
    """

    recipe: str
    planned: tuple[str, ...] = ()
    afresh: tuple[str, ...] = ()
    spent: Mapping[str, float] = Field(default_factory=dict)
    steps: dict[str, Done]


def run_recipe(recipe: Recipe, out: Place, progress: Progress, *, fresh: bool = False) -> dict[str, Any]:
    """Run the steps in order, each in its folder ``out/name``, and write ``out/results.json``.

    A step that an earlier call finished with the same settings and inputs, and whose folder still holds
    what it wrote, is not run again. One that was stopped is continued, as far as the step itself can. One
    whose settings are the same, but whose earlier steps have made other data since, is done anew.

    Returns:
        The figures under the recipe's ``results``, and ``seconds``, the time that the steps took together.

    Raises:
        FolderError: ``out`` holds something else.
        SettingsError: a step's results do not hold a figure that the recipe names.
        PairsmithError: whatever a step raises.
    """
    from pairsmith.runs import write_json

    memory = _Memory(recipe, out, fresh)
    memory.save()
    for number, planned in enumerate(recipe.steps, start=1):
        folder = out / planned.name
        header = f"step {number}/{len(recipe.steps)} · {planned.kind} → {folder}"
        settings = planned.settings(out)
        fingerprint = _fingerprint(planned, settings)
        if memory.has_finished(planned.name, fingerprint, folder):
            progress.say(f"{header} · done before")
            continue
        progress.say(header)
        started = time.monotonic()
        try:
            _run_step(planned, settings, folder, progress, memory)
            own = _fingerprint(planned, settings, with_content=False)
            memory.finish(planned.name, Done(fingerprint=fingerprint, own=own, content=_content(folder)))
        finally:
            with suppress(StorageError):  # whatever ended the step is what there is to say
                memory.spend(planned.name, time.monotonic() - started)
        gc.collect()  # a trainer's parts refer to each other and would outlive the step
        trim()
    figures = {name: figure_of(source, out, name) for name, source in recipe.results.items()}
    figures["seconds"] = round(sum(memory.spent.values()), 1)
    write_json(out / RESULTS, figures)
    return figures


class _Memory:
    """``run.json`` while the recipe runs."""

    def __init__(self, recipe: Recipe, out: Place, fresh: bool) -> None:
        self._recipe = recipe.name
        self._names = tuple(planned.name for planned in recipe.steps)
        self._file = out / RECORD
        before = _before(recipe, out, fresh)
        self.afresh = set(self._names) if fresh else set(before.afresh)
        self.steps = {name: done for name, done in before.steps.items() if name not in self.afresh}
        self.spent = {name: before.spent[name] for name in self._names if name in before.spent}

    def has_finished(self, name: str, fingerprint: str, folder: Place) -> bool:
        """Whether the step has been done, as it is to be done now, and its folder is as it was then."""
        done = self.steps.get(name)
        if done is None or name in self.afresh or not is_folder(folder):
            return False
        return (done.fingerprint, done.content) == (fingerprint, _content(folder))

    def begin(self, name: str) -> None:
        """A step that starts over has begun; from now on calls go on with it."""
        self.afresh.discard(name)
        self.steps.pop(name, None)
        self.spent.pop(name, None)
        self.save()

    def finish(self, name: str, done: Done) -> None:
        """Keep a finished step."""
        self.afresh.discard(name)
        self.steps[name] = done
        self.save()

    def spend(self, name: str, seconds: float) -> None:
        """Add to the time that was spent on a step."""
        self.spent[name] = round(self.spent.get(name, 0.0) + seconds, 3)
        self.save()

    def save(self) -> None:
        """Write the file."""
        from pairsmith.runs import write_json

        record = Record(
            recipe=self._recipe,
            planned=self._names,
            afresh=tuple(sorted(self.afresh)),
            spent=self.spent,
            steps=self.steps,
        )
        write_json(self._file, record.model_dump())


def _run_step(
    planned: PlannedStep, settings: Settings, folder: Place, progress: Progress, memory: _Memory
) -> None:
    """Run a step; anew where it was made from what earlier steps had written before they made other data."""
    from pairsmith.runs import Run

    def anew() -> Run:
        return Run(folder, progress, True, lambda: memory.begin(planned.name))

    if planned.name in memory.afresh:
        planned.step.run(settings, anew())
        return
    done = memory.steps.get(planned.name)
    try:
        planned.step.run(settings, Run(folder, progress))
    except OtherWorkError:
        own = _fingerprint(planned, settings, with_content=False)
        if done is None or done.own != own or not _refers(planned):
            raise
        progress.say(f"{folder}: made from what earlier steps had written before; made anew")
        planned.step.run(settings, anew())


def results_table(figures: Mapping[str, Any]) -> str:
    """``figures`` as a plain table, one a line, numbers right-aligned."""
    shown_figures = {name: _number(value) for name, value in figures.items()}
    wide = max(map(len, shown_figures))
    right = max(map(len, shown_figures.values()))
    return "\n".join(f"{name:<{wide}}  {value:>{right}}" for name, value in shown_figures.items())


def _foreign(file: Place) -> bool:
    """Whether a file is neither what a killed run left half-written nor the file manager's own."""
    from pairsmith.runs.storage import is_temporary

    return not is_temporary(file) and file.name != ".DS_Store"


def _before(recipe: Recipe, out: Place, fresh: bool) -> Record:
    """What earlier calls did in ``out``; nothing where there were none, or all is to be done anew."""
    nothing = Record(recipe=recipe.name, steps={})
    record = out / RECORD
    with reaching(out, FolderError):
        if size_of(record) is None:
            if size_of(out) is not None or any(_foreign(file) for file in inside(out)):
                raise FolderError(f"{out} holds something else than a recipe's run; give another --out")
            return nothing
        text = record.read_bytes()
    if fresh:
        return nothing
    try:
        return Record.model_validate_json(text)
    except ValidationError:
        raise FolderError(
            f"{record} is not as pairsmith wrote it; give --fresh to start over, or another --out"
        ) from None


def _refers(planned: PlannedStep) -> bool:
    """Whether a step reads what earlier steps wrote."""
    return any(text.startswith("@") for value in planned.values.values() for text in texts_in(value))


def _fingerprint(planned: PlannedStep, settings: Settings, *, with_content: bool = True) -> str:
    """What decides a step's outcome: its settings as the recipe gives them, and the content they lead to.

    References stand in for their folders, so a run that is moved stays finished.
    """
    from pairsmith.records.splits import split_of
    from pairsmith.runs.storage import canonical_json, hash_bytes

    values = settings.model_dump(mode="json")
    content = {}
    for key, value in values.items():
        for text in texts_in(value):
            if with_content and text and exists(place(split_of(text)[0])):
                content[f"{key}: {place(text).name}"] = _content(text)
    values |= {key: value for key, value in planned.values.items() if texts_in(value)}
    return hash_bytes(canonical_json([__version__, planned.kind, values, content]).encode())


def _content(path: str | Place) -> str | None:
    """A hash of what is at ``path``; None for a folder of rows that is unfinished, which the step reports."""
    from pairsmith.runs import hash_source

    try:
        return hash_source(path)
    except UserError:
        return None


def figure_of(source: str, out: Place, name: str) -> Any:
    """The figure that ``source`` (``step/key.key`` or ``step:rows``) names in the run ``out``."""
    found = RESULT.fullmatch(source)
    assert found is not None  # checked when the recipe was read
    file, keys = RESULTS, (found["keys"] or "").split(".")
    if found["count"]:
        file, keys = "manifest.json", ["counts", found["count"]]
    path = out / found["step"] / file
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"results.{name}: the step {found['step']} wrote no {file}") from None
    rest = keys
    while rest:
        # A key may hold a dot itself, such as the label 0.5: the longest one that is there is meant.
        joined = [".".join(rest[:count]) for count in range(len(rest), 0, -1)]
        key = next((key for key in joined if isinstance(value, dict) and key in value), None)
        if key is None:
            known = choices(rest[0], value) if isinstance(value, dict) else f"only the value {shown(value)}"
            raise SettingsError(f"results.{name}: {path} has no {'.'.join(keys)}: no {rest[0]!r}; {known}")
        value, rest = value[key], rest[key.count(".") + 1 :]
    return value


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return json.dumps(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
