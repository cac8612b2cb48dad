"""Cost estimates of ``mine``, ``filter`` and ``rewrite``, extrapolated from a sample that is processed."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np
import pyarrow as pa

from pairsmith.methods.mining.style import load_style_classifier
from pairsmith.models.text_generator import load_text_generator
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.folder import open_training_rows
from pairsmith.search.exact import two_way_search
from pairsmith.steps.corpora.corpus import Corpus, Unit, cutter, is_styled, units_of
from pairsmith.steps.corpora.judges import LEARNED_FROM, timed_judge
from pairsmith.steps.mine.filter import most_kept
from pairsmith.steps.mine.neighbours import neighbours_per_side
from pairsmith.steps.mine.rewrite import check_pair_columns, model_inputs, text_writer
from pairsmith.steps.mine.route import corpora, schema_of
from pairsmith.steps.mine.settings import FilterSettings, MineSettings, RewriteSettings
from pairsmith.steps.planning import (
    NEIGHBOUR_BYTES,
    beyond_samples,
    counted,
    evenly_spaced,
    load_search_encoder,
    search_seconds,
    sharded,
    timed,
)
from pairsmith.steps.shared import load_options

CALIBRATION_TEXTS = 256
CALIBRATION_ROWS = 8_192
CALIBRATION_WRITTEN = 16
_CANDIDATE_BYTES = 48
"""Bytes of a candidate in scratch files: the pair, and two sorts that may run at the same time."""


def plan_mine(settings: MineSettings, before: Before) -> Estimate:
    """Estimate ``mine``: encode a sample of texts, and search random vectors.

    The time of the search is proportional to the number of pairs of an input and an output in each group.
    """
    encode, width, loading = load_search_encoder(settings)
    trained = settings.encoder not in before
    style = load_style_classifier(settings.encoder) if settings.style and trained else None
    sampled = []
    seconds = 0.0
    both = corpora(settings)
    for corpus in both:
        sample = _sample(corpus, settings, before)
        _, per_text, vectors = timed(lambda: encode, sample.texts)
        seconds += per_text * sample.count
        if style and is_styled(settings.units(), corpus.side):
            sample.kept = float(np.mean(style.probability(vectors) >= settings.style))
        sampled.append(sample)
    counts = [round(sample.count * sample.kept) for sample in sampled]
    of_vector = np.dtype(settings.vector_dtype).itemsize * width
    size = sum(
        count * (of_vector + sum(len(text.encode()) for text in sample.texts) // len(sample.texts))
        for count, sample in zip(counts, sampled, strict=True)
    )
    per_product = search_seconds(two_way_search, settings.k, width, CALIBRATION_ROWS, CALIBRATION_ROWS)
    estimate = sharded(
        loading=loading,
        shared=seconds + per_product * _products(*sampled),
        size=size + _neighbours(counts, settings) * NEIGHBOUR_BYTES,
        rows=_most_pairs(settings, counts),
        shards=sum(-(-sample.records.total() // settings.shard_size) for sample in sampled),
        sample=_pairs(sampled, schema_of(settings, both)),
    )
    similarities = int(min(settings.memory * 2**30, 8.0 * sum(counts) * 16))
    candidates = (8 + _CANDIDATE_BYTES * settings.k) * sum(counts)
    return replace(estimate, memory=estimate.memory + similarities, scratch=size + candidates)


def _most_pairs(settings: MineSettings, counts: Sequence[int]) -> int:
    """The largest number of pairs that can be selected; ``counts`` are those of inputs and of outputs."""
    most = settings.k * sum(counts) if settings.retrieval == "candidates" else min(counts)
    return min(settings.best or most, most)


@dataclass(slots=True)
class _Sample:
    """A sample of a corpus.

    Attributes:
        units: some units of the corpus, at least one.
        per_record: the mean number of units in a record.
        records: the number of records of each group in the whole corpus.
        kept: the share of the units that are in the style of the seeds.
    """

    units: Sequence[Unit]
    per_record: float
    records: Counter[str]
    kept: float = 1.0

    @property
    def texts(self) -> list[str]:
        """The texts of the units."""
        return [unit.text for unit in self.units]

    @property
    def count(self) -> int:
        """The estimated number of units in the corpus."""
        return round(self.records.total() * self.per_record)


def _sample(corpus: Corpus, settings: MineSettings, before: Before) -> _Sample:
    records = corpus.records()
    first = list(islice(records, CALIBRATION_TEXTS))
    units, _ = units_of(cutter(corpus.side, settings.units()), first)
    groups = Counter(record.group for record in chain(first, records))
    if beyond := beyond_samples(corpus.sources, before):
        groups = Counter(
            {group: round(count * (1 + beyond / groups.total())) for group, count in groups.items()}
        )
    sample = evenly_spaced(units, CALIBRATION_TEXTS) or [Unit(first[0].text, first[0].where)]
    return _Sample(sample, len(units) / len(first), groups)


def _products(x: _Sample, y: _Sample) -> float:
    """The number of pairs that an exact search compares; a search with an index compares fewer."""
    pairs = sum(count * y.records[group] for group, count in x.records.items())
    return pairs * x.per_record * x.kept * y.per_record * y.kept


def _neighbours(counts: Sequence[int], settings: MineSettings) -> int:
    """The number of neighbours that are saved; each part of the search saves those that it has found."""
    inputs, outputs = counts
    most = neighbours_per_side(settings)
    if settings.index:  # each index is searched with all texts of the other side
        indexes = [-(-count // settings.index_rows) for count in counts]
        return most["x"] * inputs * indexes[1] + most["y"] * outputs * indexes[0]
    return most["x"] * inputs + most["y"] * outputs * -(-inputs // settings.search_rows)


def _pairs(sampled: Sequence[_Sample], schema: pa.Schema) -> pa.Table:
    """Rows about as long as those of the mined pairs."""
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
        for number, (one, other) in enumerate(zip(*(sample.units for sample in sampled), strict=False))
    ]
    return pa.Table.from_pylist(rows, schema)


def plan_filter(settings: FilterSettings, before: Before) -> Estimate:
    """Estimate ``filter``: judge a sample of the pairs."""
    sample, count = _first_rows(settings.pairs, before)
    loading = per_pair = 0.0
    if settings.judge != "margin":
        loading, per_pair = timed_judge(settings.judging(), before, sample)
    if settings.judge == "likeness":  # its classifier is trained on encoded pairs before
        loading += per_pair * min(count, LEARNED_FROM)
    return sharded(
        loading=loading,
        shared=per_pair * count,
        size=sample.nbytes * count // max(1, sample.num_rows),
        rows=most_kept(settings, count),
        shards=-(-count // settings.shard_size),
        sample=sample,
    )


def plan_rewrite(settings: RewriteSettings, before: Before) -> Estimate:
    """Estimate ``rewrite``: generate a sample of the texts."""
    sample, count = _first_rows(settings.pairs, before)
    check_pair_columns(sample, settings)
    count = min(count, settings.best or count)

    def load() -> Callable[[Sequence[str]], object]:
        untrained = settings.model in before
        options = load_options(settings)
        return text_writer(
            load_text_generator(settings.model, settings.kind, fresh_decoder=untrained, **options), settings
        )

    loading, per_text, _ = timed(load, model_inputs(sample, settings.kind)[:CALIBRATION_WRITTEN], few=1)
    return sharded(
        loading=loading,
        shared=per_text * count,
        size=sample.nbytes * count // max(1, sample.num_rows),
        rows=count,
        shards=-(-count // settings.shard_size),
        tokens=count * settings.tokens,
        sample=sample,
    )


def _first_rows(pairs: str, before: Before) -> tuple[pa.Table, int]:
    """The first rows of a folder of pairs, and the number of all its rows."""
    training_rows = open_training_rows(pairs, "taken")
    return training_rows.head(CALIBRATION_TEXTS), counted(pairs, before, len(training_rows), "train")
