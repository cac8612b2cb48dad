"""Which queries ``filter-queries`` leaves out, and why: the first reason that holds for a query counts."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.data.filters import DUPLICATE
from pairsmith.methods.retrieval.consistency import closest, near_copies
from pairsmith.steps.mine.filter import share_of
from pairsmith.steps.retrieval.generated_queries import WrittenQueries
from pairsmith.steps.retrieval.query_rows import Evaluation
from pairsmith.steps.retrieval.settings import FilterQueriesSettings
from pairsmith.steps.retrieval.vectors import KeyedVectors

NO_FILTER = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a query is left out: a filter, or ``NO_FILTER`` if not, the reason, and the row that it copies."""

    filter: str
    reason: str
    like: int = -1


_KEEP = Verdict(NO_FILTER, "")


class Verdicts(list[Verdict]):
    """The verdict on each query, in order."""

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which are kept, ``(n,)``."""
        return np.array([verdict.filter == NO_FILTER for verdict in self], bool)

    def leave_out(self, which: NDArray[np.bool_], filter_: str, reason: str) -> None:
        """Leave out those of ``which``, ``(n,)``, that are not left out already."""
        for row in np.flatnonzero(which & self.kept).tolist():
            self[row] = Verdict(filter_, reason)


def verdicts_by_rank(
    query: NDArray[np.int64],
    own: NDArray[np.int64],
    ranked: pa.Table,
    written: WrittenQueries,
    evaluation: Evaluation,
    settings: FilterQueriesSettings,
) -> Verdicts:
    """Leave out queries without a vector or a chunk, those of the evaluation, and those that lead elsewhere.

    Args:
        query: the number of each query's vector, ``(n,)``, -1 without one; ``own``: its chunk's, likewise.
        ranked: the columns rank, from 1, and evaluation, the cosine with the nearest query of the evaluation.
    """
    verdicts = Verdicts([_KEEP] * len(written))
    rank, near = ranked["rank"].to_numpy(), ranked["evaluation"].to_numpy()
    verdicts.leave_out(query < 0, "no query", "it is blank, or has no vector")
    verdicts.leave_out(own < 0, "no chunk", "its text is not in the corpus, or has no vector")
    copies = np.isin(written.names, evaluation.names)
    verdicts.leave_out(copies, "evaluation", "copies a query of the evaluation")
    if settings.contaminated < 1:
        threshold = f"a query of the evaluation has a cosine of {settings.contaminated:g} or more with it"
        verdicts.leave_out(near >= np.float32(settings.contaminated), "evaluation", threshold)  # NaN is not
    reason = f"its chunk is not among the {settings.within} nearest"
    verdicts.leave_out(rank > settings.within, "inconsistent", reason)
    return verdicts


def leave_out_by_score(verdicts: Verdicts, scores: Float32s, settings: FilterQueriesSettings) -> None:
    """Of the queries that are left, leave out those that a judge scores low.

    ``scores``, ``(n,)``, are NaN where nothing was judged; of equal scores the first queries are kept.
    """
    if settings.threshold is not None:
        low = scores < np.float32(settings.threshold)
        verdicts.leave_out(low, "judge", f"the judge's score is below {settings.threshold:g}")
    if settings.share is not None:
        order = np.argsort(-scores, kind="stable")[: np.isfinite(scores).sum()]
        low = np.zeros(len(scores), bool)
        low[order[share_of(settings.share, len(order)) :]] = True
        reason = f"the judge's score is not among the best {settings.share:.4g} of those judged"
        verdicts.leave_out(low, "judge", reason)


def leave_out_copies(
    verdicts: Verdicts,
    query: NDArray[np.int64],
    queries: KeyedVectors,
    written: WrittenQueries,
    settings: FilterQueriesSettings,
) -> None:
    """Of the queries that are left, leave out near-copies of earlier ones.

    ``query``, ``(n,)``, are the numbers of their vectors.
    """
    left = np.flatnonzero(verdicts.kept)
    if not len(left):
        return
    names = written.names[left]
    copied = near_copies(queries.every(), query[left], names, settings.duplicates)
    for at in np.flatnonzero(copied >= 0).tolist():
        first = int(copied[at])
        reason = f"an earlier query has a cosine of {settings.duplicates:g} or more with it"
        if names[at] == names[first]:
            reason = "copies an earlier query"
        verdicts[int(left[at])] = Verdict(DUPLICATE, reason, int(left[first]))


def leave_out_near_test(
    verdicts: Verdicts,
    query: NDArray[np.int64],
    queries: KeyedVectors,
    held: NDArray[np.bool_],
    settings: FilterQueriesSettings,
) -> None:
    """Leave out queries to train on that are near to one that is held back, where ``held``, ``(n,)``.

    ``query``, ``(n,)``, are the numbers of their vectors. A model will be measured on those held back.
    """
    kept = verdicts.kept
    train, test = np.flatnonzero(kept & ~held), np.flatnonzero(kept & held)
    if settings.contaminated == 1 or not len(train) or not len(test):
        return
    every = queries.every()
    to_train, to_test = (every[torch.from_numpy(query[some])] for some in (train, test))
    near = np.zeros(len(verdicts), bool)
    near[train] = closest(to_train, to_test) >= np.float32(settings.contaminated)
    threshold = f"a query that is held back has a cosine of {settings.contaminated:g} or more with it"
    verdicts.leave_out(near, "evaluation", threshold)
