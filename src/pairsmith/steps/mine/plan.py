"""The cost estimate of ``mine``, extrapolated from a sample of each corpus."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain, islice
from typing import Self

import numpy as np
import pyarrow as pa

from pairsmith.methods.mining.style import load_style_classifier
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.search.exact import two_way_search
from pairsmith.steps.corpora.corpus import Corpus, Unit, cutter, is_styled, units_of
from pairsmith.steps.mine.route import corpora, schema_of
from pairsmith.steps.mine.search import neighbours_per_side
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.planning import (
    CALIBRATION_TEXTS,
    NEIGHBOUR_BYTES,
    count_in_run,
    evenly_spaced,
    search_seconds,
    sharded_estimate,
    text_encoder,
    timed,
)

_TRIED_SEARCH = (8_192, 8_192)
"""Numbers of inputs and of outputs that a plan compares."""
_CANDIDATE_BYTES = 48
"""Bytes of a candidate in scratch files: the pair, and two sorts that may run at the same time."""


def plan_mine(settings: MineSettings, before: Before) -> Estimate:
    """Estimate ``mine``: encode a sample of texts, and search random vectors.

    The time of the search is proportional to the number of pairs of an input and an output in each group.
    """
    load = cache(partial(text_encoder, settings.encoder, settings))
    trained = settings.encoder not in before
    style = load_style_classifier(settings.encoder) if settings.style and trained else None
    both = corpora(settings)
    samples = [_Sample.of(corpus, settings, before) for corpus in both]
    loading, seconds, size = 0.0, 0.0, 0
    for corpus, sample in zip(both, samples, strict=True):
        texts = [unit.text for unit in sample.units]
        own_loading, per_text, vectors = timed(load, texts)
        loading, seconds = loading + own_loading, seconds + per_text * sample.count
        if style and is_styled(settings.units(), corpus.side):
            sample.per_record *= float(np.mean(style.probability(vectors) >= settings.style))
        vector_bytes = np.dtype(settings.vector_dtype).itemsize * vectors.shape[1]
        size += sample.count * (vector_bytes + sum(len(text.encode()) for text in texts) // len(texts))
    counts = [sample.count for sample in samples]
    by_rule = {"candidates": settings.k * sum(counts), "forward": counts[0], "backward": counts[1]}
    most_pairs = by_rule.get(settings.retrieval, min(counts))
    per_product = search_seconds(two_way_search, settings.k, vectors.shape[1], *_TRIED_SEARCH)
    estimate = sharded_estimate(
        _pairs(samples, schema_of(settings, both)),
        min(settings.best or most_pairs, most_pairs),
        sum(-(-sample.records.total() // settings.shard_size) for sample in samples),
        loading=loading,
        shared=seconds + per_product * _products(*samples),
        size=size + _neighbours(counts, settings) * NEIGHBOUR_BYTES,
    )
    similarities = int(min(settings.memory * 2**30, 8.0 * sum(counts) * 16))
    candidates = (8 + _CANDIDATE_BYTES * settings.k) * sum(counts)
    return replace(estimate, memory=estimate.memory + similarities, scratch=size + candidates)


@dataclass(slots=True)
class _Sample:
    """A sample of a corpus.

    Attributes:
        units: some units of the corpus, at least one.
        records: the number of records of each group in the whole corpus.
        per_record: the mean number of units in a record that are in the style of the seeds.
    """

    units: Sequence[Unit]
    records: Counter[str]
    per_record: float

    @classmethod
    def of(cls, corpus: Corpus, settings: MineSettings, before: Before) -> Self:
        """A sample of the units of the first records."""
        records = corpus.records()
        first = list(islice(records, CALIBRATION_TEXTS))
        units, _ = units_of(cutter(corpus.side, settings.units()), first)
        groups = Counter(record.group for record in chain(first, records))
        factor = count_in_run(groups.total(), corpus.sources, before) / groups.total()
        groups = Counter({group: round(count * factor) for group, count in groups.items()})
        sample = evenly_spaced(units, CALIBRATION_TEXTS) or [Unit(first[0].text, first[0].where)]
        return cls(sample, groups, len(units) / len(first))

    @property
    def count(self) -> int:
        """The estimated number of units in the corpus."""
        return round(self.records.total() * self.per_record)


def _products(x: _Sample, y: _Sample) -> float:
    """The number of pairs that an exact search compares; a search with an index compares fewer."""
    pairs = sum(count * y.records[group] for group, count in x.records.items())
    return pairs * x.per_record * y.per_record


def _neighbours(counts: Sequence[int], settings: MineSettings) -> int:
    """The number of neighbours that are saved; each part of the search saves the neighbours that it finds."""
    inputs, outputs = counts
    most = neighbours_per_side(settings)
    if settings.index:  # each index is searched with all texts of the other side
        indexes = [-(-count // settings.index_rows) for count in counts]
        return most["x"] * inputs * indexes[1] + most["y"] * outputs * indexes[0]
    return most["x"] * inputs + most["y"] * outputs * -(-inputs // settings.search_rows)


def _pairs(samples: Sequence[_Sample], schema: pa.Schema) -> pa.Table:
    """Rows about as long as the rows of mined pairs."""
    rows = [
        {
            "id": str(number),
            "input": one.text,
            "output": other.text,
            "margin": 1.0,
            "score": 0.5,
            "context": other.context,
            "answers": {"text": [other.answer], "answer_start": [other.answer_start]},
        }
        for number, (one, other) in enumerate(zip(*(sample.units for sample in samples), strict=False))
    ]
    return pa.Table.from_pylist(rows, schema)
