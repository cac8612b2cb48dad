"""The step ``rewrite``: replace one side of mined pairs by generated texts, the ablation Gen of M11.

pairs -> answers in their passages, or documents -> generated questions, or summaries -> rows
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pairsmith.core.citations import MINING
from pairsmith.core.errors import InputError
from pairsmith.core.model_names import check_revision, model_revision
from pairsmith.data.examples import answer_in_passage
from pairsmith.data.filters import DUPLICATE, EMPTY
from pairsmith.data.readers import text_id
from pairsmith.data.schemas import ANSWERS, REJECT, Reject, text_schema, to_table
from pairsmith.models.text_generator import TextGenerator, generate_outputs, load_text_generator, shortest_of
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    hash_source,
    model_display_name,
    resolve_dtype,
    sources_of,
)
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.folder import open_training_rows
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import (
    RowsAndRejects,
    RowShard,
    Shards,
    commit_each,
    equal_shards,
    finished,
    nothing_to_do,
    row_shards,
)
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.mine.settings import RewriteSettings
from pairsmith.steps.planning import CALIBRATION_TEXTS, count_in_run, sharded_estimate, timed
from pairsmith.steps.shared import check_rows, load_options, refuse_sources

_NEEDED: Mapping[str, pa.Schema] = {
    "reading": pa.schema([*text_schema("id", "input", "output", "context"), ("answers", ANSWERS)]),
    "summaries": text_schema("id", "input", "output"),
}
"""The columns that pairs need, by kind."""
_ORIGINAL = ("margin", "score", "input_id", "output_id")
"""Columns that score or identify the original pair, and do not apply to the rewritten one."""
_WRITTEN = {"reading": "input", "summaries": "output"}
"""The column of the pairs that the model writes, by kind."""

_TRIED = 16
"""Number of texts that a plan has the model write."""


def rewrite(settings: RewriteSettings, run: Run) -> DatasetFolder:
    """Generate new questions or summaries for pairs; see ``RewriteSettings`` for the settings.

    If there are several splits, ``train`` is read unless another one is named. Rows keep their order.
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, pairs=settings.pairs, model=settings.model)
    training_rows = open_training_rows(settings.pairs, "rewritten", run.progress.say)
    source, pairs = training_rows.folder, training_rows.table().slice(0, settings.best)
    check_pair_columns(pairs, settings)
    pairs = pairs.drop_columns([name for name in pairs.column_names if _is_original(name, settings.kind)])
    revision = model_revision(settings.model)
    sizes = equal_shards(pairs.num_rows, settings.shard_size) or [0]  # without pairs, one empty shard
    writer = FolderWriter.start(
        run,
        Identity.of(
            "rewrite", settings.deciding(), {"pairs": hash_source(training_rows.source)}, {"model": revision}
        ),
        pairs.schema,
        planned=len(sizes),
    )
    if writer.finished:
        return nothing_to_do(writer)
    texts = model_inputs(pairs, settings.kind)
    first: dict[str, int] = {}
    # The model would write the same text again for an input that repeats an earlier one.
    repeats = pa.array([first.setdefault(text, i) != i for i, text in enumerate(texts)], pa.bool_())
    pairs = pairs.append_column("repeats", repeats)
    commit_each(
        writer,
        Shards(partial(row_shards, pairs, settings.shard_size), sizes, "texts"),
        partial(_load_writer, settings, revision),
        ExecutorChoice.of(settings),
        title="write",
        model=settings.model,
    )
    return finished(writer, _card(settings, source))


def _is_original(name: str, kind: str) -> bool:
    """Whether a column describes the replaced text, like the columns that ``mine`` kept of its record."""
    return name in _ORIGINAL or name.removeprefix("original_").startswith(f"{_WRITTEN[kind]}_")


def _load_writer(settings: RewriteSettings, revision: str, worker: int) -> Work[RowShard, RowsAndRejects]:
    """Load the model; returns the function that turns a shard of pairs into rewritten pairs and rejects."""
    check_revision(settings.model, revision, worker)
    write = text_writer(
        load_text_generator(settings.model, settings.kind, **load_options(settings)), settings
    )

    def rewrite_shard(shard: RowShard, advance: Advance) -> RowsAndRejects:
        repeats = shard.rows["repeats"].combine_chunks()
        pairs = shard.rows.drop_columns("repeats")
        generated = write(model_inputs(pairs.filter(pc.invert(repeats)), settings.kind), advance=advance)
        advance(pairs.num_rows - len(generated))
        left = iter(generated)
        texts = [None if is_repeat else next(left) for is_repeat in repeats.to_pylist()]
        return rewritten(pairs, texts, settings.kind)

    return rewrite_shard


def text_writer(model: TextGenerator, settings: RewriteSettings) -> Callable[..., list[str]]:
    """The function that generates a text for each of its inputs: ``generate_outputs`` with these settings."""
    return partial(
        generate_outputs,
        model,
        beams=settings.beams,
        output_tokens=settings.tokens,
        shortest=shortest_of(settings.kind),
        batch_size=settings.batch_size,
    )


def model_inputs(pairs: pa.Table, kind: str) -> list[str]:
    """The model's input for each pair: the answer in its passage (``reading``) or the document."""
    if kind == "summaries":
        documents: list[str] = pairs["input"].to_pylist()
        return documents
    answers_and_passages = zip(pairs["answers"].to_pylist(), pairs["context"].to_pylist(), strict=True)
    return [answer_in_passage(answers["text"][0], passage) for answers, passage in answers_and_passages]


def check_pair_columns(pairs: pa.Table, settings: RewriteSettings) -> None:
    """Check that the pairs have the columns that their kind needs, and values in them."""
    needed = _NEEDED[settings.kind]
    if missing := [name for name in needed.names if name not in pairs.column_names]:
        raise InputError(
            f"{settings.pairs}: pairs of kind {settings.kind} have the columns {', '.join(needed.names)}; "
            f"{', '.join(missing)} missing"
        )
    check_rows(pairs, needed, settings.pairs)


def rewritten(pairs: pa.Table, texts: Sequence[str | None], kind: str) -> RowsAndRejects:
    """Replace the questions or summaries of n pairs by n ``texts``.

    A text is None if an earlier pair has the same model input, and empty if the model generated nothing;
    these pairs become rejects.
    """
    side = _WRITTEN[kind]
    rows, rejects = [], []
    for row, text in zip(pairs.to_pylist(), texts, strict=True):
        if text is None:
            rejects.append(Reject.of(row["id"], DUPLICATE, "an earlier pair has the same model input", row))
            continue
        new = {**row, side: text}
        new["id"] = f"{text_id(new['input'])}-{text_id(new['output'])}"
        if text:
            rows.append(new)
        else:
            rejects.append(Reject.of(new["id"], EMPTY, "the model wrote nothing", new))
    return pa.Table.from_pylist(rows, schema=pairs.schema), to_table(rejects, REJECT)


def plan_rewrite(settings: RewriteSettings, before: Before) -> Estimate:
    """Estimate ``rewrite``: generate a few of the texts."""
    pairs = open_training_rows(settings.pairs, "rewritten")
    sample = pairs.head(CALIBRATION_TEXTS)
    check_pair_columns(sample, settings)
    count = count_in_run(len(pairs), [settings.pairs], before, "train")
    count = min(count, settings.best or count)

    def load() -> Callable[..., list[str]]:
        options = load_options(settings)
        fresh = settings.model in before
        return text_writer(
            load_text_generator(settings.model, settings.kind, fresh_decoder=fresh, **options), settings
        )

    loading, per_text, _ = timed(load, model_inputs(sample, settings.kind)[:_TRIED])
    shards, tokens = -(-count // settings.shard_size), count * settings.tokens
    return sharded_estimate(sample, count, shards, loading=loading, shared=per_text * count, tokens=tokens)


def _card(settings: RewriteSettings, source: DatasetFolder) -> Card:
    written, columns = "summaries", {"input": "a document", "output": "a summary that the model wrote"}
    if settings.kind == "reading":
        written = "questions"
        columns = {
            "input": "a question that the model wrote",
            "output": "an answer, a colon, and its passage",
        }
    return Card(
        title=f"Pairs with {written} written by a model",
        description=(
            f"Pairs of the folder `{source.path.name}` (step `{source.manifest.step}`); the {written} were "
            f"rewritten by `{model_display_name(settings.model)}`."
        ),
        columns={**source.manifest.about.columns, **columns},
        provenance=f"The {written} were written by a program; no person has checked them.",
        citations=(MINING,),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=[source.path]),
        task="summarization" if settings.kind == "summaries" else "",
    )
