"""The work of a run, cut into shards that are the same for one process or many."""

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
"""Settings that can be raised without a change to the rows that are there."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One shard's share of the work.

    Attributes:
        items: inputs, or numbers of texts, for which texts are written.
        duplicates: inputs in this shard that repeat an earlier one.
        names: ids of all inputs in this shard, in order, duplicates included.
        asked: in words, the number of texts and tries for each item.
        earlier: the rows and rejects that an earlier run made for a part of it.
    """

    number: int
    items: Items
    duplicates: tuple[Reject, ...]
    names: tuple[str, ...]
    asked: str
    earlier: tuple[pa.Table, pa.Table] | None = None

    @property
    def share(self) -> ShardSpec:
        """The share in the form that the shard's entry records."""
        return ShardSpec(len(self.names), _content(self.names), self.asked)

    def requests(self, task: TaskSpec, decoding: Decoding) -> Iterator[TextRequest]:
        """The texts to be written."""
        if isinstance(self.items, range):
            return text_requests(task, self.items)
        return pair_requests(task, self.items, decoding.per_input)


def distinct_inputs(settings: GenerateSettings) -> Iterator[str]:
    """The texts of ``input_records``, each once."""
    seen: set[str] = set()
    for record in input_records(settings):
        if (name := text_id(record.text)) not in seen:
            seen.add(name)
            yield record.text


def shards_of(settings: GenerateSettings, decoding: Decoding, size: int) -> list[Shard]:
    """All shards of a run, in order, of ``size`` inputs or texts each."""
    if not settings.inputs:
        demand = f"1 text in {decoding.tries} tries"
        shares = in_batches(range(decoding.per_input), size)
        return [
            Shard(number, items, (), tuple(map(str, items)), demand) for number, items in enumerate(shares)
        ]
    demand = f"{decoding.per_input} texts in {decoding.tries} tries"
    drafts: list[tuple[list[str], list[Reject], list[str]]] = []
    seen: set[str] = set()
    for record in input_records(settings):
        name = text_id(record.text)
        if name not in seen and (not drafts or len(drafts[-1][0]) == size):
            drafts.append(([], [], []))
        texts, duplicates, names = drafts[-1]
        names.append(name)
        if name in seen:
            row = {"sentence1": record.text, "where": record.where}
            duplicates.append(Reject.of(name, DUPLICATE, "repeats an earlier input", row))
        else:
            seen.add(name)
            texts.append(record.text)
    return [
        Shard(number, texts, tuple(duplicates), tuple(names), demand)
        for number, (texts, duplicates, names) in enumerate(drafts)
    ]


def input_records(settings: GenerateSettings) -> Iterator[TextRecord]:
    """The inputs up to the limit, those that repeat an earlier one included."""
    sources = (
        read_texts(source, columns=settings.column, remedy=naming_texts("column"))
        for source in settings.inputs
    )
    return islice(chain.from_iterable(sources), settings.limit)


def growth(shards: Sequence[Shard]) -> Growth:
    """How a run may grow: it keeps finished shards whose inputs are a prefix of the new shard's inputs."""

    def holds(entry: ShardEntry) -> bool:
        if entry.shard >= len(shards):
            return False
        names = shards[entry.shard].names
        return len(names) >= entry.items and _content(names[: entry.items]) == entry.content

    return Growth(GROWING, holds)


def _content(names: Sequence[str]) -> str:
    return sha256("\n".join(names).encode()).hexdigest()
