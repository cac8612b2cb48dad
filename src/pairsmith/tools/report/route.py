"""The step ``report``: one self-contained HTML page about a folder.

folder -> the rows, model or figures in it -> sections of the page -> report.html
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pairsmith.core.errors import FolderError
from pairsmith.core.folder_kinds import read_record
from pairsmith.core.model_names import model_revision
from pairsmith.core.paths import MANIFEST, Place, is_folder, place, reaching, size_of
from pairsmith.runs import DatasetFolder, Run, hash_source, refuse_source, resolve_dtype
from pairsmith.runs.identity import Identity
from pairsmith.runs.status import runs_of_comparison
from pairsmith.runs.storage import write_atomic
from pairsmith.tools.record import recorded
from pairsmith.tools.report.classified import classified_sections
from pairsmith.tools.report.dataset import dataset_sections
from pairsmith.tools.report.models import (
    evaluation_lead,
    evaluation_sections,
    model_lead,
    model_sections,
    reliability_warnings,
)
from pairsmith.tools.report.origin import FEWEST_ROWS, checks_in_words, dataset_lead, verdict
from pairsmith.tools.report.overlap import ReferenceTexts, reference_texts
from pairsmith.tools.report.parts import Finding, Page, render_page, shown_text
from pairsmith.tools.report.traces import check_traces
from pairsmith.tools.report.whole_run import RESULTS, RUN_RECORD, TRAINING_RECORD, run_page
from pairsmith.tools.settings import ReportSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

REPORT_PAGE = "report.html"
REPORT_RECORD = "report.json"
COMPARISON = "comparison.html"
"""The page that ``compare`` writes."""
_RECORDS = (RUN_RECORD, MANIFEST, TRAINING_RECORD, RESULTS)
_EXAMPLES_OF_STEP = 2
"""Largest number of examples of each sort on the page of a run, which shows many steps."""


def report(settings: ReportSettings, run: Run) -> Place:
    """Write ``report.html`` about a dataset folder, a model, an evaluation, or a run with all of its steps.

    ``report.json`` beside the page records the folder that the page is about, and the page's warnings.
    Returns the path of the page.
    """
    settings = resolve_dtype(settings, run)
    source = place(settings.data)
    record_name(source)
    refuse_source(run, data=settings.data)
    if settings.traces:
        check_traces(source, settings)
    identity = Identity.of(
        "report",
        settings.deciding(),
        inputs={name: hash_source(name) for name in settings.against},
        models={"encoder": model_revision(settings.encoder)} if settings.encoder else {},
    )
    with recorded(run, identity, REPORT_RECORD, any_work=True) as save:
        save()  # first, so that the record shows which tool writes into the folder
        references = {name: reference_texts(name) for name in settings.against}
        encoder = None
        if settings.encoder:
            from pairsmith.models.sentence_encoder import load_sentence_encoder

            encoder = load_sentence_encoder(settings.encoder, device=settings.device, dtype=settings.dtype)
        page = page_of(source, settings, references, encoder)
        page = replace(
            page, warnings=[replace(finding, text=shown_text(finding.text)) for finding in page.warnings]
        )
        write_atomic(run.out / REPORT_PAGE, render_page(page).encode("utf-8", "replace"))
        save(complete=True, data=str(source), warnings=[finding.text for finding in page.warnings])
    for warning in page.warnings:
        run.progress.say(f"warning: {warning.text}")
    run.progress.say(f"wrote {run.out / REPORT_PAGE}")
    return run.out / REPORT_PAGE


def record_name(folder: Place) -> str:
    """The name of the record file in ``folder``, which shows what kind of folder it is."""
    with reaching(folder, FolderError):
        file = next((name for name in _RECORDS if size_of(folder / name) is not None), None)
    if file is None:
        if size_of(folder / COMPARISON) is not None:
            raise FolderError(
                f"--data {folder} is the folder of a comparison: read its page, {COMPARISON}; for a report "
                "on rows, give the folder of one seed's run in it"
            )
        if runs := runs_of_comparison(folder):
            left = ", ".join(run.parent.name for run in runs if size_of(run / RESULTS) is None)
            raise FolderError(
                f"--data {folder} is the folder of a comparison that is not finished (left to do: "
                f"{left or 'its page'}); give its command again, or give the folder of one run, such as "
                f"{runs[0]}"
            )
        if size_of(folder) is not None:
            what = "this is a file, not a folder"
        elif not is_folder(folder):
            what = "there is no such folder"
        else:
            what = f"the folder has none of the records {', '.join(_RECORDS)}"
        raise FolderError(f"--data {folder}: {what}; give a folder that a step or a recipe wrote")
    return file


def page_of(
    folder: Place,
    settings: ReportSettings,
    references: Mapping[str, ReferenceTexts],
    encoder: "SentenceTransformer | None",
) -> Page:
    """The page about a folder; ``references`` and ``encoder`` are as for ``dataset_sections``."""
    kind, name = record_name(folder), shown_text(folder.name or str(folder), 100)
    warn: list[Finding] = []
    if kind == MANIFEST:
        rows = DatasetFolder.open(folder)
        sections = list(dataset_sections(rows, settings, references, encoder, warn))
        return Page(
            name,
            sections,
            warn,
            dataset_lead(rows),
            verdict(rows.rows, warn),
            checks_in_words(rows, settings.against) if rows.rows else "",
            proves_little=0 < rows.rows < FEWEST_ROWS,
        )
    if kind == RUN_RECORD:
        fewer = settings.model_copy(update={"examples": min(settings.examples, _EXAMPLES_OF_STEP)})
        return run_page(folder, partial(page_of, settings=fewer, references=references, encoder=encoder))
    record = read_record(folder / kind)
    complete = record if kind == TRAINING_RECORD else record.get("about", {})
    if not complete.get("complete", True):
        what = "training" if kind == TRAINING_RECORD else "evaluation"
        warn.append(
            Finding(f"the {what} in {folder} is not finished", "Give the same command again to finish it.")
        )
    warn += reliability_warnings(record)
    if kind == TRAINING_RECORD:
        return Page(name, model_sections(record), warn, model_lead(record))
    if complete.get("step") == "evaluate classification" and "labels" in record:
        sections = classified_sections(folder, record, settings.examples)
    else:
        sections = evaluation_sections(record)
    return Page(name, sections, warn, evaluation_lead(record))
