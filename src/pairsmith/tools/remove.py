"""The step ``remove``: a data set without some of its rows, such as those that contain a person's texts.

dataset folder -> rows without a listed id or text -> dataset folder with the same splits and no rejects
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pairsmith.core.errors import InputError, counted, one_line, verb_for
from pairsmith.data.readers import at_least_one, own_id, read_texts, with_names
from pairsmith.data.schemas import REJECT
from pairsmith.data.sources import open_source
from pairsmith.data.text.words import words_or_letters
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, hash_source, sources_of, synthetic_tag
from pairsmith.runs.estimate import FOLDER_BYTES, Before, Estimate
from pairsmith.runs.identity import Identity
from pairsmith.runs.manifest import ROWS_OF
from pairsmith.runs.mapped import finished, nothing_to_do
from pairsmith.runs.storage import hash_json
from pairsmith.steps.shared import refuse_sources
from pairsmith.tools.settings import RemoveSettings

_SAMPLE = 1_000
"""Number of rows of each split that a plan passes on to later steps."""
_ROW_BYTES = 300
"""Approximate size of a row in bytes."""
_ABOUT_ROWS = ("task", "smoothing", "augment", "retrieval", "judge", "rank_by")
"""Settings of earlier steps that tell what the labels mean, or how pairs rank; the manifest keeps them."""
_SHOWN = 3
"""Largest number of ids or texts without a row that a message shows."""


def remove(settings: RemoveSettings, run: Run) -> DatasetFolder:
    """Write the rows of a dataset folder, except those with a listed id or text, into the run's folder.

    All other rows are unchanged, in the same splits and the same order. The removed rows do not become
    rejects; and the rejects of the folder are left out, as they may contain a listed text, too. Nothing in
    the new folder tells what the lists contain, or how their files are called.
    """
    refuse_sources(run, data=settings.data, ids=settings.ids, texts=settings.texts)
    folder = DatasetFolder.open(settings.data)
    manifest, schema = folder.manifest, folder.schema()
    data = hash_source(settings.data)
    ids = dict.fromkeys(_read_ids(settings.ids), 0) if settings.ids else {}
    texts = dict.fromkeys(_read_texts(settings.texts), 0) if settings.texts else {}
    masks = {}
    for split in folder.splits:
        # Rows are read twice, as Python's objects take many times the memory of a table.
        batches = (batch.to_pylist() for batch in folder.batches(split))
        masks[split] = [not _is_listed(row, ids, texts) for rows in batches for row in rows]
    # A name could be guessed from a hash of the list that contains it, so the rows' numbers are hashed.
    numbers = {split: tuple(n for n, kept in enumerate(mask) if not kept) for split, mask in masks.items()}
    identity = Identity.of(
        "remove",
        {"task": None, ROWS_OF: manifest.rows_of}
        | {name: value for name, value in manifest.settings.items() if name in _ABOUT_ROWS},
        {"data": data, "removed rows": hash_json(numbers)},
        manifest.models,
    )
    # Without options, so that the card does not show the names of the lists, which may be names of people.
    writer = FolderWriter.start(replace(run, options=""), identity, schema)
    if writer.finished:
        return nothing_to_do(writer)
    kept = {
        split: folder.table(split).filter(pa.array(mask, pa.bool_()))
        for split, mask in masks.items()
        if any(mask) or split == "train"  # other tools cannot open an empty split
    }
    removed = folder.rows - sum(map(len, kept.values()))
    writer.commit_all(kept or {"train": schema.empty_table()}, REJECT.empty_table())
    for name, counts in (("ids", ids), ("texts", texts)):
        if absent := [text for text, count in counts.items() if not count]:
            shown = ", ".join(one_line(text) for text in absent[:_SHOWN])
            more = f" and {len(absent) - _SHOWN:,} more" if len(absent) > _SHOWN else ""
            are = verb_for(len(absent), "are")
            run.progress.say(
                f"{len(absent):,} of {counted(len(counts), name)} {are} in no row: {shown}{more}"
            )
    run.progress.say(f"of {counted(folder.rows, 'rows')} {counted(removed, 'are')} removed")
    return finished(writer, _card(settings.data, folder, removed))


def _read_ids(source: str) -> Iterator[str]:
    """The ids in a column ``id``, or on the lines of a text file."""
    opened = open_source(source)
    rows = with_names(opened, ("id", "text"))
    ids = (row_id for where, row, (name,) in rows if (row_id := own_id(row, where, name)))
    return at_least_one(ids, f"--ids {source} holds no ids")


def _read_texts(source: str) -> Iterator[str]:
    """The texts as ``_words`` returns them; an ``InputError`` for a text that would be in every row."""
    for record in read_texts(source):
        if not (words := _words(record.text)):
            raise InputError(f"{record.where}: {one_line(record.text)} has no letters or digits; remove it")
        yield words


def _words(text: str) -> str:
    """The words of a text in lower case, without punctuation, joined by spaces."""
    return " ".join(words_or_letters(text.replace("_", " ")))  # as in _emphasis_


def _is_listed(row: Mapping[str, Any], ids: dict[str, int], texts: dict[str, int]) -> bool:
    """Whether the row has one of the ids or contains one of the texts, whose counts are increased by 1."""
    listed = False
    if row.get("id") in ids:
        ids[row["id"]] += 1
        listed = True
    if texts:
        columns = [f" {_words(text)} " for text in _strings(row)]
        for text in texts:
            if any(f" {text} " in column for column in columns):
                texts[text] += 1
                listed = True
    return listed


def _strings(value: Any) -> Iterator[str]:
    """All texts in a value, also in lists and objects."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | Sequence):
        parts: Collection[Any] = value.values() if isinstance(value, Mapping) else value
        for part in parts:
            yield from _strings(part)


def plan_remove(settings: RemoveSettings, before: Before) -> Estimate:
    """The estimate if no row is removed; nothing is run for it."""
    if settings.data in before:
        rows, sample = before[settings.data].rows, before[settings.data].sample
    else:
        folder = DatasetFolder.open(settings.data)
        rows = folder.split_rows
        sample = pa.concat_tables(next(folder.shards(split)).slice(0, _SAMPLE) for split in folder.splits)
    disk = FOLDER_BYTES + _ROW_BYTES * sum(rows.values())
    return Estimate(seconds=1.0, disk=disk, rows=rows, sample=sample)


def _card(data: str, folder: DatasetFolder, removed: int) -> Card:
    about = folder.manifest.about
    return Card(
        about.title,
        f"{about.description} {counted(removed, 'rows were')} removed later.".strip(),
        counts={"rows read": folder.rows, "rows removed": removed},
        columns=about.columns,
        citations=about.citations,
        provenance="The rows are those of the data set named here, except those that were removed.",
        tags=synthetic_tag(data),
        licence="The rights in the rows of the data set apply to them.",
        sources=sources_of(data=[data]),
        task=about.task,
    )
