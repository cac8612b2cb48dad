"""Scores of texts for queries by a judge, in ``negatives`` and ``filter-queries``, saved shard by shard."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa

from pairsmith.core.model_names import check_revision
from pairsmith.data.schemas import REJECT, to_table
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, sources_of
from pairsmith.runs.estimate import Before
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import RowsAndRejects, RowShard, commit_each, start_part
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.corpora.judges import CUT, load_judge, timed_judge
from pairsmith.steps.corpora.options import JudgeOptions

QUERY_SCORES: pa.Schema = pa.schema([("score", pa.float32())])
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
    options: JudgeOptions,
    revision: str,
    run: Run,
    *,
    deciding: Mapping[str, JSON],
    inputs: Mapping[str, str],
) -> DatasetFolder:
    """Score the pairs of a query and a text in ``shards`` shards, ``texts`` in all; finished shards are kept.

    Args:
        rows: gives the rows of a shard, with the columns input, a query, and output, a text for it.
        options: how the pairs are judged; ``revision``: of the model that does so.
        deciding: settings that decide which rows there are; ``inputs``: fingerprints of what these are made
            of.
    """
    writer = start_part(
        run,
        step="score",
        schema=QUERY_SCORES,
        settings={"judge_kind": options.judge, "dtype": options.dtype, "shard_size": options.shard_size}
        | dict(deciding)
        | (CUT if options.judge == "likelihood" else {}),
        inputs=inputs,
        models={"judge": revision},
        planned=shards,
    )
    if writer.finished:
        return writer.folder()

    def unscored() -> Iterator[RowShard]:
        for number in range(shards):
            if not writer.is_done(number):
                yield RowShard(number, rows(number))

    commit_each(
        writer,
        partial(_load, options, revision),
        unscored(),
        ExecutorChoice(options.executor, options.workers, options.ray_address),
        run,
        title="judge",
        model=options.model,
        unit="texts",
        done=writer.counts.rows,
        total=texts,
    )
    return writer.finish(
        Card(
            title=f"Scores of texts by {options.judge} {model_display_name(options.model)}",
            description="How well texts answer queries.",
            columns={"score": "higher is better"},
            provenance="The scores were computed from the texts.",
            tags=(),
            licence="It contains no texts.",
            sources=sources_of(models=[options.model]),
        )
    )


def seconds_to_judge(
    options: JudgeOptions, before: Before, queries: Sequence[str], texts: Sequence[str]
) -> tuple[float, float]:
    """Seconds to load a judge, and for each text that it scores; some of the queries and texts are tried."""
    if not queries or not texts:
        return 0.0, 0.0  # an earlier step has still to make them
    sides = [[side[i % len(side)] for i in range(_TRIED)] for side in (queries, texts)]
    if options.judge == "likelihood":
        sides.reverse()
    return timed_judge(options, before, pa.table({"input": sides[0], "output": sides[1]}))


def _load(options: JudgeOptions, revision: str, worker: int) -> Work[RowShard, RowsAndRejects]:
    """Load the model; what is returned scores the texts of a shard.

    A language model reads the text and then the query: the likelihood of a long text after a query says more
    about the text.
    """
    check_revision(options.model, revision, worker)
    judge = load_judge(options)

    def score(shard: RowShard, advance: Advance) -> RowsAndRejects:
        rows = shard.rows
        if options.judge == "likelihood":
            rows = pa.table({"input": rows["output"], "output": rows["input"]})
        return pa.table({"score": judge(rows, advance)}, schema=QUERY_SCORES), to_table([], REJECT)

    return score
