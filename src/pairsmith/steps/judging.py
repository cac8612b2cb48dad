"""Scores by a judge, for pairs or for texts that answer queries, saved shard by shard in a dataset folder."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from pairsmith.core.errors import ModelError
from pairsmith.core.model_names import check_revision
from pairsmith.data.schemas import REJECT, to_table
from pairsmith.models.heads import HeadMissingError
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, sources_of
from pairsmith.runs.estimate import Before
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import (
    RowsAndRejects,
    RowShard,
    Shards,
    commit_each,
    equal_shards,
    row_shards,
    start_part,
)
from pairsmith.runs.storage import JSON
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.corpora.judges import (
    ROUNDED_ROOM,
    JudgeExamples,
    likelihood_record,
    load_judge,
    timed_judge,
)
from pairsmith.steps.corpora.options import JudgeOptions


class JudgeTexts(NamedTuple):
    """What cards and messages say about a judge of pairs."""

    chosen: str  # how it chooses pairs: "by …"
    scores: str  # what its scores are
    column: str  # the meaning of the column ``score`` in ``scores/``; empty if that is not written
    needs: str  # what it needs to judge


JUDGES_OF_PAIRS: Mapping[str, JudgeTexts] = {
    "cross-encoder": JudgeTexts(
        "by a cross-encoder",
        "a cross-encoder's unnormalised scores",
        "higher is better; unbounded",
        "a cross-encoder",
    ),
    "encoder": JudgeTexts(
        "by an encoder", "the cosines of their vectors by an encoder", "from -1 to 1", "a sentence encoder"
    ),
    "likelihood": JudgeTexts(
        "by a language model's likelihoods",
        "how much likelier a language model finds one text after the other",
        "log p(text | other text) - log p(text) in nats; of questions, how well they and answers fit",
        "a causal language model",
    ),
    "likeness": JudgeTexts(
        "by their likeness to seeds",
        "how much a pair is like the seeds",
        "log odds, by a classifier of the texts' vectors",
        "a sentence encoder and --seeds",
    ),
    "margin": JudgeTexts("by their margins", "the cosine of the two vectors", "", "no model"),
}
"""The texts for each judge that the setting ``judge`` of ``filter`` names."""
SCORE_OF_TEXT: Mapping[str, str] = {
    "cross-encoder": "unnormalised score of the cross-encoder",
    "likelihood": "log-likelihood ratio, in nats, by the language model",
    "encoder": "cosine under the encoder",
}
"""For each judge of texts, the description of its score of a text for a query."""
_SCORE = pa.field("score", pa.float32())
_SAMPLE = 64
"""Number of texts that a plan lets a judge score."""


@contextmanager
def other_judges_named(option: str, names: Iterable[str]) -> Iterator[None]:
    """Add the other judges among ``names`` to the error about a cross-encoder without a trained head.

    ``option`` is the option that chooses the judge.
    """
    try:
        yield
    except HeadMissingError as error:
        others = (f"{name} ({JUDGES_OF_PAIRS[name].needs})" for name in names if name != "cross-encoder")
        raise ModelError(f"{error}\nother judges, as {option}: {', '.join(others)}") from error


def judge_pairs(
    pairs: pa.Table,
    options: JudgeOptions,
    learns_from: Callable[[], JudgeExamples] | None,
    inputs: Mapping[str, str],
    revision: str,
    run: Run,
) -> DatasetFolder:
    """Score pairs, and save the scores in the order of the pairs, with their ids.

    Args:
        pairs: one or more pairs, with their ids and the columns that the judge reads.
        options: which judge to use, and how.
        learns_from: returns the examples that the judge is trained on; None for a judge without training.
        inputs: the hashes of the sources of the pairs and of the examples.
        revision: the revision of the judge's model.
        run: the run whose folder the scores are saved in.

    Returns:
        A folder with the columns ``id`` and ``score``, float32.
    """
    deciding: dict[str, JSON] = {
        "judge": options.judge,
        "dtype": options.dtype,
        "max_length": options.max_length,
        "shard_size": options.shard_size,
    }
    if options.judge == "likelihood":
        deciding |= likelihood_record(options.cue)
    sizes = equal_shards(pairs.num_rows, options.shard_size)
    schema = pa.schema([("id", pa.string()), _SCORE])
    identity = Identity.of("score", deciding, inputs, {"model": revision})
    writer = start_part(run, identity, schema, planned=len(sizes))
    if writer.finished:
        return writer.folder()
    with other_judges_named("--judge", JUDGES_OF_PAIRS):
        commit_each(
            writer,
            Shards(partial(row_shards, pairs, options.shard_size), sizes, "pairs"),
            partial(_load, options, learns_from and learns_from(), revision, schema),
            ExecutorChoice(options.executor, options.workers, options.ray_address),
            title="score",
            model=options.model,
        )
    texts = JUDGES_OF_PAIRS[options.judge]
    description = f"Pairs by their ids, and {texts.scores}."
    return writer.finish(_card(options, "pairs", description, texts.column, "pairs' texts"))


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
    """Score how well texts answer queries, shard by shard; the folder has the column ``score``, float32.

    A language model reads the text first and then the query, because the likelihood of a long text after a
    query depends mostly on the text.

    Args:
        shard: returns the rows of the shard with this number, with the columns ``input``, a query, and
            ``output``, a text for it.
        sizes: the number of rows of each shard.
        options: which judge to use, and how.
        revision: the revision of the judge's model.
        run: the run whose folder the scores are saved in.
        deciding: the settings that decide the rows.
        inputs: the hashes of the sources of the rows.
    """
    decides: dict[str, JSON] = {
        "judge_kind": options.judge,
        "dtype": options.dtype,
        "shard_size": options.shard_size,
        **deciding,
    }
    if options.judge == "likelihood":
        decides |= ROUNDED_ROOM
    schema = pa.schema([_SCORE])
    identity = Identity.of("score", decides, inputs, {"judge": revision})
    writer = start_part(run, identity, schema, planned=len(sizes))
    if writer.finished:
        return writer.folder()

    def read(numbers: Sequence[int]) -> Iterator[RowShard]:
        return (RowShard(number, _as_judged(shard(number), options)) for number in numbers)

    with other_judges_named("--judge-kind", SCORE_OF_TEXT):
        commit_each(
            writer,
            Shards(read, sizes, "texts"),
            partial(_load, options, None, revision, schema),
            ExecutorChoice(options.executor, options.workers, options.ray_address),
            title="judge",
            model=options.model,
        )
    return writer.finish(
        _card(options, "texts", "How well texts answer queries.", "higher is better", "texts")
    )


def _as_judged(rows: pa.Table, options: JudgeOptions) -> pa.Table:
    """The rows as the judge reads them: a language model reads the text before the query."""
    if options.judge != "likelihood":
        return rows
    return pa.table({"input": rows["output"], "output": rows["input"]})


def _load(
    options: JudgeOptions, examples: JudgeExamples | None, revision: str, schema: pa.Schema, worker: int
) -> Work[RowShard, RowsAndRejects]:
    """Load the judge, and return the function that scores the rows of a shard."""
    check_revision(options.model, revision, worker)
    judge = load_judge(options, examples=examples)

    def score(shard: RowShard, advance: Advance) -> RowsAndRejects:
        columns = {"score": judge(shard.rows, advance)}
        if "id" in schema.names:
            columns["id"] = shard.rows["id"].combine_chunks()
        return pa.table(columns, schema=schema), to_table([], REJECT)

    return score


def _card(options: JudgeOptions, judged: str, description: str, meaning: str, texts: str) -> Card:
    return Card(
        title=f"Scores of {judged} by {options.judge} {model_display_name(options.model)}",
        description=description,
        columns={"score": meaning},
        provenance=f"The scores were computed from the {texts}.",
        tags=(),
        licence="It contains no texts.",
        sources=sources_of(models=[options.model]),
    )


def seconds_to_judge(
    options: JudgeOptions, before: Before, queries: Sequence[str], texts: Sequence[str]
) -> tuple[float, float]:
    """The seconds for loading a judge and for each text that it scores, measured on a sample."""
    if not queries or not texts:
        return 0.0, 0.0  # an earlier step will make them
    sides = [[side[i % len(side)] for i in range(_SAMPLE)] for side in (queries, texts)]
    rows = pa.table({"input": sides[0], "output": sides[1]})
    with other_judges_named("--judge-kind", SCORE_OF_TEXT):
        return timed_judge(options, before, _as_judged(rows, options))
