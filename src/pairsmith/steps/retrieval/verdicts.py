"""The verdicts of ``filter-queries``: which queries are left out, each by the first filter that applies."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s
from pairsmith.data.filters import DUPLICATE
from pairsmith.data.text_keys import TextKeys
from pairsmith.methods.retrieval.consistency import closest, near_copies
from pairsmith.runs.seeds import stream_key
from pairsmith.steps.mine.filter import share_of
from pairsmith.steps.retrieval.compared_texts import EncodedRows, EvaluationQueries
from pairsmith.steps.retrieval.settings import FilterQueriesSettings

NO_FILTER = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether and why a query is left out.

    Attributes:
        filter: the name of the filter that leaves the query out; ``NO_FILTER`` if it is kept.
        reason: the reason, for the reject.
        like: the row of the query that it copies; -1 if it copies none.
    """

    filter: str
    reason: str
    like: int = -1


_KEEP = Verdict(NO_FILTER, "")


class Verdicts(list[Verdict]):
    """The verdict on each query, in order."""

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Whether each of n queries is kept, ``(n,)`` bool."""
        return np.array([verdict.filter == NO_FILTER for verdict in self], bool)

    def leave_out(self, which: NDArray[np.bool_], filter_: str, reason: str) -> None:
        """Leave out the queries of ``which``, ``(n,)`` bool; earlier verdicts are not changed."""
        for row in np.flatnonzero(which & self.kept).tolist():
            self[row] = Verdict(filter_, reason)


def verdicts_by_rank(
    rows: EncodedRows, ranked: pa.Table, evaluation: EvaluationQueries, settings: FilterQueriesSettings
) -> Verdicts:
    """Leave out queries without a vector or a chunk, those of the evaluation, and inconsistent queries.

    A query is inconsistent if it does not lead back to its own chunk.

    ``ranked`` has n rows with the columns rank, that of the own chunk, from 1, and evaluation, the cosine
    with the nearest query of the evaluation, which may be NaN.
    """
    verdicts = Verdicts([_KEEP] * len(rows.written))
    rank, of_evaluation = ranked["rank"].to_numpy(), ranked["evaluation"].to_numpy()
    verdicts.leave_out(rows.query < 0, "no query", "it is blank, or has no vector")
    verdicts.leave_out(rows.own < 0, "no chunk", "its text is not in the corpus, or has no vector")
    copies = np.isin(rows.written.names, evaluation.names)
    verdicts.leave_out(copies, "evaluation", "copies a query of the evaluation")
    if settings.contaminated < 1:
        threshold = f"a query of the evaluation has a cosine of {settings.contaminated:g} or more with it"
        alike = of_evaluation >= np.float32(settings.contaminated)  # False for NaN
        verdicts.leave_out(alike, "evaluation", threshold)
    reason = f"its chunk is not among the {settings.within} nearest"
    verdicts.leave_out(rank > settings.within, "inconsistent", reason)
    return verdicts


def leave_out_by_score(verdicts: Verdicts, scores: Float32s, settings: FilterQueriesSettings) -> None:
    """Leave out kept queries with a low score of the judge.

    ``scores``, ``(n,)``, are NaN for queries that were not judged. With ``settings.share``, of queries with
    equal scores the first ones are kept.
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


def leave_out_copies(verdicts: Verdicts, rows: EncodedRows, settings: FilterQueriesSettings) -> None:
    """Leave out kept queries that are near-copies of an earlier kept query."""
    kept = np.flatnonzero(verdicts.kept)
    if not len(kept):
        return
    names = rows.written.names[kept]
    copied = near_copies(rows.sides["queries"].vectors.tensor(), rows.query[kept], names, settings.duplicates)
    for at in np.flatnonzero(copied >= 0).tolist():
        first = int(copied[at])
        reason = f"an earlier query has a cosine of {settings.duplicates:g} or more with it"
        if names[at] == names[first]:
            reason = "copies an earlier query"
        verdicts[int(kept[at])] = Verdict(DUPLICATE, reason, int(kept[first]))


def held_back(chunk: TextKeys, kept: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """Whether each of n rows is held back, ``(n,)`` bool: all queries of a random share of the chunks.

    If two or more chunks have queries, at least one chunk is held back and at least one is not.

    Args:
        chunk: ``(n,)`` uint64, the key of each row's chunk.
        kept: ``(n,)`` bool, whether each row is still kept; only chunks with kept rows are drawn.
        share: the share of the chunks to hold back, above 0 and below 1.
    """
    chunks = np.unique(chunk[kept])
    keys = np.array([stream_key("held back", int(key)) for key in chunks], np.uint64)
    order = chunks[np.argsort(keys)]
    below = int((keys < np.uint64(int(share * 2**64))).sum())
    most = max(len(chunks) - 1, 0)
    return np.isin(chunk, order[: min(max(below, 1), most)])


def leave_out_near_test(
    verdicts: Verdicts, rows: EncodedRows, held: NDArray[np.bool_], settings: FilterQueriesSettings
) -> None:
    """Leave out kept training queries near a kept query that is held back (``held``, ``(n,)`` bool)."""
    kept = verdicts.kept
    train, test = np.flatnonzero(kept & ~held), np.flatnonzero(kept & held)
    if settings.contaminated == 1 or not len(train) or not len(test):
        return
    near = np.zeros(len(verdicts), bool)
    near[train] = closest(rows.vectors(train), rows.vectors(test)) >= np.float32(settings.contaminated)
    threshold = f"a query that is held back has a cosine of {settings.contaminated:g} or more with it"
    verdicts.leave_out(near, "evaluation", threshold)
