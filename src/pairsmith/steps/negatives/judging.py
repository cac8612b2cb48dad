"""Candidates and positives scored anew by a judge, query by query, each shard saved when it is done."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.model_names import check_revision
from pairsmith.data.schemas import REJECT, rows_at, to_table
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import Made, RowShard, commit_each, start_part
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.mine.encoded import Texts
from pairsmith.steps.mine.judges import CUT, load_judge
from pairsmith.steps.negatives.encoding import Positives
from pairsmith.steps.negatives.search import NOBODY
from pairsmith.steps.negatives.settings import NegativesSettings

SCORES: pa.Schema = pa.schema([("score", pa.float32())])


@dataclass(frozen=True, slots=True)
class ToJudge:
    """What is judged: of each of n queries its candidates, and the positives of its pairs.

    Attributes:
        positives: the pairs and their texts; ``passages`` the texts of the corpus.
        candidates: ``(n, ranks)``, numbers in the corpus, or ``NOBODY``.
        pairs: ``(pairs,)`` int64, rows of the pairs, those of a query together, in the order of queries.
        edges: ``(n + 1,)`` int64, where the rows of each query begin and end.
    """

    positives: Positives
    passages: Texts
    candidates: NDArray[np.uint32]
    pairs: NDArray[np.int64]
    edges: NDArray[np.int64]

    @classmethod
    def of(cls, positives: Positives, passages: Texts, candidates: NDArray[np.uint32]) -> Self:
        """All pairs without a fault."""
        good = positives.pairs.good
        rows = good[positives.pairs.query[good].argsort(kind="stable")]
        edges = np.searchsorted(positives.pairs.query[rows], np.arange(len(candidates) + 1))
        return cls(positives, passages, candidates, rows, edges)

    def rows(self, first: int, stop: int) -> pa.Table:
        """The texts to judge of some queries: candidates first, then positives, query by query."""
        asking, ranks = (self.candidates[first:stop] != NOBODY).nonzero()
        pairs = self.pairs[self.edges[first] : self.edges[stop]]
        numbers = np.concatenate([asking + first, self.positives.pairs.query[pairs]])
        given = self.positives.pairs
        asked = rows_at(given.table, given.first[numbers])["query"]
        texts = [
            row["text"] for row in self.passages.rows(self.candidates[first:stop][asking, ranks].tolist())
        ]
        return pa.table({"input": asked, "output": [*texts, *self.positives.texts(pairs)]})

    def unpack(
        self, found: DatasetFolder, size: int, candidates: NDArray[np.float32], pairs: NDArray[np.float32]
    ) -> None:
        """Put the scores of ``size`` queries a shard in their places: ``(n, ranks)``, and a score a row."""
        for number, table in enumerate(found.shards("train")):
            first, stop = number * size, (number + 1) * size
            scores = table["score"].to_numpy()
            there = self.candidates[first:stop] != NOBODY
            part = np.full(there.shape, -np.inf, np.float32)
            part[there] = scores[: there.sum()]
            candidates[first:stop] = part
            edge = self.edges[[first, min(stop, len(self.candidates))]]
            pairs[self.pairs[edge[0] : edge[1]]] = scores[there.sum() :]


def judge_all(
    todo: ToJudge, settings: NegativesSettings, revision: str, inputs: Mapping[str, str], run: Run
) -> DatasetFolder:
    """Score ``ToJudge.rows`` of ``shard_size`` queries a shard; finished shards are kept."""
    count, size = len(todo.candidates), settings.shard_size
    writer = start_part(
        run,
        step="score",
        schema=SCORES,
        settings=settings.model_dump(
            mode="json", include={"judge_kind", "dtype", "shard_size", "first_rank", "last_rank"}
        )
        | (CUT if settings.judge_kind == "likelihood" else {}),
        inputs=inputs,
        models={"judge": revision},
        planned=-(-count // size),
    )
    if writer.finished:
        return writer.folder()

    def shards() -> Iterator[RowShard]:
        for number in range(-(-count // size)):
            if not writer.is_done(number):
                yield RowShard(number, todo.rows(number * size, min((number + 1) * size, count)))

    total = int((todo.candidates != NOBODY).sum()) + len(todo.pairs)
    commit_each(
        writer,
        partial(_load_judge, settings, revision),
        shards(),
        ExecutorChoice.of(settings),
        run,
        title="judge",
        unit="texts",
        done=writer.counts.rows,
        total=total,
    )
    assert settings.judge is not None
    return writer.finish(
        Card(
            title=f"Scores of texts by {settings.judge_kind} {model_display_name(settings.judge)}",
            description="For some queries at a time, the scores of their candidates and of their positives.",
            columns={"score": "higher is better"},
            made="The scores were computed from the texts.",
            tags=(),
            licence="It contains no texts.",
            sources=sources_of(models=[settings.judge]),
        )
    )


def _load_judge(settings: NegativesSettings, revision: str, worker: int) -> Work[RowShard, Made]:
    """Load the model; what is returned scores the texts of a shard.

    A language model reads the text and then the query: the likelihood of a long text after a query says more
    about the text.
    """
    assert settings.judge is not None
    check_revision(settings.judge, revision, worker)
    judge = load_judge(settings.judging())

    def score(shard: RowShard, advance: Advance) -> Made:
        rows = shard.rows
        if settings.judge_kind == "likelihood":
            rows = pa.table({"input": rows["output"], "output": rows["input"]})
        return pa.table({"score": judge(rows, advance)}, schema=SCORES), to_table([], REJECT)

    return score
