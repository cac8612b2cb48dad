"""The step ``mix``: combine rows of several data sets in given proportions, without duplicates.

sources -> rows of one kind -> duplicates dropped -> a share of each -> one data set, rows with their source
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from pairsmith.core.errors import InputError, SettingsError
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
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, model_display_name, sources_of, summary
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.runs.mapped import nothing_to_do
from pairsmith.runs.seeds import generator
from pairsmith.steps.mix.settings import MixSettings
from pairsmith.steps.planning import counted, first_items
from pairsmith.steps.shared import hashes, refuse_sources

_SAMPLE = 1_000
"""Rows of each source that are mixed to measure the time, and to give later steps a sample."""
_ROW_BYTES = 300


def mix(settings: MixSettings, run: Run) -> DatasetFolder:
    """Mix rows, and write them with a column ``source`` into the run's folder.

    Of several splits ``train`` is read, or the one that is named. Duplicates of earlier rows, rows beyond a
    source's share, questions without an answer and documents without a summary become rejects.
    """
    refuse_sources(run, data=settings.data)
    kinds = as_set({source: row_kind(source) for source in settings.data}, settings)
    kind, names = common_kind(kinds), mixed_source_names(settings.data)
    parts = {source: to_train_on(source, "mixed", run.progress.say) for source in kinds}
    schema = pa.schema([*kind.schema, ("source", pa.string())])
    # Given once or for each source, the same value means the same.
    pick = {"pick": settings.pick[0]} if len(set(settings.pick)) == 1 else {}
    writer = FolderWriter.start(
        run,
        step="mix",
        schema=schema,
        # Sources by the names that rows give them; their paths have no effect.
        settings=settings.model_dump(mode="json") | {"data": list(names.values()), "split": "train"} | pick,
        inputs=hashes("data", settings.data),
        models={},
    )
    if writer.finished:
        return nothing_to_do(writer, run)
    rows = {names[source]: list(source_kind.read(parts[source])) for source, source_kind in kinds.items()}
    mixture = mixed(rows, kind, settings, {names[source]: origins(source) for source in kinds})
    writer.commit_all(
        {"train": pa.Table.from_pylist(mixture.rows, schema)}, to_table(mixture.rejects, REJECT)
    )
    folder = writer.finish(_card(kind, mixture.counts, settings.data))
    if settings.rows and len(mixture.rows) < settings.rows:
        run.progress.say(
            f"{len(mixture.rows):,} rows, not {settings.rows:,}: one of the sources has too few for its share"
        )
    for source, count in mixture.counts.items():
        run.progress.say(f"{count:,} rows of {source}")
    run.progress.say(summary(folder))
    return folder


def as_set(kinds: Mapping[str, RowKind], settings: MixSettings) -> dict[str, RowKind]:
    """The kind of each source's rows, pairs of inputs and outputs as what they are mixed with.

    ``pairs_as`` turns them into scored pairs; beside documents with summaries they are such, too.
    """
    new_kinds = {source: scored_as(kind, settings.pairs_as) for source, kind in kinds.items()}
    if settings.pairs_as is not None and new_kinds == kinds:
        name = next(iter(kinds.values())).name
        raise SettingsError(
            f"--pairs-as is for pairs of inputs and outputs, but these are {name}; leave it out"
        )
    if SUMMARIES in new_kinds.values():
        return {source: with_summaries(kind) for source, kind in new_kinds.items()}
    return new_kinds


def common_kind(kinds: Mapping[str, RowKind]) -> RowKind:
    """The one kind that the rows of all sources have; ``kinds`` is by source."""
    first, kind = next(iter(kinds.items()))
    for source, other in kinds.items():
        if other.name != kind.name:
            raise InputError(
                f"{source} has {other.name}, {first} has {kind.name}; only rows of one kind can be mixed"
            )
    return kind


def mixed_source_names(sources: Sequence[str]) -> dict[str, str]:
    """The name that rows give each source: not its path, and numbered where sources share a name."""
    names: dict[str, str] = {}
    for source in dict.fromkeys(sources):
        name = model_display_name(source)
        same = sum(model_display_name(other) == name for other in names)
        names[source] = f"{name} ({same + 1})" if same else name
    return names


def origins(source: str) -> list[str]:
    """The origin of each row of ``source`` if it is a mixture itself; else empty."""
    own = own_folder(source)
    folder = DatasetFolder.open(own) if own else None
    if folder is None or "source" not in folder.schema().names:
        return []
    column = folder.table(split_of(source)[1] or "train", ["source"]).column(0)
    return [str(origin) for origin in column.to_pylist()]


@dataclass(frozen=True, slots=True)
class Mixed:
    """The mixed rows with their source, the number of rows from each source, and the rejects."""

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

    ``earlier`` holds the origins of the rows of sources that are mixtures themselves; rows of a source ``ab``
    mixed from ``a`` and ``b`` get the source ``ab/a`` or ``ab/b``.
    """
    left, rejects = dict[str, list[Row]](), list[Reject]()
    seen: dict[tuple[str, ...], tuple[str, Any]] = {}
    for source, rows in sources.items():
        left[source] = []
        for at, given in enumerate(rows):
            origin = f"{source}/{earlier[source][at]}" if earlier.get(source) else source
            row = {**given, "source": origin}
            if not is_complete(row, kind):
                rejects.append(Reject.of(str(row["id"]), *what_is_missing(kind), row))
                continue
            reason = _repeats(row, source, kind, seen) if settings.duplicates == "drop" else ""
            if reason:
                rejects.append(Reject.of(str(row["id"]), DUPLICATE, reason, row))
            else:
                left[source].append(row)
    counts = shares([len(rows) for rows in left.values()], settings.weight, settings.rows)
    placed: list[tuple[float, int, dict[str, Any]]] = []
    picks = settings.pick * (len(left) if len(settings.pick) == 1 else 1)
    for number, rows in enumerate(left.values()):
        order = list(range(len(rows)))
        if picks[number] == "random":
            order = generator(settings.seed, "mix", number).permutation(len(rows)).tolist()
        chosen = set(order[: counts[number]])
        for at, index in enumerate(order):
            row = dict(rows[index])
            if index in chosen:
                row["id"] = f"{number + 1}-{row['id']}" if len(left) > 1 else row["id"]
                placed.append(((at + 0.5) / counts[number], number, row))
            else:
                rejects.append(
                    Reject.of(str(row["id"]), "share", "the source has more rows than its share", row)
                )
    mixture = [row for _, _, row in sorted(placed, key=lambda entry: entry[:2])]
    _tell_apart(mixture)
    return Mixed(mixture, dict(zip(left, counts, strict=True)), rejects)


def _tell_apart(rows: Sequence[dict[str, Any]]) -> None:
    """Make ids unique: the first row with an id keeps it, the others get a number appended."""
    ids = {str(row["id"]) for row in rows}
    following: dict[str, int] = {}
    for row in rows:
        name = str(row["id"])
        if name in following:
            while f"{name}-{following[name]}" in ids:
                following[name] += 1
            row["id"] = f"{name}-{following[name]}"
            ids.add(row["id"])
        following.setdefault(row["id"], 2)


def shares(available: Sequence[int], weights: Sequence[float], rows: int | None) -> list[int]:
    """The number of rows to take from each source, which has ``available``, in proportion to the weights.

    Weights are above 0; without any, the proportion is that of the sources' sizes. Together the numbers are
    ``rows``, or as many as the proportion allows, which is also what None stands for.
    """
    total = sum(weights) if weights else sum(available)
    parts = [weight / total for weight in (weights or available)] if total else [0.0] * len(available)
    most = min((count / part for count, part in zip(available, parts, strict=True) if part), default=0.0)
    whole = most if rows is None else min(rows, most)
    exact = [whole * part for part in parts]
    counts = [int(share + 1e-9) for share in exact]
    rest = round(whole - sum(counts))
    for at in sorted(range(len(counts)), key=lambda at: (counts[at] - exact[at], at))[:rest]:
        counts[at] = min(counts[at] + 1, available[at])
    return counts


def _repeats(row: Row, source: str, kind: RowKind, seen: dict[tuple[str, ...], tuple[str, Any]]) -> str:
    """Why a row is a duplicate; empty for a new row, which is added to ``seen``."""
    key = tuple(folded(str(row[name])) for name in kind.texts)
    claim = row.get(kind.claim)
    if key not in seen:
        seen[key] = (source, claim)
        return ""
    where, other = seen[key]
    if kind.claim and claim != other:
        return f"the same texts occur in {where} with another {kind.claim}"
    return f"the same texts occur in {where}"


def plan_mix(settings: MixSettings, before: Before) -> Estimate:
    """Mix some rows of each source and extrapolate; duplicates are not taken into account."""
    begun = time.monotonic()
    counts, samples = [], dict[str, list[Row]]()
    kinds = as_set({source: row_kind(source) for source in settings.data}, settings)
    for source, kind in kinds.items():
        rows = (row for row in kind.read(to_train_on(source, "mixed")) if is_complete(row, kind))
        samples[source], number = first_items(rows, _SAMPLE)
        counts.append(counted(source, before, number, "train"))
    kind = kinds[settings.data[0]]
    mixture = mixed(samples, kind, settings, {})
    row_count = sum(shares(counts, settings.weight, settings.rows))
    share = sum(counts) / max(1, sum(map(len, samples.values())))
    return Estimate(
        seconds=(time.monotonic() - begun) * share,
        memory=peak_memory(),
        disk=row_count * _ROW_BYTES,
        rows={"train": row_count},
        sample=pa.Table.from_pylist(mixture.rows, pa.schema([*kind.schema, ("source", pa.string())])),
    )


def _card(kind: RowKind, counts: Mapping[str, int], sources: Sequence[str]) -> Card:
    return Card(
        "Rows of several data sets",
        f"A mixture of {kind.name}. The column `source` says where each row is from.",
        counts={f"rows of {source}": count for source, count in counts.items()},
        columns={
            "source": "the data set that the row is from; if that is a mixture, followed by the source there"
        },
        provenance="The rows are those of the data sets named here.",
        tags=(),
        licence="The rights in the rows of each data set apply to them.",
        sources=sources_of(data=sources),
    )
