"""Result folders of evaluations: ``results.json`` with its provenance, and ``predictions.jsonl``."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import Field

from pairsmith.core.errors import FolderError, StorageError, redacted_values
from pairsmith.core.paths import Place, is_folder, place, reaching
from pairsmith.core.settings import Settings
from pairsmith.data.files.folders import own_folder
from pairsmith.data.splits import Say, to_measure_on, to_train_on
from pairsmith.metrics.bootstrap import mean_and_error
from pairsmith.models.trained_on import fingerprint_of
from pairsmith.runs import DatasetFolder, Manifest, Run, lock, write_json
from pairsmith.runs.claim import claim
from pairsmith.runs.folder import changed_files, check_format
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import JSON, hash_bytes, hash_json, write_atomic
from pairsmith.steps.shared import with_sources

FEW_ROWS = 50
"""Of fewer rows or queries a figure has an interval of some 20 points."""
FEW_PAIRS = 100
"""Of fewer pairs a correlation of 80 has an interval of some 15 points or more."""
RESULTS = "results.json"
PREDICTIONS = "predictions.jsonl"
AGAINST = "against"
"""The figures of ``results.json`` that compare an evaluation with another one."""

Figures = Mapping[str, Any]
PredictionRows = Iterable[Mapping[str, Any]]
Evaluated = tuple[Figures, PredictionRows | None]
"""The figures of ``results.json``, and a line of ``predictions.jsonl`` for each row; None: no such file."""

S = TypeVar("S", bound=Settings)


def with_evaluation_splits(settings: S, say: Say | None = None) -> S:
    """The settings with a split named for each folder with several: ``test``, or ``train`` to train on.

    ``say`` is called with a message on the splits that are not used, if there are any.
    """

    def at_split(name: str, source: str) -> str:
        if not is_folder(place(source) / "data"):  # other folders are left to the evaluation
            return source
        if name == "train":
            return to_train_on(source, "learned from", say)
        return to_measure_on(source, "measured on", say)

    return with_sources(settings, ("data", "judgements", "train"), at_split)


def written_by_program(source: str, *steps: str) -> bool:
    """Whether one of these steps wrote the folder, from texts that a language model had written.

    Rows that ``postprocess`` made without a task, or ``filter-queries`` without a column kind, do not count.
    """
    own = own_folder(source)
    if own is None:
        return False
    folder = DatasetFolder.open(own)
    if folder.manifest.step == "postprocess" and folder.manifest.settings.get("task") is None:
        return False
    if folder.manifest.step == "filter-queries" and "kind" not in folder.schema().names:
        return False
    return folder.manifest.step in steps


class EvaluationRecord(Manifest):
    """``about`` in ``results.json``: what was evaluated, and the hash of the predictions."""

    files: dict[str, str] = Field(default_factory=dict)


def evaluate_once(
    run: Run,
    step: str,
    settings: Settings,
    *,
    inputs: Mapping[str, str],
    models: Mapping[str, str],
    compute: Callable[[], Evaluated],
    table: Callable[[Mapping[str, Any]], str] | None = None,
    goes_on: bool = False,
    compare: Callable[[], Figures | None] | None = None,
) -> dict[str, Any]:
    """Compute and write the results, unless the run's folder already holds those of the same evaluation.

    Args:
        run: where to write; with ``fresh`` the results are computed in any case.
        step: name of the step.
        settings: of the evaluation; those that change no figure are only recorded in ``about``.
        inputs: hashes of the data, by name.
        models: revisions of the models, by name.
        compute: returns the figures and the predictions, see ``Evaluated``.
        table: makes of the results what is shown to the user.
        goes_on: whether ``compute`` keeps parts of its work in the folder, which therefore says at once whose
            it is. With other settings a stopped evaluation goes on with those parts that are the same.
        compare: for a step whose results may hold a comparison of the finished folder with something else,
            under ``AGAINST``: returns it, None for no comparison. It does not identify the evaluation, and
            replaces an earlier one.

    Returns:
        The content of ``results.json``: the figures, and ``about``, what they were computed from.
    """
    identity = Identity.of(step, settings.deciding(), inputs, models)
    earlier = claim(
        run, identity, RESULTS, read_about, extends=lambda earlier: goes_on and not earlier.complete
    )
    results = read_finished(run, earlier)
    if results is None:
        if earlier is not None and earlier.complete and not run.fresh:
            run.progress.say(f"{run.out} has changed since it was written; it is evaluated again")
        about = identity.as_record() | redacted_values(settings.not_deciding())
        if goes_on:
            begin(run, about)
        figures, predictions = compute()
        results = write_results(run, figures, predictions, about)
    if compare:
        compared_before, comparison = results.pop(AGAINST, None), compare()
        if comparison:
            results |= {AGAINST: comparison}
        if comparison or compared_before:
            write_json(run.out / RESULTS, results)
    lock.release(run.out)
    if table:
        run.progress.result(table(results))
    return results


def read_about(out: Place) -> EvaluationRecord:
    """The record of what the results in ``out`` were computed from."""
    try:
        record = EvaluationRecord.model_validate(json.loads((out / RESULTS).read_bytes())["about"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FolderError(f"{out / RESULTS} holds no results of this evaluation") from error
    check_format(out, record)
    return record


def is_intact(out: Place, record: EvaluationRecord) -> bool:
    """Whether the results are complete and the files beside them unchanged."""
    with reaching(out, StorageError):
        return record.complete and not changed_files(out, record.files)


def read_finished(run: Run, earlier: EvaluationRecord | None) -> dict[str, Any] | None:
    """The results that the run's folder holds; None if they are to be computed.

    ``earlier`` is the record that ``claim`` found in the folder.
    """
    if earlier is None or run.fresh or not is_intact(run.out, earlier):
        return None
    run.progress.say(f"{run.out}: already evaluated with these settings; --fresh computes again")
    results: dict[str, Any] = json.loads((run.out / RESULTS).read_bytes())
    return results


def begin(run: Run, about: Mapping[str, Any]) -> None:
    """Write a record without figures, so that the folder says whose it is."""
    write_json(run.out / RESULTS, {"about": {**about, "complete": False}})
    run.on_begun()


def write_results(
    run: Run, figures: Figures, predictions: PredictionRows | None, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Write both files, in an order that lets a run stopped at any moment be continued.

    The content of ``results.json`` is returned: ``figures``, and ``about`` with the predictions' hash.
    """
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in predictions or ()]
    data = "".join(f"{line}\n" for line in lines).encode()
    begin(run, about)
    files: dict[str, str] = {}
    if predictions is not None:
        write_atomic(run.out / PREDICTIONS, data)
        files[PREDICTIONS] = hash_bytes(data)
    results = {**figures, "about": {**about, "complete": True, "files": files}}
    write_json(run.out / RESULTS, results)
    return results


def over_splits(f1: Mapping[int, float]) -> dict[str, Any]:
    """The mean ``f1`` over the splits, its standard ``error``, and the figure of each of the ``splits``.

    One split alone has no error (None).
    """
    mean, error = mean_and_error(list(f1.values()))
    return {"f1": mean, "error": error, "splits": {str(n): round(value, 4) for n, value in f1.items()}}


def mean_line(name: str, mean: float, error: float | None, figures: Iterable[float]) -> str:
    """A line of a table: the mean, its error, and the figures that it was made from."""
    return f"{name:<12}{with_error(mean, error):<18}{' '.join(f'{value:.1f}' for value in figures)}"


def with_error(mean: float, error: float | None) -> str:
    """A mean and its standard error, for a table; None is that of a single figure."""
    return f"{mean:.2f}" if error is None else f"{mean:.2f} ± {error:.2f}"


def learned_texts(trained: Iterable[Sequence[str]], tested: Iterable[Sequence[str]]) -> int:
    """How many of the ``tested`` rows, each by its texts, are among the ``trained`` ones.

    Case, spaces, punctuation and the order of the texts do not matter.
    """
    known = {fingerprint_of(*texts) for texts in trained}
    return sum(fingerprint_of(*texts) in known for texts in tested)


def learned_line(results: Mapping[str, Any], rows: str) -> list[str]:
    """A line of a table on test rows that were trained on, of results with ``trained_on``; none without."""
    if not (known := results.get("trained_on")):
        return []
    return [
        f"{known:,} of the {results['count']:,} {rows} are trained on by a split: F1 is better than it would "
        "be on others"
    ]


def hash_rows(rows: JSON) -> str:
    """SHA-256 of rows, whatever the format of their file."""
    return hash_json(rows)


def with_interval(figures: Mapping[str, Any], name: str) -> str:
    """A figure of ``results.json`` and its interval, for a table."""
    limits = figures[f"{name}_ci"]
    spread = "" if limits is None else f"  [{limits[0]:.2f}, {limits[1]:.2f}]"
    return f"{figures[name]:6.2f}{spread}"
