"""The step ``report``: one self-contained HTML page about a folder.

folder -> its rows, models and figures -> sections -> report.html
"""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pairsmith.core.errors import FolderError
from pairsmith.core.model_names import model_revision
from pairsmith.core.paths import Place, is_folder, place, reaching, size_of
from pairsmith.core.progress import clock
from pairsmith.runs import DatasetFolder, Run, hash_source, refuse_source, settled
from pairsmith.runs.folder import MANIFEST
from pairsmith.runs.identity import Identity
from pairsmith.runs.storage import write_atomic
from pairsmith.tools.record import recorded
from pairsmith.tools.report.dataset import dataset_sections
from pairsmith.tools.report.models import evaluation_section, model_section
from pairsmith.tools.report.overlap import known_texts
from pairsmith.tools.report.parts import Block, Page, Section, Table, number, render, shown
from pairsmith.tools.report.traces import check_traces
from pairsmith.tools.settings import ReportSettings

PAGE = "report.html"
RECORD = "report.json"
COMPARISON = "comparison.html"
"""The page that ``compare`` writes."""
_RUN, _TRAINING, _RESULTS, _AUDIT = "run.json", "training.json", "results.json", "audit.json"
_KINDS = (_RUN, MANIFEST, _TRAINING, _RESULTS)


def report(settings: ReportSettings, run: Run) -> Place:
    """Write ``report.html`` about a dataset folder, a model, an evaluation, or a run with all of its steps.

    ``report.json`` beside it records what was reported on, and the page's warnings. Returns the page's path.
    """
    settings = settled(settings, run)
    source = place(settings.data)
    kind = kind_of(source)
    refuse_source(run, data=settings.data)
    if settings.traces:
        check_traces(source, settings)
    identity = Identity.of(
        "report",
        settings.deciding(),
        inputs={name: hash_source(name) for name in settings.against},
        models={"encoder": model_revision(settings.encoder)} if settings.encoder else {},
    )
    with recorded(run, identity, RECORD, any_work=True) as save:
        save()  # first, so that the folder says whose it is
        known = {name: known_texts(name) for name in settings.against}
        encoder = None
        if settings.encoder:
            from pairsmith.models.sentence_encoder import load_sentence_encoder

            encoder = load_sentence_encoder(settings.encoder, device=settings.device, dtype=settings.dtype)
        of_rows = partial(dataset_sections, settings=settings, known=known, encoder=encoder)
        warn: list[str] = []
        sections = list(_sections(source, kind, of_rows, warn))
        page = Page(f"{source.name or source}", sections, [shown(warning) for warning in warn])
        write_atomic(run.out / PAGE, render(page).encode("utf-8", "replace"))
        save(complete=True, data=str(source), warnings=list(page.warnings))
    for warning in page.warnings:
        run.progress.say(f"warning: {warning}")
    run.progress.say(f"wrote {run.out / PAGE}")
    return run.out / PAGE


def kind_of(folder: Place) -> str:
    """The name of the record file that shows what kind of folder this is."""
    with reaching(folder, FolderError):
        found = next((name for name in _KINDS if size_of(folder / name) is not None), None)
    if found is None:
        if size_of(folder / COMPARISON) is not None:
            raise FolderError(
                f"--data {folder}: is a comparison, whose page is its {COMPARISON}; for a report on rows, "
                "give the folder run of a seed"
            )
        what = "there is no such folder" if not is_folder(folder) else f"it has none of {', '.join(_KINDS)}"
        raise FolderError(f"--data {folder}: {what}; give a folder that a step or a recipe wrote")
    return found


def _sections(
    folder: Place, kind: str, of_rows: Callable[..., Iterator[Section]], warn: list[str]
) -> Iterator[Section]:
    if kind == MANIFEST:
        yield from of_rows(DatasetFolder.open(folder), warn=warn)
    elif kind == _TRAINING:
        record = _json(folder / _TRAINING)
        if not record.get("complete", True):
            warn.append(f"the training in {folder} is not finished")
        yield model_section(record)
    elif kind == _RESULTS:
        results = _json(folder / _RESULTS)
        if not results.get("about", {}).get("complete", True):
            warn.append(f"the evaluation in {folder} is not finished")
        yield evaluation_section(results)
    else:
        yield from _run_sections(folder, of_rows, warn)


def _run_sections(
    folder: Place, of_rows: Callable[..., Iterator[Section]], warn: list[str]
) -> Iterator[Section]:
    """The run's figures and times, then each finished step."""
    record = _json(folder / _RUN)
    yield Section(str(record.get("recipe", "")), list(_overview(folder, record)), level=2)
    for name in record.get("planned", []):
        if name not in record.get("steps", {}):
            warn.append(f"the step {name} is not finished")
            continue
        own: list[str] = []
        step = folder / name
        if size_of(step / RECORD) is not None or size_of(step / _AUDIT) is not None:
            continue  # reports and audits have pages and results of their own
        yield Section(name, [], level=2)
        try:
            yield from _sections(step, kind_of(step), of_rows, own)
        except FolderError as error:
            own.append(str(error))
        warn += [f"{name}: {warning}" for warning in own]


def _overview(folder: Place, record: Any) -> Iterator[Block]:
    spent = {str(name): float(seconds) for name, seconds in record.get("spent", {}).items()}
    if spent:
        rows = [(name, clock(seconds)) for name, seconds in spent.items()]
        yield Table(["step", "time taken"], [*rows, ("all", clock(sum(spent.values())))])
    if size_of(folder / _RESULTS) is not None:
        figures = {name: value for name, value in _json(folder / _RESULTS).items() if name != "seconds"}
        yield Table(
            ["figure", "value"],
            [(name, number(value, 2)) for name, value in figures.items() if isinstance(value, int | float)],
        )


def _json(path: Place) -> Any:
    with reaching(path, FolderError):
        try:
            value = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise FolderError(f"{path} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise FolderError(f"{path} is not a record written by pairsmith")
    return value
