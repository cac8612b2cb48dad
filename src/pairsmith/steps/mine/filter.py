"""The step ``filter``: keep the pairs that a cross-encoder ranks best (M6).

pairs -> unnormalised scores, shard by shard -> the best kept, the others rejected with their scores

Mined pairs are ranked by the cross-encoder's score. Pairs that were generated for a target score are ranked
by how close the cross-encoder's score is to it.
"""

from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.citations import MINING
from pairsmith.core.errors import InputError
from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.models.cross_encoder import load_cross_encoder, score_pairs
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    hash_source,
    model_display_name,
    settled,
    sources_of,
)
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.folder import open_training_rows
from pairsmith.runs.mapped import Made, RowShard, commit_rows, shard_count, start_part
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.mine.settings import FilterSettings
from pairsmith.steps.shared import finished, load_options, nothing_to_do, refuse_sources

SCORES: pa.Schema = pa.schema([("id", pa.string()), ("score", pa.float32())])
SHARD_ROWS = 100_000
"""Most rows, and most rejects, in a shard."""

_DECIDES_SCORES = {"dtype", "max_length", "shard_size"}


def filter_pairs(settings: FilterSettings, run: Run) -> DatasetFolder:
    """Score pairs and keep the best; see ``FilterSettings``. Scores are kept in the subfolder ``scores``.

    Of several splits ``train`` is read, or the one that is named. Rows are sorted from best to worst; in
    mined pairs the new score replaces the cosine.
    """
    settings = settled(settings, run)
    refuse_sources(run, pairs=settings.pairs, model=settings.model)
    found = open_training_rows(settings.pairs, "judged", run.progress.say)
    source, pairs = found.folder, found.table
    columns = _text_columns(pairs, source)
    claims = _claims(pairs, settings, source)
    inputs = {"pairs": hash_source(found.source)}
    models = {"model": model_revision(settings.model)}
    decides = settings.model_dump(mode="json", include={"by", "best", "threshold", *_DECIDES_SCORES})
    writer = FolderWriter.start(
        run, step="filter", schema=pairs.schema, settings=decides, inputs=inputs, models=models
    )
    if writer.finished:
        return nothing_to_do(writer, run)
    scores = _scores(pairs, columns, settings, inputs, models, run)
    if claims is None:
        name, values = "score", scores.astype(np.float64)
        order = np.argsort(-values, kind="stable")
    else:
        name, values = "agreement", agreement(scores, claims)
        order = best_of_each(values, claims)
    keep = values[order] >= (-np.inf if settings.threshold is None else settings.threshold)
    keep[np.cumsum(keep) > (settings.best or len(keep))] = False
    kept, lost = order[keep], order[~keep]
    for number in range(max(1, -(-max(len(kept), len(lost)) // SHARD_ROWS))):
        if writer.is_done(number):
            continue
        part = slice(number * SHARD_ROWS, (number + 1) * SHARD_ROWS)
        rejects = [
            Reject.of(row["id"], name, "not among the best", {**row, name: float(values[place])})
            for place, row in zip(lost[part].tolist(), _rows(pairs, lost[part]).to_pylist(), strict=True)
        ]
        rows = _rows(pairs, kept[part])
        if "margin" in rows.column_names:  # of mined pairs; the score of others is a label
            place = rows.column_names.index("score")
            new = pa.array(scores[kept[part]].astype(np.float64))
            rows = rows.set_column(place, rows.schema.field(place), new)
        writer.commit(number, {"train": rows}, to_table(rejects, REJECT))
    return finished(writer, _card(settings, source), run)


def _rows(pairs: pa.Table, numbers: NDArray[np.int64]) -> pa.Table:
    """The rows of these numbers, in order; by chunk, as all texts together may overflow an Arrow array."""
    edges = np.cumsum([0, *(len(batch) for batch in pairs.to_batches())])
    where = np.searchsorted(edges, numbers, side="right") - 1
    parts, places = [], []
    for chunk, batch in enumerate(pairs.to_batches()):
        here = np.flatnonzero(where == chunk)
        parts.append(batch.take(pa.array(numbers[here] - edges[chunk])))
        places.append(here)
    found = pa.Table.from_batches(parts, pairs.schema)
    return found.take(np.argsort(np.concatenate([np.empty(0, np.int64), *places])))


def _text_columns(pairs: pa.Table, source: DatasetFolder) -> tuple[str, str]:
    for columns in (("input", "output"), ("sentence1", "sentence2")):
        if set(columns) <= set(pairs.column_names):
            return columns
    raise InputError(
        f"{source.path}: needs pairs with the columns input and output, or sentence1 and sentence2; "
        f"found {', '.join(pairs.column_names)}"
    )


def _claims(pairs: pa.Table, settings: FilterSettings, source: DatasetFolder) -> NDArray[np.float64] | None:
    """The target scores of generated pairs; None where only the cross-encoder's scores decide."""
    claimed = {"sentence1", "sentence2", "score"} <= set(pairs.column_names)
    if settings.by == "score" or not (claimed or settings.by == "agreement"):
        return None
    if not claimed:
        raise InputError(
            f"{source.path}: --by agreement needs the columns sentence1, sentence2 and score; found "
            f"{', '.join(pairs.column_names)}"
        )
    claims: NDArray[np.float64] = pairs["score"].to_numpy().astype(np.float64)
    if not (np.isfinite(claims) & (claims >= 0) & (claims <= 1)).all():
        raise InputError(
            f"{source.path}: scores of pairs must lie between 0 and 1; give --by score to ignore them"
        )
    return claims


def agreement(scores: NDArray[np.float32], claims: NDArray[np.float64]) -> NDArray[np.float64]:
    """How well unnormalised scores agree with target scores in [0, 1]: ``1 - |sigmoid(s) - claim|``."""
    judged = 0.5 * (1 + np.tanh(scores.astype(np.float64) / 2))  # the sigmoid, in a form that cannot overflow
    found: NDArray[np.float64] = 1 - np.abs(judged - claims)
    return found


def best_of_each(values: NDArray[np.float64], labels: NDArray[np.float64]) -> NDArray[np.int64]:
    """Rank rows so that any prefix holds about the same share of each label's rows, those of highest value.

    The result, ``(n,)`` row numbers, is sorted by relative rank within the label; of equal ranks the higher
    value comes first.
    """
    rank = np.empty(len(values))
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        rank[rows[np.argsort(-values[rows], kind="stable")]] = (np.arange(len(rows)) + 0.5) / len(rows)
    order: NDArray[np.int64] = np.lexsort((-values, rank))
    return order


def _scores(
    pairs: pa.Table,
    columns: tuple[str, str],
    settings: FilterSettings,
    inputs: dict[str, str],
    models: dict[str, str],
    run: Run,
) -> NDArray[np.float32]:
    """The score of each pair, in the order of the pairs; scores are saved in a folder of their own."""
    if not pairs.num_rows:
        return np.zeros(0, np.float32)
    writer = start_part(
        Run(run.out / "scores", run.progress, run.fresh),
        step="score",
        schema=SCORES,
        settings=settings.model_dump(mode="json", include=_DECIDES_SCORES),
        inputs=inputs,
        models=models,
        planned=shard_count(pairs, settings.shard_size),
    )
    if not writer.finished:
        commit_rows(
            writer,
            partial(_load_scorer, settings, models["model"]),
            pairs.select(["id", *columns]),
            settings.shard_size,
            ExecutorChoice(settings.executor, settings.workers, settings.ray_address),
            run,
            title="score",
            unit="pairs",
        )
        writer.finish(_scores_card(settings))
    found: NDArray[np.float32] = writer.folder().table("train", ["score"])["score"].to_numpy()
    return found


def _load_scorer(settings: FilterSettings, revision: str, worker: int) -> Work[RowShard, Made]:
    """Load the cross-encoder; what is returned scores the pairs of a shard."""
    check_revision(settings.model, revision, worker)
    cross = load_cross_encoder(settings.model, **load_options(settings))

    def score(shard: RowShard, advance: Advance) -> Made:
        ids, inputs, outputs = (column.to_pylist() for column in shard.rows.columns)
        scores = score_pairs(cross, inputs, outputs, batch_tokens=settings.batch_tokens, advance=advance)
        return pa.table({"id": ids, "score": scores}, schema=SCORES), to_table([], REJECT)

    return score


def _scores_card(settings: FilterSettings) -> Card:
    return Card(
        title=f"Scores of pairs by {model_display_name(settings.model)}",
        description="Pairs by their ids, and a cross-encoder's unnormalised scores.",
        columns={"score": "higher is better; unbounded"},
        made="The scores were computed from the pairs' texts.",
        tags=(),
        licence="It contains no texts.",
        sources=sources_of(models=[settings.model]),
    )


def _card(settings: FilterSettings, source: DatasetFolder) -> Card:
    return Card(
        title="Pairs that a cross-encoder kept",
        description=(
            f"Pairs of the folder `{source.path.name}` (step `{source.manifest.step}`) that the "
            f"cross-encoder {model_display_name(settings.model)} judged best."
        ),
        columns={
            "input": "a text of the first corpus",
            "output": "a text of the second",
            "margin": "the pair's margin score, by which it was found",
            "score": "the cross-encoder's unnormalised score, where the pairs were mined",
        },
        made="The pairs were put together and chosen by programs; no person has checked each of them.",
        tags=("mined",),
        citations=(MINING,),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=[source.path]),
        task=source.manifest.about.task,
    )
