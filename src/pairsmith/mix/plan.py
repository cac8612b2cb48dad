"""What a mixture will hold and cost."""

import time
from collections.abc import Mapping
from itertools import islice
from typing import Any

import pyarrow as pa

from pairsmith.mix.route import mixed, shares
from pairsmith.mix.settings import MixSettings
from pairsmith.records.kinds import Kind, Row, kind_of, kind_with, scored_as
from pairsmith.runs.estimate import Estimate, peak_memory

_SAMPLE = 1_000
"""Rows of each source that are mixed to see how long it takes, and as rows for the steps behind."""
_ROW_BYTES = 300


def plan_mix(settings: MixSettings, before: Mapping[str, Estimate]) -> Estimate:
    """Mix some rows of each source, and carry that over; repeats are not foreseen.

    Raises:
        InputError: a source that is there cannot be read.
    """
    begun = time.monotonic()
    counts, samples = [], dict[str, list[Row]]()
    kind: Kind | None = None
    for source in settings.data:
        earlier = before.get(source)
        if earlier is not None and earlier.sample is not None:
            kind = scored_as(kind_with(set(earlier.sample.column_names), source), settings.pairs_as)
            rows = earlier.sample.slice(0, _SAMPLE).to_pylist()
            samples[source] = [_as_row(row, kind, settings.pairs_as) for row in rows]
            counts.append(sum(earlier.rows.values()))
        else:
            kind = scored_as(kind_of(source), settings.pairs_as)
            read = kind.read(source)
            samples[source] = list(islice(read, _SAMPLE))
            counts.append(len(samples[source]) + sum(1 for _ in read))
    assert kind is not None  # there is a source
    found = mixed(samples, kind, settings)
    whole = sum(shares(counts, settings.weight, settings.rows))
    share = sum(counts) / max(1, sum(map(len, samples.values())))
    return Estimate(
        seconds=(time.monotonic() - begun) * share,
        memory=peak_memory(),
        disk=whole * _ROW_BYTES,
        rows={"train": whole},
        sample=pa.Table.from_pylist(found.rows, pa.schema([*kind.schema, ("source", pa.string())])),
    )


def _as_row(row: Mapping[str, Any], kind: Kind, score: float | None) -> Row:
    """A row of a step before as the kind's."""
    given = {"question": row.get("input"), "title": "", **row}
    if "sentence1" in kind.schema.names and "input" in row:
        given |= {"sentence1": row["input"], "sentence2": row["output"], "score": score}
    return {name: given.get(name) for name in kind.schema.names}
