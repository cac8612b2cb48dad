"""FAISS indexes of a search: each is trained once and saved as a shard of a dataset folder.

All workers read the trained indexes from this folder, and so does a run that continues a stopped search.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import torch

from pairsmith.data.schemas import REJECT, to_table
from pairsmith.runs import Card, DatasetFolder, Run
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import RowsAndRejects, Shards, commit_each, start_part
from pairsmith.runs.work import Advance, Work
from pairsmith.search.exact import Neighbours
from pairsmith.search.faiss_search import FaissIndex, faiss_search
from pairsmith.steps.search_parts import OTHER, SearchBlock

SideVectors = Callable[[int, str], torch.Tensor]
"""A function that returns the vectors, ``(n, d)``, of a group's texts on a side, ``x`` or ``y``."""

TRAINED: pa.Schema = pa.schema(
    [("cell", pa.int64()), ("side", pa.string()), ("index", pa.large_binary())]  # in FAISS's own format
)
"""A trained index without vectors, and the group and the side of the queries that it is trained for."""


@dataclass(frozen=True, slots=True)
class ToTrain:
    """An index to train: its number, its group, and the side of its queries, ``x`` or ``y``."""

    number: int
    group: int
    side: str


def train_indexes(
    name: str,
    load: Callable[[], SideVectors],
    searched: Sequence[tuple[int, str]],
    executor: ExecutorChoice,
    inputs: Mapping[str, str],
    run: Run,
) -> DatasetFolder:
    """Train an index for each group and side of queries, and save it in ``run.out``.

    Indexes that an earlier run has saved are not trained again.

    Args:
        name: the kind of index in FAISS's notation, such as ``IVF4096,Flat``.
        load: opens the vectors on the machine of a worker.
        searched: the numbers of the groups, each with the side of the queries.
        executor: where the work is done.
        inputs: the fingerprints of the encoded corpora, by name.
        run: the run, whose folder becomes that of the indexes.

    Returns:
        the folder, with the columns of ``TRAINED``.
    """
    indexes = [ToTrain(number, group, side) for number, (group, side) in enumerate(searched)]
    identity = Identity.of("train-index", {"index": name}, inputs)
    writer = start_part(run, identity, TRAINED, planned=len(indexes))
    if writer.finished:
        return writer.folder()
    commit_each(
        writer,
        Shards(lambda numbers: [indexes[number] for number in numbers], [1] * len(indexes), "indexes"),
        partial(_load_training, load, name),
        executor,
        title="train index",
    )
    return writer.finish(
        Card(
            title=f"Indexes {name}, trained for a search",
            description="For each group and side an index without vectors, in the format of FAISS.",
            columns={
                "cell": "the number of the group of texts, from 0",
                "side": "x for inputs (or queries), y for outputs: whose neighbours are searched",
                "index": "the index, in FAISS's own format",
            },
            provenance="They were trained on some of the vectors that are searched.",
            tags=("embeddings",),
            licence="It contains no texts.",
        )
    )


def _load_training(
    load: Callable[[], SideVectors],
    name: str,
    worker: int,  # noqa: ARG001 - all workers are alike
) -> Work[ToTrain, RowsAndRejects]:
    """Open the vectors; returns the function that trains an index and makes its row of ``TRAINED``."""
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
    """The index of a worker, for one group and side at a time, which holds one range of the vectors."""

    def __init__(self, name: str, trained: DatasetFolder | None) -> None:
        """``name`` is the kind of index in FAISS's notation; ``trained`` is the folder of trained indexes.

        An index that is not in the folder is built when it is needed: either its kind needs no training, or
        its group has too few vectors to train an index, so that the search is exact.
        """
        self._name, self._trained = name, trained
        kept = trained.table(columns=["cell", "side"]).to_pylist() if trained else []
        self._shards = {(row["cell"], row["side"]): number for number, row in enumerate(kept)}
        self._texts: tuple[int, str] | None = None
        self._held: tuple[int, int] | None = None

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
        """The k nearest neighbours of a block's queries among its other texts, and the measured recall.

        Args:
            queries: ``(n, d)``, the vectors of the block's queries.
            others: ``(m, d)``, the vectors of all texts of the other side; the ids are the numbers of these
                texts. Only the block's range of them is searched.
            block: the block.
            k: the number of neighbours.
            recall: the share of the neighbours that the index is tuned to find on a sample, at least.
            advance: is called as by ``faiss_search``.
        """
        index = self._of(block.group, block.side, block.others, others)
        neighbours, measured = faiss_search(queries, index, k, recall=recall, advance=advance)
        neighbours.ids.add_(block.others[0])
        return neighbours, measured

    def _of(self, group: int, side: str, held: tuple[int, int], others: torch.Tensor) -> FaissIndex:
        """The index that holds the range ``held``, begin and end, of all ``others``, ``(m, d)``."""
        if self._texts != (group, side):
            self._index = self._opened(group, side, others)
            self._texts, self._held = (group, side), None
        if self._held != held:
            self._index.hold(others[slice(*held)])
            self._held = held
        return self._index

    def _opened(self, group: int, side: str, others: torch.Tensor) -> FaissIndex:
        number = self._shards.get((group, side))
        if number is None or self._trained is None:
            index = FaissIndex(self._name, others.shape[1])
            index.train(others)  # does nothing if no training is needed; exact if there are too few vectors
            return index
        (table,) = self._trained.shards("train", ["index"], [number])
        return FaissIndex.from_bytes(self._name, others.shape[1], table["index"][0].as_buffer())
