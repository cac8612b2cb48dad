"""The report's section on rejected rows and why they were rejected."""

import json

import pyarrow.compute as pc

from pairsmith.core.errors import counted
from pairsmith.data.schemas import length_before_cut
from pairsmith.runs import DatasetFolder
from pairsmith.runs.manifest import REJECTS
from pairsmith.tools.report.parts import Bars, Block, ExampleRows, Note, PageSection, column_words, shown_text
from pairsmith.tools.report.rows import shown_label
from pairsmith.tools.settings import ReportSettings

_MOST_REASONS = 15
"""Largest number of reasons that are listed one by one."""


def rejects_section(folder: DatasetFolder, settings: ReportSettings) -> PageSection:
    """The number of rejected rows by filter and reason, with examples."""
    reasons = sorted(folder.manifest.counts.rejects_by_reason.items(), key=lambda pair: -pair[1])
    if not reasons:
        return PageSection("Rejected rows", [Note("No row was rejected.")])
    blocks: list[Block] = [Bars(reasons[:_MOST_REASONS], "Rejected rows by filter and reason", " rows")]
    if len(reasons) > _MOST_REASONS:
        rest = reasons[_MOST_REASONS:]
        rejects = sum(count for _, count in rest)
        blocks.append(
            Note(f"{counted(rejects, 'more rows were')} rejected for {counted(len(rest), 'other reasons')}.")
        )
    by_reason: dict[str, list[str]] = {reason: [] for reason, _ in reasons[:_MOST_REASONS]}
    for table in folder.shards(REJECTS):
        if all(len(rows) == settings.examples for rows in by_reason.values()):
            break
        names = pc.binary_join_element_wise(table.column("filter"), table.column("reason"), ": ")
        for reason, rows in by_reason.items():
            if missing := settings.examples - len(rows):
                of_reason = table.filter(pc.equal(names, reason)).slice(0, missing)
                rows += map(str, of_reason.column("row").to_pylist())
    blocks += [
        ExampleRows(shown_text(f"{reason}:", 200), [("", _columns(row)) for row in rows])
        for reason, rows in by_reason.items()
        if rows
    ]
    return PageSection("Rejected rows", blocks)


def _columns(row: str) -> list[tuple[str, str]]:
    """The columns of a rejected row, which is stored as a JSON object; any other text as one column."""
    try:
        value = json.loads(row)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        return [("", shown_text(row))]
    texts = {name: shown_label(cell) for name, cell in value.items() if name != "id" and cell != ""}
    return [
        (shown_text(column_words(name), 60), shown_text(text, length=length_before_cut(text)))
        for name, text in texts.items()
    ]
