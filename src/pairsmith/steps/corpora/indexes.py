"""FAISS indexes of a search, each trained once and saved as a shard of a dataset folder.

Every worker reads them there, and so does a search that was stopped and goes on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import torch

from pairsmith.data.schemas import REJECT, to_table
from pairsmith.runs import Card, DatasetFolder, Run
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import RowsAndRejects, commit_each, start_part
from pairsmith.runs.work import Advance, Work
from pairsmith.search.exact import Neighbours
from pairsmith.search.faiss_search import FaissIndex, faiss_search
from pairsmith.steps.search_parts import OTHER, SearchBlock

SideVectors = Callable[[int, str], torch.Tensor]
"""Given a group and a side, ``x`` or ``y``, the vectors of its texts, ``(n, d)``."""

TRAINED: pa.Schema = pa.schema(
    [("cell", pa.int64()), ("side", pa.string()), ("index", pa.large_binary())]  # in FAISS's own format
)
"""An index that holds no vectors yet, and the group and the side of the queries that it is trained for."""


@dataclass(frozen=True, slots=True)
class ToTrain:
    """An index that has to be trained: its number, its group, and the side of its queries, ``x`` or ``y``."""

    number: int
    group: int
    side: str


def train_indexes(
    name: str,
    load: Callable[[], SideVectors],
    searched: Sequence[tuple[int, str]],
    where: ExecutorChoice,
    inputs: Mapping[str, str],
    run: Run,
) -> DatasetFolder:
    """Train an index for each group and side of queries in ``searched``, and save it; saved ones are kept.

    The indexes are called ``name`` in FAISS's notation. ``load`` opens the vectors on the machine of a
    worker. ``inputs`` are the fingerprints of the encoded corpora, by name.
    """
    todo = [ToTrain(number, group, side) for number, (group, side) in enumerate(searched)]
    writer = start_part(
        run,
        step="train-index",
        schema=TRAINED,
        settings={"index": name},
        inputs=inputs,
        models={},
        planned=len(todo),
    )
    if not writer.finished:
        left = [index for index in todo if not writer.is_done(index.number)]
        commit_each(
            writer,
            partial(_load_training, load, name),
            left,
            where,
            run,
            title="train index",
            unit="indexes",
            done=len(todo) - len(left),
            total=len(todo),
        )
        writer.finish(
            Card(
                title=f"Indexes {name}, trained for a search",
                description="For each group and side an index without vectors, in the format of FAISS.",
                provenance="They were trained on some of the vectors that are searched.",
                tags=("embeddings",),
                licence="It contains no texts.",
            )
        )
    return writer.folder()


def _load_training(
    load: Callable[[], SideVectors],
    name: str,
    worker: int,  # noqa: ARG001 - all workers are alike
) -> Work[ToTrain, RowsAndRejects]:
    """Open the vectors; what is returned makes a row of ``TRAINED``, and no rejects."""
    vectors = load()

    def train(to_train: ToTrain, advance: Advance) -> RowsAndRejects:
        others = vectors(to_train.group, OTHER[to_train.side])
        index = FaissIndex(name, others.shape[1])
        index.train(others)
        advance(1)
        row = {"cell": [to_train.group], "side": [to_train.side], "index": [index.to_bytes()]}
        return pa.table(row, schema=TRAINED), to_table([], REJECT)

    return train


class Indexes:
    """A worker's index: that of one group and side at a time, filled with one stretch of the vectors."""

    def __init__(self, name: str, trained: DatasetFolder | None) -> None:
        """Indexes as ``name`` says in FAISS's notation; ``trained`` holds those of large groups.

        An index that needs no training is made here, and so is that of a group with too few vectors to train
        on, which becomes exact.
        """
        self._name, self._trained = name, trained
        kept = trained.table(columns=["cell", "side"]).to_pylist() if trained else []
        self._shards = {(row["cell"], row["side"]): number for number, row in enumerate(kept)}
        self._texts: tuple[int, str] | None = None
        self._stretch: tuple[int, int] | None = None

    def search(
        self,
        queries: torch.Tensor,
        others: torch.Tensor,
        block: SearchBlock,
        k: int,
        *,
        recall: float,
        advance: Advance,
    ) -> tuple[Neighbours, float]:
        """The k nearest of a block's queries, ``(n, d)``, by their numbers among all ``others``, ``(m, d)``.

        Only the others of the block are searched. Returned is also the recall, measured on a sample; the
        index is tuned to find at least ``recall``. ``advance`` is called as by ``faiss_search``.
        """
        index = self._of(block.group, block.side, block.others, others)
        near, measured = faiss_search(
            queries, others[slice(*block.others)], k, index=index, recall=recall, advance=advance
        )
        near.ids.add_(block.others[0])
        return near, measured

    def _of(self, group: int, side: str, stretch: tuple[int, int], others: torch.Tensor) -> FaissIndex:
        """An index that holds a stretch, begin and end, of all ``others``, ``(n, d)``."""
        if self._texts != (group, side):
            self._made = self._opened(group, side, others)
            self._texts, self._stretch = (group, side), None
        if self._stretch != stretch:
            self._made.hold(others[slice(*stretch)])
            self._stretch = stretch
        return self._made

    def _opened(self, group: int, side: str, others: torch.Tensor) -> FaissIndex:
        number = self._shards.get((group, side))
        if number is None or self._trained is None:
            index = FaissIndex(self._name, others.shape[1])
            index.train(others)  # if it needs that; with too few vectors it becomes exact
            return index
        (table,) = self._trained.shards("train", ["index"], [number])
        return FaissIndex.from_bytes(self._name, others.shape[1], table["index"][0].as_buffer())
