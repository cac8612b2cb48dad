"""Estimates of the rows and the cost of a mixture."""

import time

import pyarrow as pa

from pairsmith.data.kinds import Row, is_complete, row_kind
from pairsmith.data.splits import to_train_on
from pairsmith.runs.estimate import Before, Estimate, peak_memory
from pairsmith.steps.mix.route import as_set, mixed, shares
from pairsmith.steps.mix.settings import MixSettings
from pairsmith.steps.planning import counted, first_items

_SAMPLE = 1_000
"""Rows of each source that are mixed to measure the time, and to give later steps a sample."""
_ROW_BYTES = 300


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
