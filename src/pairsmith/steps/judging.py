"""Scores of pairs, or of texts for queries, by a judge, saved shard by shard in a dataset folder."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa

from pairsmith.core.model_names import check_revision
from pairsmith.data.schemas import REJECT, to_table
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, sources_of
from pairsmith.runs.estimate import Before
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.mapped import RowsAndRejects, RowShard, commit_each, row_shards, start_part
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.corpora.judges import CUT, JudgeExamples, likelihood_record, load_judge, timed_judge
from pairsmith.steps.corpora.options import JudgeOptions

SCORES_OF_PAIRS: Mapping[str, tuple[str, str]] = {
    "cross-encoder": ("a cross-encoder's unnormalised scores", "higher is better; unbounded"),
    "encoder": ("the cosines of their vectors by an encoder", "from -1 to 1"),
    "likelihood": (
        "how much likelier a language model finds one text after the other",
        "log p(text | other text) - log p(text) in nats; of questions, how well they and answers fit",
    ),
    "likeness": ("how much a pair is like the seeds", "log odds, by a classifier of the texts' vectors"),
    "margin": ("the cosine of the two vectors", ""),
}
"""What each judge of pairs gives: in words, and the column ``score``."""
SCORE_OF_TEXT: Mapping[str, str] = {
    "cross-encoder": "unnormalised score of the cross-encoder",
    "likelihood": "log-likelihood ratio, in nats, by the language model",
    "encoder": "cosine under the encoder",
}
"""What the score of a text for a query is, by each kind of judge."""
_TRIED = 64
"""Texts that a plan has a judge score."""


def judge_pairs(
    pairs: pa.Table,
    options: JudgeOptions,
    learns_from: Callable[[], JudgeExamples] | None,
    inputs: Mapping[str, str],
    revision: str,
    run: Run,
) -> DatasetFolder:
    """Score n pairs, one or more, in their order; their ids are kept beside the scores.

    Args:
        pairs: with their ids and the columns that the judge reads.
        options: how they are judged.
        learns_from: gives the examples that the judge learns from; None for one that learns nothing.
        inputs: the hashes of what the pairs and the examples are made of.
        revision: of the judge's model.
        run: where scores are saved.
    """
    deciding: dict[str, JSON] = {
        "judge": options.judge,
        "dtype": options.dtype,
        "max_length": options.max_length,
        "shard_size": options.shard_size,
    }
    if options.judge == "likelihood":
        deciding |= likelihood_record(options.cue)
    in_words, column = SCORES_OF_PAIRS[options.judge]
    return judge_shards(
        lambda number: next(row_shards(pairs, options.shard_size, [number])).rows,
        equal_shards(pairs.num_rows, options.shard_size),
        options,
        revision,
        run,
        settings=deciding,
        inputs=inputs,
        ids=True,
        learns_from=learns_from,
        titles=("model", "score", "pairs"),
        card=_card(options, "pairs", f"Pairs by their ids, and {in_words}.", column, "pairs' texts"),
    )


def judge_texts(
    shard: Callable[[int], pa.Table],
    sizes: Sequence[int],
    options: JudgeOptions,
    revision: str,
    run: Run,
    *,
    deciding: Mapping[str, JSON],
    inputs: Mapping[str, str],
) -> DatasetFolder:
    """Score texts for queries, in shards of so many texts.

    A language model reads the text and then the query: the likelihood of a long text after a query says more
    about the text.

    Args:
        shard: gives the rows of a shard, with the columns input, a query, and output, a text for it.
        options: how the pairs are judged; ``revision``: of the model that does so.
        deciding: settings that decide which rows there are; ``inputs``: fingerprints of what these are made
            of.
    """
    by_likelihood = options.judge == "likelihood"
    return judge_shards(
        (lambda number: _swapped(shard(number))) if by_likelihood else shard,
        sizes,
        options,
        revision,
        run,
        settings={"judge_kind": options.judge, "dtype": options.dtype, "shard_size": options.shard_size}
        | dict(deciding)
        | (CUT if by_likelihood else {}),
        inputs=inputs,
        ids=False,
        titles=("judge", "judge", "texts"),
        card=_card(options, "texts", "How well texts answer queries.", "higher is better", "texts"),
    )


def equal_shards(count: int, size: int) -> list[int]:
    """The sizes of the shards of ``count`` rows, ``size`` each; the last may have fewer."""
    return [min(size, count - start) for start in range(0, count, size)]


def _swapped(rows: pa.Table) -> pa.Table:
    return pa.table({"input": rows["output"], "output": rows["input"]})


def judge_shards(
    shard: Callable[[int], pa.Table],
    sizes: Sequence[int],
    options: JudgeOptions,
    revision: str,
    run: Run,
    *,
    settings: Mapping[str, JSON],
    inputs: Mapping[str, str],
    ids: bool,
    titles: tuple[str, str, str],
    card: Card,
    learns_from: Callable[[], JudgeExamples] | None = None,
) -> DatasetFolder:
    """Score rows in shards of these sizes, each given by its number; finished shards are kept in ``run.out``.

    The result has the column ``score``, float32, after the rows' ``ids`` if they are kept. ``settings`` and
    ``inputs`` are what the scores' folder is known by. ``titles`` are the name of the model among what they
    depend on, that of the work in the progress, and what this counts.
    """
    schema = pa.schema([*([("id", pa.string())] if ids else []), ("score", pa.float32())])
    model, title, unit = titles
    writer = start_part(
        run,
        step="score",
        schema=schema,
        settings=settings,
        inputs=inputs,
        models={model: revision},
        planned=len(sizes),
    )
    if writer.finished:
        return writer.folder()

    remaining = [number for number in range(len(sizes)) if not writer.is_done(number)]
    commit_each(
        writer,
        partial(_load, options, learns_from and learns_from(), revision, schema),
        (RowShard(number, shard(number)) for number in remaining),
        ExecutorChoice(options.executor, options.workers, options.ray_address),
        run,
        title=title,
        model=options.model,
        unit=unit,
        done=sum(sizes) - sum(sizes[number] for number in remaining),
        total=sum(sizes),
    )
    return writer.finish(card)


def _load(
    options: JudgeOptions, examples: JudgeExamples | None, revision: str, schema: pa.Schema, worker: int
) -> Work[RowShard, RowsAndRejects]:
    """Load the model; what is returned scores the rows of a shard."""
    check_revision(options.model, revision, worker)
    judge = load_judge(options, examples=examples)

    def score(shard: RowShard, advance: Advance) -> RowsAndRejects:
        columns = {"score": judge(shard.rows, advance)}
        if "id" in schema.names:
            columns["id"] = shard.rows["id"].combine_chunks()
        return pa.table(columns, schema=schema), to_table([], REJECT)

    return score


def _card(options: JudgeOptions, judged: str, description: str, column: str, texts: str) -> Card:
    return Card(
        title=f"Scores of {judged} by {options.judge} {model_display_name(options.model)}",
        description=description,
        columns={"score": column},
        provenance=f"The scores were computed from the {texts}.",
        tags=(),
        licence="It contains no texts.",
        sources=sources_of(models=[options.model]),
    )


def seconds_to_judge(
    options: JudgeOptions, before: Before, queries: Sequence[str], texts: Sequence[str]
) -> tuple[float, float]:
    """Seconds to load a judge, and for each text that it scores; some of the queries and texts are tried."""
    if not queries or not texts:
        return 0.0, 0.0  # an earlier step has still to make them
    sides = [[side[i % len(side)] for i in range(_TRIED)] for side in (queries, texts)]
    rows = pa.table({"input": sides[0], "output": sides[1]})
    return timed_judge(options, before, _swapped(rows) if options.judge == "likelihood" else rows)
