"""Scores of texts for queries by a judge, in ``negatives`` and ``filter-queries``, saved shard by shard."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from pairsmith.core.bundled import TINY
from pairsmith.core.model_names import check_revision
from pairsmith.data.schemas import REJECT, to_table
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, sources_of
from pairsmith.runs.estimate import Before
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import RowsAndRejects, RowShard, commit_each, start_part
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.mine.judges import CUT, load_judge
from pairsmith.steps.mine.settings import FilterSettings
from pairsmith.steps.planning import timed

SCORES: pa.Schema = pa.schema([("score", pa.float32())])
SCORE_OF: Mapping[str, str] = {
    "cross-encoder": "unnormalised score of the cross-encoder",
    "likelihood": "log-likelihood ratio, in nats, by the language model",
    "encoder": "cosine under the encoder",
}
"""What the score of each kind of judge is."""
_TRIED = 64
"""Texts that a plan has a judge score."""


def judge_shards(
    rows: Callable[[int], pa.Table],
    shards: int,
    texts: int,
    settings: FilterSettings,
    revision: str,
    run: Run,
    *,
    deciding: Mapping[str, JSON],
    inputs: Mapping[str, str],
) -> DatasetFolder:
    """Score the pairs of a query and a text in ``shards`` shards, ``texts`` in all; finished shards are kept.

    Args:
        rows: gives the rows of a shard, with the columns input, a query, and output, a text for it.
        settings: how ``filter`` judges pairs; ``revision``: of its model.
        deciding: settings that decide which rows there are; ``inputs``: fingerprints of what these are made
            of.
    """
    assert settings.model is not None
    writer = start_part(
        run,
        step="score",
        schema=SCORES,
        settings={"judge_kind": settings.judge, "dtype": settings.dtype, "shard_size": settings.shard_size}
        | dict(deciding)
        | (CUT if settings.judge == "likelihood" else {}),
        inputs=inputs,
        models={"judge": revision},
        planned=shards,
    )
    if writer.finished:
        return writer.folder()

    def left() -> Iterator[RowShard]:
        for number in range(shards):
            if not writer.is_done(number):
                yield RowShard(number, rows(number))

    commit_each(
        writer,
        partial(_load, settings, revision),
        left(),
        ExecutorChoice.of(settings),
        run,
        title="judge",
        model=settings.model,
        unit="texts",
        done=writer.counts.rows,
        total=texts,
    )
    return writer.finish(
        Card(
            title=f"Scores of texts by {settings.judge} {model_display_name(settings.model)}",
            description="How well texts answer queries.",
            columns={"score": "higher is better"},
            provenance="The scores were computed from the texts.",
            tags=(),
            licence="It contains no texts.",
            sources=sources_of(models=[settings.model]),
        )
    )


def seconds_to_judge(
    settings: FilterSettings, before: Before, queries: Sequence[str], texts: Sequence[str], base: str
) -> tuple[float, float]:
    """Seconds to load a judge, and for each text that it scores; some of the queries and texts are tried.

    ``base``, or a bundled language model, stands in for a judge not yet trained.
    """
    if not queries or not texts:
        return 0.0, 0.0  # an earlier step has still to make them
    untrained = settings.model in before
    stand_in = TINY if settings.judge == "likelihood" else base
    sides = [[side[i % len(side)] for i in range(_TRIED)] for side in (queries, texts)]
    if settings.judge == "likelihood":
        sides.reverse()
    table = pa.table({"input": sides[0], "output": sides[1]})

    def load() -> Callable[[Sequence[int]], object]:
        judge = load_judge(settings, stand_in if untrained else settings.model, untrained=untrained)
        return lambda numbers: judge(table.take(numbers), lambda _: None)

    loading, per_text, _ = timed(load, list(range(_TRIED)))
    return loading, per_text


def _load(settings: FilterSettings, revision: str, worker: int) -> Work[RowShard, RowsAndRejects]:
    """Load the model; what is returned scores the texts of a shard.

    A language model reads the text and then the query: the likelihood of a long text after a query says more
    about the text.
    """
    assert settings.model is not None
    check_revision(settings.model, revision, worker)
    judge = load_judge(settings)

    def score(shard: RowShard, advance: Advance) -> RowsAndRejects:
        rows = shard.rows
        if settings.judge == "likelihood":
            rows = pa.table({"input": rows["output"], "output": rows["input"]})
        return pa.table({"score": judge(rows, advance)}, schema=SCORES), to_table([], REJECT)

    return score
