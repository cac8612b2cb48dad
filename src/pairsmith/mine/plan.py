"""What mining will cost: some texts encoded and some vectors searched, carried over to all."""

import time
from collections.abc import Sequence
from itertools import islice

import pyarrow as pa
import torch

from pairsmith.encoders.cross import load_cross_encoder, score_pairs
from pairsmith.encoders.encode import encode_texts
from pairsmith.encoders.search import two_way_search
from pairsmith.encoders.sentence import load_sentence_encoder
from pairsmith.mine.corpus import Corpus, corpora
from pairsmith.mine.settings import FilterSettings, MineSettings
from pairsmith.mine.units import Unit, cutter
from pairsmith.modelnames import MINILM
from pairsmith.records import MINED_ANSWER, MINED_PAIR
from pairsmith.runs import DatasetFolder
from pairsmith.runs.estimate import FOLDER_BYTES, SHARD_BYTES, Before, Estimate, peak_memory

CALIBRATION_TEXTS = 256
CALIBRATION_ROWS = 8_192
_FOUND_BYTES = 12
"""Of a neighbour on the disk, both numbers together."""


def plan_mine(settings: MineSettings, before: Before, base: str = MINILM) -> Estimate:
    """Encode some texts of both corpora, search some vectors; an encoder still to be trained is its ``base``.

    Raises:
        UserError: as for ``mine``.
    """
    started = time.monotonic()
    encoder = load_sentence_encoder(
        base if settings.encoder in before else settings.encoder,
        device=settings.device,
        dtype=settings.dtype,
        max_length=settings.max_length,
    )
    loading = time.monotonic() - started
    width = encoder.get_embedding_dimension() or 1
    seconds = 0.0
    counts, samples, records = [], [], 0
    for corpus in corpora(settings):
        units, per_record, number = _sample(corpus, settings)
        encode_texts(encoder, [unit.text for unit in units[:8]])
        begun = time.monotonic()
        encode_texts(encoder, [unit.text for unit in units], batch_tokens=settings.batch_tokens)
        count = round(number * per_record)
        seconds += (time.monotonic() - begun) * count / len(units)
        counts.append(count)
        samples.append(units)
        records += number
    shared = seconds + _search_seconds(width, settings) * counts[0] * counts[1]
    size = sum(
        count * (4 * width + sum(len(unit.text.encode()) for unit in units) // len(units))
        for count, units in zip(counts, samples, strict=True)
    )
    rows = min(settings.best or min(counts), *counts)
    pieces = -(-records // settings.shard_size)
    return Estimate(
        seconds=loading + shared,
        memory=peak_memory() + int(min(settings.memory * 2**30, 8.0 * sum(counts) * 16)),
        disk=size + sum(counts) * settings.k * _FOUND_BYTES + FOLDER_BYTES + pieces * SHARD_BYTES,
        scratch=4 * width * sum(counts),
        rows={"train": rows},
        shared=shared,
        pieces=pieces,
        worker_memory=peak_memory(),
        sample=_pairs(samples, settings),
    )


def _sample(corpus: Corpus, settings: MineSettings) -> tuple[list[Unit], float, int]:
    """Some units of a corpus, how many a record has on average, and how many records there are."""
    cut = cutter(corpus.name, settings)
    records = corpus.records()
    first = list(islice(records, CALIBRATION_TEXTS))
    units = [unit for record in first for unit in cut(record)[0]]
    number = len(first) + sum(1 for _ in records)
    step = max(1, len(units) // CALIBRATION_TEXTS)
    return units[::step] or [Unit(first[0].document, first[0].where)], len(units) / len(first), number


def _search_seconds(width: int, settings: MineSettings) -> float:
    """Seconds for each product of an input and an output."""
    vectors = torch.nn.functional.normalize(torch.randn(CALIBRATION_ROWS, width), dim=1)
    two_way_search(vectors[:1024], vectors[:1024], settings.k)
    begun = time.monotonic()
    two_way_search(vectors, vectors, settings.k)
    return (time.monotonic() - begun) / CALIBRATION_ROWS**2


def _pairs(samples: Sequence[Sequence[Unit]], settings: MineSettings) -> pa.Table:
    """Rows as long as those that will be mined."""
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
        for number, (one, other) in enumerate(zip(*samples, strict=False))
    ]
    return pa.Table.from_pylist(rows, schema=MINED_ANSWER if settings.kind == "reading" else MINED_PAIR)


def plan_filter(settings: FilterSettings, before: Before, base: str = MINILM) -> Estimate:
    """Score some pairs; a cross-encoder still to be trained is its ``base``.

    Raises:
        UserError: as for ``filter``.
    """
    earlier = before.get(settings.pairs)
    if earlier is not None and earlier.sample is not None:
        sample, count = earlier.sample, sum(earlier.rows.values())
    else:
        folder = DatasetFolder.open(settings.pairs)
        sample, count = folder.table().slice(0, CALIBRATION_TEXTS), folder.rows
    started = time.monotonic()
    cross = load_cross_encoder(
        base if settings.model in before else settings.model,
        device=settings.device,
        dtype=settings.dtype,
        fresh_head=settings.model in before,
        max_length=settings.max_length,
    )
    names = ("input", "output") if "input" in sample.column_names else ("sentence1", "sentence2")
    inputs, outputs = (sample[name].to_pylist()[:CALIBRATION_TEXTS] for name in names)
    score_pairs(cross, inputs[:8], outputs[:8])
    loading = time.monotonic() - started
    begun = time.monotonic()
    score_pairs(cross, inputs, outputs, batch_tokens=settings.batch_tokens)
    shared = (time.monotonic() - begun) * count / max(1, len(inputs))
    size = sample.nbytes * count // max(1, sample.num_rows)
    pieces = -(-count // settings.shard_size)
    return Estimate(
        seconds=loading + shared,
        memory=peak_memory(),
        disk=size + FOLDER_BYTES + pieces * SHARD_BYTES,
        rows={"train": min(count, settings.best or count)},
        shared=shared,
        pieces=pieces,
        worker_memory=peak_memory(),
        sample=sample,
    )
