"""Estimates of the rows and the cost of a mixture."""

import time
from collections.abc import Mapping
from itertools import islice
from typing import Any

import pyarrow as pa

from pairsmith.data.kinds import Kind, Row, is_whole, kind_of, kind_with
from pairsmith.data.splits import to_train_on
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.steps.mix.route import as_set, mixed, shares
from pairsmith.steps.mix.settings import MixSettings
from pairsmith.steps.planning import sample_of

_SAMPLE = 1_000
"""Rows of each source that are mixed to measure the time, and to give later steps a sample."""
_ROW_BYTES = 300


def plan_mix(settings: MixSettings, before: Before) -> Estimate:
    """Mix some rows of each source and extrapolate; duplicates are not taken into account."""
    begun = time.monotonic()
    counts, samples = [], dict[str, list[Row]]()
    there = {source: sample_of(source, before) for source in settings.data}
    kinds = {
        source: kind_of(source) if sample is None else kind_with(set(sample.column_names), source)
        for source, sample in there.items()
    }
    kinds = as_set(kinds, settings)
    for source, kind in kinds.items():
        if (sample := there[source]) is not None:
            rows = sample.slice(0, _SAMPLE).to_pylist()
            samples[source] = [_as_row(row, kind, settings.pairs_as) for row in rows]
            counts.append(before[source].rows.get("train", 0))
        else:
            read = (row for row in kind.read(to_train_on(source, "mixed")) if is_whole(row, kind))
            samples[source] = list(islice(read, _SAMPLE))
            counts.append(len(samples[source]) + sum(1 for _ in read))
    kind = kinds[settings.data[0]]
    mixture = mixed(samples, kind, settings, {})
    whole = sum(shares(counts, settings.weight, settings.rows))
    share = sum(counts) / max(1, sum(map(len, samples.values())))
    return Estimate(
        seconds=(time.monotonic() - begun) * share,
        memory=peak_memory(),
        disk=whole * _ROW_BYTES,
        rows={"train": whole},
        sample=pa.Table.from_pylist(mixture.rows, pa.schema([*kind.schema, ("source", pa.string())])),
    )


def _as_row(row: Mapping[str, Any], kind: Kind, score: float | None) -> Row:
    """A row of an earlier step with the columns of ``kind``."""
    given = {"question": row.get("input"), "title": "", **row}
    if "sentence1" in kind.schema.names and "input" in row:
        given |= {"sentence1": row["input"], "sentence2": row["output"], "score": score}
    return {name: given.get(name) for name in kind.schema.names}
