"""The step ``audit``: people label rows without seeing the data's labels, which are then compared (D13).

sample of rows -> labels given one by one in a browser -> confusion, agreement -> results and labelled rows
"""

from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

from pairsmith.core.errors import FolderError, MissingExtra, SettingsError
from pairsmith.runs import (
    DatasetFolder,
    Run,
    hash_source,
    refuse_source,
    sources_of,
    synthetic_tag,
    write_json,
)
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import storage_errors
from pairsmith.tools.audit.agreement import results_of
from pairsmith.tools.audit.answers import ANSWERS_FILE, AnnotatorAnswers
from pairsmith.tools.audit.closing import audit_table, closing
from pairsmith.tools.audit.export import LABELLED, export_annotations
from pairsmith.tools.audit.rows import Audit, draw_audit
from pairsmith.tools.record import recorded
from pairsmith.tools.settings import AuditSettings

AUDIT_RECORD = "audit.json"
RESULTS = "results.json"


def audit(settings: AuditSettings, run: Run) -> dict[str, Any]:
    """Have an annotator label rows in a browser, and write the results of all annotators of the folder.

    The run's folder holds ``answers.jsonl`` with a line for each label that was given, ``results.json``, and
    the labelled rows in several formats (see ``export_annotations``). The same command continues the audit,
    also with another annotator.

    Returns:
        the contents of ``results.json``: ``rows``, the number of rows; ``labelled``, by annotator, how many
        rows they labelled; ``confusion``; ``agreement``; and ``labels``, the majority label of each row.
    """
    if not isinstance(run.out, Path):
        raise SettingsError(
            f"--out {run.out}: an audit cannot write to a store; give a folder on this machine"
        )
    for package in ("fastapi", "krippendorff", "uvicorn"):
        if find_spec(package) is None:
            raise MissingExtra(package, "audit")
    refuse_source(run, data=settings.data)
    drawn = draw_audit(DatasetFolder.open(settings.data), settings)
    inputs = {"data": hash_source(settings.data)}
    identity = Identity.of("audit", settings.deciding(), inputs=inputs, models={})
    stopped: KeyboardInterrupt | None = None
    with recorded(run, identity, AUDIT_RECORD) as save:
        if run.fresh:
            _keep_old_answers(run.out)
        save()
        answers = AnnotatorAnswers(run.out)
        _check_answers(drawn, answers)
        out = run.out

        def write() -> dict[str, Any]:
            """Write the results of the labels that were given so far, and return them."""
            votes = answers.by_annotator()
            results = results_of(drawn, votes)
            write_json(out / RESULTS, {**results, "about": identity.as_record() | {"complete": True}})
            sources, tags = sources_of(data=[settings.data]), synthetic_tag(settings.data)
            export_annotations(drawn, votes, results["labels"], out, inputs["data"], sources, tags)
            return results

        def finish() -> dict[str, Any]:
            """Write the results, then return what the page shows at the end."""
            return closing(drawn, write(), out)

        if not settings.finish:
            from pairsmith.tools.audit.app import serve  # imported here, as it needs an extra

            try:
                serve(drawn, answers, settings, run.progress, finish)
            except KeyboardInterrupt as stop:
                stopped = stop
        results = write()  # again, as another window may have given a label in the meantime
        save(complete=stopped is None)
    run.progress.result(audit_table(drawn, results))
    run.progress.result(f"\nresults: {out / RESULTS}\nlabelled rows: {out / LABELLED}")
    if stopped:  # the step is not finished, so a recipe continues it when it is run again
        raise stopped
    return results


def _keep_old_answers(folder: Path) -> None:
    """Rename the answers of an audit that is started over, so that they are not lost."""
    answers = folder / ANSWERS_FILE
    if answers.exists():
        number = next(n for n in count(1) if not (folder / f"{ANSWERS_FILE}.{n}").exists())
        with storage_errors(answers):
            answers.rename(folder / f"{ANSWERS_FILE}.{number}")


def _check_answers(drawn: Audit, answers: AnnotatorAnswers) -> None:
    rows, labels = {row.id for row in drawn.rows}, set(drawn.labels)
    for name, labels_by_row in answers.by_annotator().items():
        for row, label in labels_by_row.items():
            if row not in rows or label not in labels:
                raise FolderError(
                    f"{ANSWERS_FILE}: {name} gave row {row} the label {label!r}, but this audit has no such "
                    "row or label; give another folder as --out, or --fresh to start over"
                )
