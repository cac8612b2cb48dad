"""The step ``mix``: combine rows of several data sets in given proportions, without duplicates.

sources -> rows of one kind -> without duplicates -> a share of each source -> rows with their source
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from pairsmith.core.errors import InputError, SettingsError, counted
from pairsmith.data.files.folders import own_folder
from pairsmith.data.filters import DUPLICATE
from pairsmith.data.kinds import (
    SUMMARIES,
    Row,
    RowKind,
    is_complete,
    row_kind,
    scored_as,
    what_is_missing,
    with_summaries,
)
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.data.splits import split_of, to_train_on
from pairsmith.data.text.folding import folded
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    model_display_name,
    sources_of,
    summary,
    synthetic_tag,
)
from pairsmith.runs.card import MEANING
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import nothing_to_do
from pairsmith.runs.seeds import generator
from pairsmith.runs.source_hashes import refuse_changed_sources
from pairsmith.steps.mix.settings import MixSettings
from pairsmith.steps.planning import read_first
from pairsmith.steps.shared import hashes, refuse_sources

_SAMPLE = 1_000
"""Number of rows of each source that a plan mixes, to measure the time and to give later steps a sample."""
_ROW_BYTES = 300
"""Approximate size of a row in bytes."""


def mix(settings: MixSettings, run: Run) -> DatasetFolder:
    """Mix rows, and write them with a column ``source`` into the run's folder.

    If a source has several splits, ``train`` is read unless the source names another one. Duplicates of
    earlier rows, rows beyond a source's share, questions without an answer and documents without a summary
    become rejects.
    """
    refuse_sources(run, data=settings.data)
    own_kinds = {source: row_kind(source) for source in settings.data}
    kinds = mixed_kinds(own_kinds, settings)
    kind, names = common_kind(kinds), mixed_source_names(settings.data)
    splits = {source: to_train_on(source, "mixed", run.progress.say) for source in kinds}
    schema = pa.schema([*kind.schema, ("source", pa.string())])
    # One value for all sources and the same value for each source have the same fingerprint.
    pick = {"pick": settings.pick[0]} if len(set(settings.pick)) == 1 else {}
    # Sources are identified by their names in the column ``source``, as their paths have no effect.
    decides = settings.model_dump(mode="json") | {"data": list(names.values()), "split": "train"} | pick
    writer = FolderWriter.start(run, Identity.of("mix", decides, hashes("data", settings.data)), schema)
    if writer.finished:
        return nothing_to_do(writer)
    rows = {names[source]: list(source_kind.read(splits[source])) for source, source_kind in kinds.items()}
    refuse_changed_sources(writer.inputs.values())
    mixture = mixed(rows, kind, settings, {names[source]: origins(source) for source in kinds})
    writer.commit_all(
        {"train": pa.Table.from_pylist(mixture.rows, schema)}, to_table(mixture.rejects, REJECT)
    )
    unchanged = [source for source in kinds if kinds[source] is own_kinds[source]]
    folder = writer.finish(_card(kind, mixture.counts, settings.data, meanings(unchanged, kind)))
    if settings.rows and len(mixture.rows) < settings.rows:
        run.progress.say(
            f"{counted(len(mixture.rows), 'rows')}, not {settings.rows:,}: a source has too few rows for its "
            "share"
        )
    for source, count in mixture.counts.items():
        run.progress.say(f"{counted(count, 'rows')} of {source}")
    run.progress.say(summary(folder))
    return folder


def mixed_kinds(kinds: Mapping[str, RowKind], settings: MixSettings) -> dict[str, RowKind]:
    """The kind that each source's rows have in the mixture; ``kinds`` are the kinds that they have now.

    Pairs of inputs and outputs become scored pairs with ``pairs_as``. If another source has documents with
    summaries, pairs become documents with summaries, too.
    """
    new_kinds = {source: scored_as(kind, settings.pairs_as) for source, kind in kinds.items()}
    if settings.pairs_as is not None and new_kinds == kinds:
        name = next(iter(kinds.values())).name
        raise SettingsError(
            f"--pairs-as is for pairs of inputs and outputs, but the rows are {name}; leave it out"
        )
    if SUMMARIES in new_kinds.values():
        return {source: with_summaries(kind) for source, kind in new_kinds.items()}
    return new_kinds


def common_kind(kinds: Mapping[str, RowKind]) -> RowKind:
    """The kind of all sources' rows; an ``InputError`` if two sources have rows of different kinds.

    ``kinds`` has the kind of each source.
    """
    first, kind = next(iter(kinds.items()))
    for source, other in kinds.items():
        if other.name != kind.name:
            raise InputError(
                f"{source} has {other.name}, {first} has {kind.name}; only rows of one kind can be mixed"
            )
    return kind


def mixed_source_names(sources: Sequence[str]) -> dict[str, str]:
    """The name of each source in the column ``source``: without its path, numbered if a name repeats."""
    names: dict[str, str] = {}
    for source in dict.fromkeys(sources):
        name = numbered = model_display_name(source)
        number = 1
        while numbered in names.values():
            number += 1
            numbered = f"{name} ({number})"
        names[source] = numbered
    return names


def origins(source: str) -> list[str]:
    """The origins of the rows of ``source``, if it is a mixture itself; else empty."""
    own = own_folder(source)
    folder = DatasetFolder.open(own) if own else None
    if folder is None or "source" not in folder.schema().names:
        return []
    column = folder.table(split_of(source)[1] or "train", ["source"]).column(0)
    return [str(origin) for origin in column.to_pylist()]


def meanings(sources: Iterable[str], kind: RowKind) -> dict[str, str]:
    """What the cards of the sources say that the columns of ``kind`` mean, each different meaning once."""
    folders = [DatasetFolder.open(own) for own in map(own_folder, sources) if own]
    cards = [{**MEANING, **folder.manifest.about.columns} for folder in folders]
    by_name = {
        name: dict.fromkeys(card[name] for card in cards if name in card) for name in kind.schema.names
    }
    return {name: "; or ".join(said) for name, said in by_name.items() if said}


@dataclass(frozen=True, slots=True)
class Mixed:
    """The mixed rows with their sources, the number of rows from each source, and the rejects."""

    rows: list[dict[str, Any]]
    counts: Mapping[str, int]
    rejects: list[Reject]


def mixed(
    sources: Mapping[str, Sequence[Row]],
    kind: RowKind,
    settings: MixSettings,
    earlier: Mapping[str, Sequence[str]],
) -> Mixed:
    """Drop duplicates, take each source's share, and interleave the sources evenly.

    ``earlier`` has the origins of the rows of sources that are mixtures themselves: rows of a source ``ab``
    that was mixed from ``a`` and ``b`` get the source ``ab/a`` or ``ab/b``.
    """
    distinct, rejects = _distinct(sources, kind, settings, earlier)
    counts = shares([len(rows) for rows in distinct.values()], settings.weight, settings.rows)
    # Rows with their positions in the mixture, from 0 to 1, and the numbers of their sources.
    placed: list[tuple[float, int, dict[str, Any]]] = []
    picks = settings.pick * (len(distinct) if len(settings.pick) == 1 else 1)
    for number, rows in enumerate(distinct.values()):
        order = list(range(len(rows)))
        if picks[number] == "random":
            order = generator(settings.seed, "mix", number).permutation(len(rows)).tolist()
        chosen = set(order[: counts[number]])
        for rank, index in enumerate(order):
            row = dict(rows[index])
            if index in chosen:
                row["id"] = f"{number + 1}-{row['id']}" if len(distinct) > 1 else row["id"]
                placed.append(((rank + 0.5) / counts[number], number, row))
            else:
                rejects.append(
                    Reject.of(str(row["id"]), "share", "the source has more rows than its share", row)
                )
    mixture = [row for _, _, row in sorted(placed, key=lambda entry: entry[:2])]
    _make_ids_unique(mixture)
    return Mixed(mixture, dict(zip(distinct, counts, strict=True)), rejects)


def _distinct(
    sources: Mapping[str, Sequence[Row]],
    kind: RowKind,
    settings: MixSettings,
    earlier: Mapping[str, Sequence[str]],
) -> tuple[dict[str, list[Row]], list[Reject]]:
    """The complete rows of each source with their origins, without duplicates; and rejects for all others."""
    distinct: dict[str, list[Row]] = {source: [] for source in sources}
    rejects: list[Reject] = []
    seen: dict[tuple[str, ...], tuple[str, Any]] = {}
    for source, rows in sources.items():
        for index, original in enumerate(rows):
            origin = f"{source}/{earlier[source][index]}" if earlier.get(source) else source
            row = {**original, "source": origin}
            if not is_complete(row, kind):
                rejects.append(Reject.of(str(row["id"]), *what_is_missing(kind), row))
            elif settings.duplicates == "drop" and (reason := _duplicate_reason(row, source, kind, seen)):
                rejects.append(Reject.of(str(row["id"]), DUPLICATE, reason, row))
            else:
                distinct[source].append(row)
    return distinct, rejects


def _make_ids_unique(rows: Sequence[dict[str, Any]]) -> None:
    """Append a number to the ids of rows that have the same id as an earlier row."""
    ids = {str(row["id"]) for row in rows}
    next_number: dict[str, int] = {}
    for row in rows:
        row_id = str(row["id"])
        if row_id in next_number:
            while f"{row_id}-{next_number[row_id]}" in ids:
                next_number[row_id] += 1
            row["id"] = f"{row_id}-{next_number[row_id]}"
            ids.add(row["id"])
        next_number.setdefault(row["id"], 2)


def shares(available: Sequence[int], weights: Sequence[float], rows: int | None) -> list[int]:
    """The number of rows to take from each source, in proportion to the weights.

    Args:
        available: the number of rows that each source has.
        weights: the weight of each source, above 0; empty: the sizes of the sources.
        rows: the number of rows to take in all; with None, or if a source has too few rows for it, as many as
            the proportion allows.
    """
    total = sum(weights) if weights else sum(available)
    fractions = [weight / total for weight in (weights or available)] if total else [0.0] * len(available)
    most = min(
        (count / fraction for count, fraction in zip(available, fractions, strict=True) if fraction),
        default=0.0,
    )
    row_count = most if rows is None else min(rows, most)
    exact = [row_count * fraction for fraction in fractions]
    counts = [int(share + 1e-9) for share in exact]
    # The rows that are missing because of the rounding go to the sources with the largest fractional parts.
    rest = round(row_count - sum(counts))
    for source in sorted(range(len(counts)), key=lambda i: (counts[i] - exact[i], i))[:rest]:
        counts[source] = min(counts[source] + 1, available[source])
    return counts


def _duplicate_reason(
    row: Row, source: str, kind: RowKind, seen: dict[tuple[str, ...], tuple[str, Any]]
) -> str:
    """The reason why a row is a duplicate; empty for a new row, which is added to ``seen``.

    ``seen`` has the source and the annotation, such as a label, of each distinct row, by the row's texts.
    """
    key = tuple(folded(str(row[name])) for name in kind.texts)
    claim = row.get(kind.claim)
    if key not in seen:
        seen[key] = (source, claim)
        return ""
    first_source, first_claim = seen[key]
    if kind.claim and claim != first_claim:
        return f"the same texts occur in {first_source} with another {kind.claim}"
    return f"the same texts occur in {first_source}"


def plan_mix(settings: MixSettings, before: Before) -> Estimate:
    """Mix some rows of each source, and extrapolate as if no row were a duplicate."""
    begun = time.monotonic()
    counts, samples = [], dict[str, list[Row]]()
    kinds = mixed_kinds({source: row_kind(source) for source in settings.data}, settings)
    for source, kind in kinds.items():
        samples[source], count = read_first(
            [source], partial(_complete_rows, kind), before, _SAMPLE, split="train"
        )
        counts.append(count)
    kind = kinds[settings.data[0]]
    mixture = mixed(samples, kind, settings, {})
    row_count = sum(shares(counts, settings.weight, settings.rows))
    factor = sum(counts) / max(1, sum(map(len, samples.values())))
    return Estimate(
        seconds=(time.monotonic() - begun) * factor,
        disk=row_count * _ROW_BYTES,
        rows={"train": row_count},
        sample=pa.Table.from_pylist(mixture.rows, pa.schema([*kind.schema, ("source", pa.string())])),
    )


def _complete_rows(kind: RowKind, source: str) -> Iterator[Row]:
    return (row for row in kind.read(to_train_on(source, "mixed")) if is_complete(row, kind))


def _card(
    kind: RowKind, counts: Mapping[str, int], sources: Sequence[str], columns: Mapping[str, str]
) -> Card:
    return Card(
        f"A mixture of {counted(len(sources), 'data sets')}",
        f"Rows of several data sets: {kind.name}. The column `source` says which one a row is from.",
        counts={f"rows from {source}": count for source, count in counts.items()},
        columns=columns,
        provenance="The rows are those of the data sets named here.",
        tags=synthetic_tag(*sources),
        licence="The rights in the rows of each data set apply to them.",
        sources=sources_of(data=sources),
    )
