"""Result folders of evaluations: ``results.json`` with its provenance, and ``predictions.jsonl``."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import Field

from pairsmith import __version__
from pairsmith.core.errors import FolderError, PairsmithError, StorageError, redacted, redacted_values
from pairsmith.core.paths import Place, exists, reaching
from pairsmith.core.settings import Settings
from pairsmith.runs import Manifest, Run, lock, model_display_name, write_json
from pairsmith.runs.card import fenced, origin_section
from pairsmith.runs.claim import claim
from pairsmith.runs.folder import changed_files
from pairsmith.runs.identity import Identity
from pairsmith.runs.manifest import check_format
from pairsmith.runs.storage import WORK_IS_KEPT, hash_bytes, write_atomic

FEW_ROWS = 50
"""With fewer rows or queries, the interval of a figure is some 20 points wide or more."""
FEW_PAIRS = 100
"""With fewer pairs, the interval of a correlation of 80 is some 15 points wide or more."""
RESULTS = "results.json"
PREDICTIONS = "predictions.jsonl"
CARD = "README.md"
AGAINST = "against"
"""The key in ``results.json`` of the comparison with an earlier evaluation."""

Figures = Mapping[str, Any]
PredictionRows = Iterable[Mapping[str, Any]]
Evaluated = tuple[Figures, PredictionRows | None]
"""The figures of ``results.json``, and the lines of ``predictions.jsonl``; None: no such file is written."""


class EvaluationRecord(Manifest):
    """``about`` in ``results.json``: the provenance of the results, and the hashes of other files."""

    files: dict[str, str] = Field(default_factory=dict)


def evaluate_once(
    run: Run,
    identity: Identity,
    settings: Settings,
    compute: Callable[[], Evaluated],
    *,
    table: Callable[[Mapping[str, Any]], str] | None = None,
    resumable: bool = False,
    compare: Callable[[], Figures | None] | None = None,
) -> dict[str, Any]:
    """Compute and write the results, unless the run's folder already has results of the same evaluation.

    Args:
        run: has the folder to write to; with ``fresh`` the results are computed in any case.
        identity: the evaluation.
        settings: the settings of the evaluation; those that change no figure are only recorded in ``about``.
        compute: returns the figures and the predictions, see ``Evaluated``.
        table: formats the results as a table for the user and the card.
        resumable: whether ``compute`` saves parts of its work in the folder, which an evaluation that was
            stopped reuses, even with other settings. If so, ``results.json`` is first written without
            figures, to identify the evaluation.
        compare: returns a comparison of the finished folder with an earlier evaluation, or None. It is
            written under ``AGAINST`` in place of any other comparison, and is not part of the identity of the
            evaluation.

    Returns:
        The content of ``results.json``: the figures, and their provenance (``about``).
    """
    new_folders = []  # of a local folder: itself and its parents, innermost first
    if isinstance(run.out, Path) and not resumable:
        new_folders = [folder for folder in (run.out, *run.out.parents) if not exists(folder)]
    earlier = claim(
        run, identity, RESULTS, read_about, extends=lambda earlier: resumable and not earlier.complete
    )
    results = read_finished(run, earlier)
    has_card = results is not None and exists(run.out / CARD)
    if results is None:
        if earlier is not None and earlier.complete and not run.fresh:
            run.progress.say(f"{run.out} has changed since it was written; it is evaluated again")
        about = identity.as_record() | redacted_values(settings.not_deciding())
        if resumable:
            begin(run, about)
        try:
            results = write_results(run, *compute(), about)
        except PairsmithError as error:
            if isinstance(error, StorageError) and not resumable:
                error.args = (str(error).replace(WORK_IS_KEPT, "fix this and evaluate again"),)
            _remove(run.out, new_folders)
            raise
    if compare and ((comparison := compare()) or AGAINST in results):
        results.pop(AGAINST, None)
        results |= {AGAINST: comparison} if comparison else {}
        write_json(run.out / RESULTS, results)
        has_card = False
    if not has_card:
        write_card(run, identity.step, settings, table(_without_folders(results)) if table else "")
    lock.release(run.out)
    if table:
        run.progress.result(table(results))
    return results


def _without_folders(results: Mapping[str, Any]) -> dict[str, Any]:
    """``results`` for the card, which names the earlier evaluation and its model without their folders."""
    against = results.get(AGAINST, {})
    names = {name: model_display_name(against[name]) for name in ("folder", "model") if name in against}
    return {**results, AGAINST: {**against, **names}} if names else dict(results)


def _remove(out: Place, new_folders: Iterable[Path]) -> None:
    """Remove the folders that were created for an evaluation which failed, with its unfinished results."""
    try:
        lock.check(out)
    except PairsmithError:  # it was moved, or another run writes to it
        new_folders = ()
    lock.release(out)
    with suppress(OSError):  # one has other files
        for folder in new_folders:
            for name in (PREDICTIONS, RESULTS) if folder == out else ():
                (folder / name).unlink(missing_ok=True)
            folder.rmdir()


def write_card(run: Run, step: str, settings: Settings, table: str) -> None:
    """Write README.md: what was measured on what, the figures, and the command that repeats it.

    ``step`` is the name of the evaluation, such as ``evaluate sts``; ``table`` has its figures, or is empty.
    """
    model, data = (getattr(settings, name, None) for name in ("model", "data"))
    title = f"{step}: {model_display_name(model)}" if model else step
    if data:
        title += f" on {model_display_name(data)}"
    files = f"`{RESULTS}` has all figures"
    if exists(run.out / PREDICTIONS):
        files += f", `{PREDICTIONS}` what was predicted for each row"
    figures = fenced("text", table) if table else ""
    sections = (f"# {title}", figures, f"{files}.", origin_section(step, __version__, run.options))
    text = "\n\n".join(filter(None, sections)) + "\n"
    write_atomic(run.out / CARD, redacted(text).encode("utf-8", "replace"))


def read_about(out: Place) -> EvaluationRecord:
    """The provenance of the results in the folder ``out``; a ``FolderError`` if there are none."""
    try:
        record = EvaluationRecord.model_validate(json.loads((out / RESULTS).read_bytes())["about"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise FolderError(f"{out / RESULTS} holds no results of this evaluation") from error
    check_format(out, record)
    return record


def is_intact(out: Place, record: EvaluationRecord) -> bool:
    """Whether the results are complete, and the other files have not changed since they were written."""
    with reaching(out, StorageError):
        return record.complete and not changed_files(out, record.files)


def read_finished(run: Run, earlier: EvaluationRecord | None) -> dict[str, Any] | None:
    """The finished results in the run's folder; None if they have to be computed.

    ``earlier`` is the record that ``claim`` read in the folder, None if there was none.
    """
    if earlier is None or run.fresh or not is_intact(run.out, earlier):
        return None
    run.progress.say(f"{run.out}: already evaluated with these settings; give --fresh to evaluate again")
    results: dict[str, Any] = json.loads((run.out / RESULTS).read_bytes())
    return results


def begin(run: Run, about: Mapping[str, Any]) -> None:
    """Write ``results.json`` without figures, to identify the evaluation that the folder belongs to."""
    write_json(run.out / RESULTS, {"about": {**about, "complete": False}})
    run.on_begun()


def write_results(
    run: Run, figures: Figures, predictions: PredictionRows | None, about: Mapping[str, Any]
) -> dict[str, Any]:
    """Write both files, in an order in which a run that is stopped at any moment can be continued.

    Returns the content of ``results.json``: ``figures``, and ``about`` with the hash of the predictions.
    """
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in predictions or ()]
    data = "".join(f"{line}\n" for line in lines).encode()
    lock.check(run.out)  # computing may have taken long
    begin(run, about)
    files: dict[str, str] = {}
    if predictions is not None:
        write_atomic(run.out / PREDICTIONS, data)
        files[PREDICTIONS] = hash_bytes(data)
    results = {**figures, "about": {**about, "complete": True, "files": files}}
    write_json(run.out / RESULTS, results)
    return results
