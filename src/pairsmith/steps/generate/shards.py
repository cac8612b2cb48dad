"""The inputs of a run, cut into shards that do not depend on the number of processes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain, islice

import pyarrow as pa

from pairsmith.core.batches import in_batches
from pairsmith.data.filters import DUPLICATE
from pairsmith.data.readers import TextRecord, read_texts, text_id
from pairsmith.data.schemas import Reject
from pairsmith.data.tasks import Decoding, TaskSpec
from pairsmith.methods.dino.requests import TextRequest, pair_requests, text_requests
from pairsmith.runs import Growth, ShardEntry, ShardSpec
from pairsmith.steps.generate.settings import GenerateSettings
from pairsmith.steps.shared import naming_texts

Items = Sequence[str] | range
"""The inputs of a pair task, or the numbers of the texts of a text task."""

GROWING = frozenset({"per_input", "tries", "limit"})
"""Settings that can be raised without changing the rows of a finished run."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Inputs for which a worker writes texts, and which are saved together.

    Attributes:
        number: the number of the shard, from 0.
        items: the distinct inputs of a pair task, or the numbers of the texts of a text task.
        duplicates: rejects for the inputs in this shard that repeat an earlier input.
        ids: the ids of all inputs in this shard, in order, including duplicates.
        amount: the number of texts and tries for each item, in words.
        earlier: the rows and rejects that an earlier run made for a part of this shard.
    """

    number: int
    items: Items
    duplicates: tuple[Reject, ...]
    ids: tuple[str, ...]
    amount: str
    earlier: tuple[pa.Table, pa.Table] | None = None

    @property
    def spec(self) -> ShardSpec:
        """The specification of the shard's content, as the journal records it."""
        return ShardSpec(len(self.ids), _content(self.ids), self.amount)

    def requests(self, task: TaskSpec) -> Iterator[TextRequest]:
        """The requests for the texts of this shard."""
        if isinstance(self.items, range):
            return text_requests(task, self.items)
        return pair_requests(task, self.items, task.decoding.per_input)


def distinct_inputs(settings: GenerateSettings) -> Iterator[str]:
    """The texts of ``input_records`` without duplicates."""
    seen: set[str] = set()
    for record in input_records(settings):
        if (name := text_id(record.text)) not in seen:
            seen.add(name)
            yield record.text


def shards_of(settings: GenerateSettings, decoding: Decoding, size: int) -> list[Shard]:
    """All shards of a run, in order, of ``size`` inputs or texts each."""
    if not settings.inputs:
        amount = f"1 text in {decoding.tries} tries"
        parts = in_batches(range(decoding.per_input), size)
        return [
            Shard(number, items, (), tuple(map(str, items)), amount) for number, items in enumerate(parts)
        ]
    amount = f"{decoding.per_input} texts in {decoding.tries} tries"
    drafts: list[tuple[list[str], list[Reject], list[str]]] = []
    seen: set[str] = set()
    for record in input_records(settings):
        name = text_id(record.text)
        if name not in seen and (not drafts or len(drafts[-1][0]) == size):
            drafts.append(([], [], []))
        texts, duplicates, ids = drafts[-1]
        ids.append(name)
        if name in seen:
            row = {"sentence1": record.text, "where": record.where}
            duplicates.append(Reject.of(name, DUPLICATE, "repeats an earlier input", row))
        else:
            seen.add(name)
            texts.append(record.text)
    return [
        Shard(number, texts, tuple(duplicates), tuple(ids), amount)
        for number, (texts, duplicates, ids) in enumerate(drafts)
    ]


def input_records(settings: GenerateSettings) -> Iterator[TextRecord]:
    """The first ``limit`` inputs of all sources, including those that repeat an earlier one."""
    sources = (
        read_texts(source, columns=settings.column, remedy=naming_texts("column"))
        for source in settings.inputs
    )
    return islice(chain.from_iterable(sources), settings.limit)


def growth(shards: Sequence[Shard]) -> Growth:
    """How a run may grow: a finished shard is kept if its inputs are the first inputs of the new shard."""

    def is_prefix(entry: ShardEntry) -> bool:
        if entry.shard >= len(shards):
            return False
        ids = shards[entry.shard].ids
        return len(ids) >= entry.items and _content(ids[: entry.items]) == entry.content

    return Growth(GROWING, is_prefix)


def _content(ids: Sequence[str]) -> str:
    return sha256("\n".join(ids).encode()).hexdigest()
