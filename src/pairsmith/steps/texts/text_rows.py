"""Gives each text of a source new columns and keeps its own, for ``classify``, ``tag`` and ``summarize``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.data.files.parsed import Unreadable
from pairsmith.data.filters import EMPTY
from pairsmith.data.kept_columns import kept_names, kept_schema
from pairsmith.data.labelled_texts import TextRow, read_text_rows
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import (
    RecordShard,
    RowsAndRejects,
    Shards,
    commit_each,
    equal_shards,
    finished,
    nothing_to_do,
    record_shards,
)
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.shared import hashes
from pairsmith.steps.texts.settings import TextRowSettings

S = TypeVar("S", bound=TextRowSettings)
Row = dict[str, Any]
NewRows = Callable[[Sequence[TextRow], Callable[[TextRow], Row], Advance], tuple[list[Row], list[Reject]]]
"""A function that makes the rows and rejects of texts, none of which is blank. It is called with the texts, a
function that returns the columns that a text has already, and ``advance``."""


def text_rows(settings: TextRowSettings) -> Iterator[TextRow]:
    """The texts of the settings' source."""
    return read_text_rows(settings.data, settings.text_column)


def with_new_columns(
    step: str,
    settings: S,
    run: Run,
    schema: pa.Schema,
    load: Callable[[S], NewRows],
    card: Callable[[S, Mapping[str, str]], Card],
    read: Callable[[S], Iterator[TextRow]] = text_rows,
) -> DatasetFolder:
    """Write a row for each text of a source, and blank texts as rejects.

    Args:
        step: the name of the step.
        settings: its settings.
        run: the run.
        schema: the columns of a row; the other columns of the source come after them, as text.
        load: called once in each worker; loads the model, and returns the function that makes the rows.
        card: returns the card, given the settings and, for each other column of the source, the name under
            which it is kept.
        read: yields the texts, as often as it is called.
    """
    count, has_ids, id_columns, other_columns = 0, True, dict[str, None](), dict[str, None]()
    for row in read(settings):
        count += 1
        has_ids = has_ids and bool(row.id)
        if row.id:
            id_columns[row.id_column] = None
        other_columns |= dict.fromkeys(row.others)
    if not has_ids:  # the ids that only some rows have are kept in another column
        other_columns = id_columns | other_columns

    def numbered() -> Iterator[TextRow]:
        for number, row in enumerate(read(settings), start=1):
            ids = {row.id_column: row.id} if row.id else {}
            yield replace(row, id=str(number), others={**ids, **row.others})

    texts = partial(read, settings) if has_ids else numbered
    names = kept_names(other_columns, schema.names)
    schema = kept_schema(schema, names)
    revision = model_revision(settings.model)
    sizes = equal_shards(count, settings.shard_size)
    writer = FolderWriter.start(
        run,
        Identity.of(step, settings.deciding(), hashes("data", [settings.data]), {"model": revision}),
        schema,
        planned=len(sizes),
    )
    if writer.finished:
        return nothing_to_do(writer)
    commit_each(
        writer,
        Shards(partial(record_shards, texts, settings.shard_size), sizes, "texts"),
        partial(_load_worker, settings, revision, schema, names, load),
        ExecutorChoice.of(settings),
        title=step,
        model=settings.model,
    )
    return finished(writer, card(settings, names))


def _load_worker(
    settings: S,
    revision: str,
    schema: pa.Schema,
    names: Mapping[str, str],
    load: Callable[[S], NewRows],
    worker: int,
) -> Work[RecordShard[TextRow], RowsAndRejects]:
    """Load the model, and return the function that makes the rows of a shard of texts."""
    check_revision(settings.model, revision, worker)
    new_rows = load(settings)

    columns_of = partial(columns_before, names)

    def work(shard: RecordShard[TextRow], advance: Advance) -> RowsAndRejects:
        records, faults = read_files(shard.records)
        texts = [row for row in records if row.text]
        advance(len(shard.records) - len(texts))
        rows, rejects = new_rows(texts, columns_of, advance) if texts else ([], [])
        blank = [row for row in records if not row.text]
        rejects += [Reject.of(row.id, EMPTY, "the text is blank", columns_of(row)) for row in blank]
        rejects += faults
        return pa.Table.from_pylist(rows, schema=schema), to_table(rejects, REJECT)

    return work


def columns_before(names: Mapping[str, str], row: TextRow) -> Row:
    """The columns that a text has before it gets new ones; ``names`` are the names of kept columns."""
    others = {names[name]: value for name, value in row.others.items()}
    return {**others, "id": row.id, "text": row.text}


def read_files(records: Sequence[TextRow]) -> tuple[list[TextRow], list[Reject]]:
    """Read the texts that are still in files; a file, or a part of it, that cannot be read is a reject.

    The id of a reject is that of the text.
    """
    rows, rejects = list[TextRow](), list[Reject]()
    for row in records:
        if row.document is None:
            rows.append(row)
            continue
        try:
            parsed = row.document.read()
        except Unreadable as error:
            rejects.append(replace(row.document.reject(error.fault), id=row.id))
            continue
        text = "\n\n".join(section.text for section in parsed.sections if section.text.strip())
        rows.append(replace(row, text=text.strip(), document=None))
        rejects += [replace(row.document.reject(fault), id=row.id) for fault in parsed.faults]
    return rows, rejects
