"""Evaluates an encoder on tasks of the package mteb (Massive Text Embedding Benchmark).

This step is no ``Evaluation``: mteb reads the data and computes the figures of one task after another, and a
run that was stopped goes on with the next task.
"""

import importlib.util
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from pairsmith.core.errors import MissingExtra, ModelError, SettingsError, StorageError, redacted_values
from pairsmith.core.model_names import GLOVE, model_revision
from pairsmith.core.paths import Place, inside, reaching, remove_files, size_of
from pairsmith.core.progress import Progress, Silent
from pairsmith.data.sts import read_sts
from pairsmith.models.sentence_encoder import load_sentence_encoder
from pairsmith.runs import Run, hash_file, lock, resolve_dtype, write_json
from pairsmith.runs.claim import claim
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import hash_bytes, storage_errors, write_atomic
from pairsmith.steps.evaluate.evaluation import extrapolated
from pairsmith.steps.evaluate.results import (
    RESULTS,
    EvaluationRecord,
    begin,
    read_about,
    read_finished,
    write_card,
)
from pairsmith.steps.evaluate.settings import EvaluateMtebSettings
from pairsmith.steps.evaluate.sts import hash_pairs
from pairsmith.steps.shared import load_options

if TYPE_CHECKING:
    from pairsmith.steps.evaluate.mteb_tasks import Encoder, MtebTask

MTEB_FOLDER = "mteb"
"""Folder within the run's folder with mteb's own result files."""


def evaluate_mteb(settings: EvaluateMtebSettings, run: Run) -> dict[str, Any]:
    """Run tasks of mteb on an encoder, write ``results.json`` into the run's folder, and show a table.

    After each task, mteb's own results are written to ``mteb/TASK.json``, so that a run that was stopped
    continues with the next task. Existing results of the same settings, model and data are returned;
    ``run.fresh`` computes them again. ``results.json`` has ``tasks``, for each task the main score ×100 and
    that of each split and subset; the ``mean`` of the main scores; and ``about``. No result leaves this
    machine.
    """
    settings = resolve_dtype(settings, run)
    if settings.model.startswith(GLOVE):
        raise ModelError(
            f"model {settings.model}: evaluate mteb does not support GloVe vectors; use evaluate sts"
        )
    require_mteb()
    from pairsmith.steps.evaluate import mteb_tasks

    with mteb_tasks.warnings_passed_to(run.progress.say):
        tasks, inputs = tasks_of(settings)
        models = {"model": model_revision(settings.model)}
        identity = Identity.of("evaluate mteb", settings.deciding(), inputs, models)
        earlier = claim(run, identity, RESULTS, read_about)
        results = read_finished(run, earlier)
        if results is None:
            about = identity.as_record() | redacted_values(settings.not_deciding())
            about |= {"mteb": mteb_tasks.VERSION}
            earlier = None if run.fresh else earlier
            begin(run, about)
            figures, files = _evaluated(tasks, settings, run, earlier)
            mean = round(sum(part["main"] for part in figures.values()) / len(figures), 4)
            about |= {"complete": True, "files": files}
            results = {"tasks": figures, "mean": mean, "about": about}
            write_json(run.out / RESULTS, results)
            write_card(run, identity.step, settings, mteb_table(results))
    lock.release(run.out)
    run.progress.result(mteb_table(results))
    return results


def check_evaluate_mteb(settings: EvaluateMtebSettings, _labels: Collection[str]) -> None:
    """Raise an error if mteb is missing or has no such task, or if the user's own pairs have a fault."""
    require_mteb()
    from pairsmith.steps.evaluate.mteb_tasks import warnings_passed_to

    with warnings_passed_to(Silent().say):
        tasks_of(settings)


def require_mteb() -> None:
    """Check that mteb is installed, without importing it."""
    if importlib.util.find_spec("mteb") is None:
        raise MissingExtra("mteb", "eval")


def tasks_of(settings: EvaluateMtebSettings) -> tuple[list["MtebTask"], dict[str, str]]:
    """The tasks, the user's own pairs last, and the revisions of their data, by ``task NAME`` or ``data``."""
    from pairsmith.steps.evaluate.mteb_tasks import local_task, named_tasks, revisions

    suites = read_sts(settings.data) if settings.data is not None else []
    tasks = named_tasks(settings.tasks, settings.benchmark)
    inputs = {f"task {task.metadata.name}": revisions(task) for task in tasks}
    for suite in suites:
        if f"task {suite.name}" in inputs:
            raise SettingsError(
                f"--data has a test set {suite.name!r}, which is also the name of an mteb task; rename it"
            )
        tasks.append(local_task(suite))
    if suites:
        inputs["data"] = hash_pairs(suites)
    return tasks, inputs


def load_mteb_encoder(settings: EvaluateMtebSettings, revision: str, progress: Progress) -> "Encoder":
    """Load the encoder, and wrap it for mteb."""
    from pairsmith.steps.evaluate.mteb_tasks import Encoder

    encoder = load_sentence_encoder(settings.model, pooling=settings.pooling, **load_options(settings))
    return Encoder(encoder, revision, progress)


def mteb_table(results: Mapping[str, Any]) -> str:
    """The results as a text table with a line for each task."""
    tasks: Mapping[str, Mapping[str, Any]] = results["tasks"]
    width = max(map(len, [*tasks, "mean"])) + 2
    lines = [f"{'task':<{width}}{'×100':>6}  metric"]
    lines += [f"{name:<{width}}{task['main']:>6.2f}  {task['metric']}" for name, task in tasks.items()]
    return "\n".join([*lines, f"{'mean':<{width}}{results['mean']:>6.2f}"] if len(tasks) > 1 else lines)


def _evaluated(
    tasks: "list[MtebTask]", settings: EvaluateMtebSettings, run: Run, earlier: EvaluationRecord | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The figures of each task, and the hashes of mteb's own files.

    The results of tasks that ``earlier`` has finished are read. The model is loaded only after the first
    task's data, so that data that cannot be loaded are reported early.
    """
    from pairsmith.steps.evaluate import mteb_tasks

    figures: dict[str, Any] = {}
    files: dict[str, str] = {}
    encoder: Encoder | None = None
    if earlier is None:
        with storage_errors(run.out):
            remove_files(inside(run.out / MTEB_FOLDER))
    for number, task in enumerate(tasks, start=1):
        name = task.metadata.name
        file = f"{MTEB_FOLDER}/{name}.json"
        path = run.out / file
        result = _earlier_result(path, earlier.files.get(file)) if earlier else None
        if result is None:
            run.progress.say(f"task {number}/{len(tasks)} · {name}")
            mteb_tasks.load_data(task)
            encoder = encoder or load_mteb_encoder(settings, model_revision(settings.model), run.progress)
            result = mteb_tasks.run_task(task, encoder, settings.batch_size)
            # The file is what mteb's own program writes, except for rounding.
            write_atomic(path, (json.dumps(result.model_dump(mode="json"), indent=2) + "\n").encode())
        figures[name] = mteb_tasks.figures_of(task, result)
        files[file] = hash_bytes(path.read_bytes())
    return figures, files


def _earlier_result(path: Place, hashed: str | None) -> Any:
    """A task's result from an earlier run; None if there is none, or its file has not the hash ``hashed``."""
    from mteb.results import TaskResult

    with reaching(path, StorageError):
        if size_of(path) is None or (hashed is not None and hash_file(path) != hashed):
            return None
        try:
            return TaskResult.model_validate_json(path.read_bytes())
        except ValueError:
            return None


def plan_evaluate_mteb(settings: EvaluateMtebSettings, _before: Before) -> Estimate:
    """Encode some sentences, and extrapolate to the number of characters in the tasks; loads no data."""
    require_mteb()
    from pairsmith.steps.evaluate.mteb_tasks import characters_of, warnings_passed_to

    # Sentences of the length usual in test sets; their content does not affect the time.
    sample = [
        f"In {year} the old bridge over the river was closed for repairs." for year in range(1800, 2056)
    ]

    def load() -> Callable[[Sequence[str]], object]:
        encoder = load_mteb_encoder(settings, "", Silent()).model
        return partial(encoder.encode, batch_size=settings.batch_size, show_progress_bar=False)

    with warnings_passed_to(Silent().say):
        tasks, _ = tasks_of(settings)
        characters = sum(characters_of(task) for task in tasks)
        texts = characters * len(sample) / sum(map(len, sample))
        return extrapolated(load, sample, texts, 4096 * len(tasks))
