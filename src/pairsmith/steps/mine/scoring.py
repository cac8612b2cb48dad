"""Scores of the pairs of ``filter`` by a judge, saved shard by shard in a dataset folder of their own."""

from collections.abc import Callable, Mapping
from functools import partial

import pyarrow as pa

from pairsmith.core.arrays import Float32s
from pairsmith.core.model_names import check_revision
from pairsmith.data.schemas import REJECT, to_table
from pairsmith.runs import Card, Run, model_display_name, sources_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import RowsAndRejects, RowShard, commit_rows, shard_count, start_part
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.corpora.judges import JudgeExamples, likelihood_record, load_judge
from pairsmith.steps.corpora.options import JudgeOptions

PAIR_SCORES: pa.Schema = pa.schema([("id", pa.string()), ("score", pa.float32())])
SCORES_OF = {
    "cross-encoder": ("a cross-encoder's unnormalised scores", "higher is better; unbounded"),
    "encoder": ("the cosines of their vectors by an encoder", "from -1 to 1"),
    "likelihood": (
        "how much likelier a language model finds one text after the other",
        "log p(text | other text) - log p(text) in nats; of questions, how well they and answers fit",
    ),
    "likeness": ("how much a pair is like the seeds", "log odds, by a classifier of the texts' vectors"),
    "margin": ("the cosine of the two vectors", ""),
}
"""What each judge gives: in words, and the column ``score``."""


def scores_by_judge(
    pairs: pa.Table,
    options: JudgeOptions,
    learns_from: Callable[[], JudgeExamples] | None,
    inputs: Mapping[str, str],
    revision: str,
    run: Run,
) -> Float32s | None:
    """The score of each pair, ``(n,)``, in the order of the pairs; finished shards are kept in ``run.out``.

    None for a rank of an array job, which scores only its share.

    Args:
        pairs: n pairs, one or more, with their ids and the columns that the judge reads.
        options: how they are judged.
        learns_from: gives the examples that the judge learns from; None for one that learns nothing.
        inputs: the hashes of what the pairs and the examples are made of.
        revision: of the judge's model.
        run: where scores are saved.
    """
    writer = start_part(
        run,
        step="score",
        schema=PAIR_SCORES,
        settings=_deciding(options),
        inputs=inputs,
        models={"model": revision},
        planned=shard_count(pairs, options.shard_size),
    )
    if not writer.finished:
        commit_rows(
            writer,
            partial(_load, options, learns_from and learns_from(), revision),
            pairs,
            options.shard_size,
            ExecutorChoice(options.executor, options.workers, options.ray_address),
            run,
            title="score",
            unit="pairs",
            model=options.model,
        )
        writer.finish(_card(options))
    if run.rank is not None:
        return None
    scores: Float32s = writer.folder().table("train", ["score"])["score"].to_numpy()
    return scores


def _deciding(options: JudgeOptions) -> dict[str, JSON]:
    """The options that decide a pair's score; folders from before there were other judges go on."""
    deciding: dict[str, JSON] = {
        "dtype": options.dtype,
        "max_length": options.max_length,
        "shard_size": options.shard_size,
    }
    if options.judge == "likelihood":
        deciding |= likelihood_record(options.cue)
    return deciding if options.judge == "cross-encoder" else {**deciding, "judge": options.judge}


def _load(
    options: JudgeOptions, examples: JudgeExamples | None, revision: str, worker: int
) -> Work[RowShard, RowsAndRejects]:
    """Load the model; what is returned scores the pairs of a shard."""
    check_revision(options.model, revision, worker)
    judge = load_judge(options, examples=examples)

    def score(shard: RowShard, advance: Advance) -> RowsAndRejects:
        scores = judge(shard.rows, advance)
        ids = shard.rows["id"].combine_chunks()
        return pa.table({"id": ids, "score": scores}, schema=PAIR_SCORES), to_table([], REJECT)

    return score


def _card(options: JudgeOptions) -> Card:
    scores, column = SCORES_OF[options.judge]
    return Card(
        title=f"Scores of pairs by {options.judge} {model_display_name(options.model)}",
        description=f"Pairs by their ids, and {scores}.",
        columns={"score": column},
        provenance="The scores were computed from the pairs' texts.",
        tags=(),
        licence="It contains no texts.",
        sources=sources_of(models=[options.model]),
    )
