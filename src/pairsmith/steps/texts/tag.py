"""The step ``tag``: texts -> words -> the tags of a tagger (Q10) -> the named entities of each text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial

import pyarrow as pa

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import counted, one_line
from pairsmith.core.text_width import left_aligned
from pairsmith.data.kept_columns import kept_names, kept_schema
from pairsmith.data.labelled_texts import TextRow, read_text_rows
from pairsmith.data.schemas import TAGGED_TEXT, Reject
from pairsmith.models.tagger import TaggedText, Tagger, load_tagger
from pairsmith.runs import (
    Card,
    DatasetFolder,
    Run,
    model_display_name,
    resolve_dtype,
    sources_of,
    synthetic_tag,
)
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.status import entity_types
from pairsmith.runs.work import Advance
from pairsmith.steps.planning import head_and_count, sharded_estimate, timed
from pairsmith.steps.shared import load_options, named, refuse_sources
from pairsmith.steps.texts.settings import TagSettings
from pairsmith.steps.texts.text_rows import NewRows, Row, columns_before, with_new_columns

_AT_ONCE = 100
"""Number of texts that are tagged at once, between two updates of the progress."""


def tag(settings: TagSettings, run: Run) -> DatasetFolder:
    """Find the named entities of texts; see ``TagSettings``.

    The column ``entities`` has the named entities of a text, ``tokens`` its words and ``ner_tags`` their BIO
    tags. Rows keep the order, the ids and the other columns of the source; unless all rows have ids, they
    are numbered from 1. Blank texts become rejects.
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, data=settings.data, model=settings.model)
    folder = with_new_columns("tag", settings, run, TAGGED_TEXT, _load, _card)
    if folder.manifest.complete:
        for name, number in sorted(entity_types(folder).items()):
            run.progress.say(f"  type {left_aligned(one_line(name), 20)} {counted(number, 'entities')}")
    return folder


def _load(settings: TagSettings) -> NewRows:
    """Load the tagger, and return the function that tags texts."""
    tagger = load_tagger(settings.model, **load_options(settings))
    return partial(_tagged, tagger, settings.model)


def _tagged(
    tagger: Tagger,
    model: str,
    texts: Sequence[TextRow],
    columns_of: Callable[[TextRow], Row],
    advance: Advance,
) -> tuple[list[Row], list[Reject]]:
    """The rows of texts; there are no rejects."""
    rows = list[Row]()
    for batch in in_batches(texts, _AT_ONCE):
        with named(model):
            tagged = tagger.tag_texts([row.text for row in batch])
        rows += [columns_of(row) | _columns(text) for row, text in zip(batch, tagged, strict=True)]
        advance(len(batch))
    return rows, []


def _columns(tagged: TaggedText) -> Row:
    return {
        "entities": [asdict(entity) for entity in tagged.entities],
        "tokens": tagged.words,
        "ner_tags": list(tagged.tags),
    }


def plan_tag(settings: TagSettings, before: Before) -> Estimate:
    """Tag some of the texts, and extrapolate."""
    rows = (row for row in read_text_rows(settings.data, settings.text_column) if row.text)
    first, count = head_and_count(rows, settings.data, before)
    loading, per_text, tagged = timed(
        lambda: load_tagger(settings.model, **load_options(settings)).tag_texts,
        [row.text for row in first],
    )
    names = kept_names((name for row in first for name in row.others), TAGGED_TEXT.names)
    sample = [
        {**columns_before(names, row), "id": f"{number:016}", **_columns(text)}
        for number, (row, text) in enumerate(zip(first, tagged, strict=True))
    ]
    table = pa.Table.from_pylist(sample, schema=kept_schema(TAGGED_TEXT, names))
    shards = -(-count // settings.shard_size)
    return sharded_estimate(table, count, shards, loading=loading, shared=per_text * count)


def _card(settings: TagSettings, names: Mapping[str, str]) -> Card:
    return Card(
        title="Texts with their named entities",
        description=f"Texts, each with its named entities by `{model_display_name(settings.model)}`.",
        columns={
            "entities": "the named entities: the text and the type of each, and where it starts and ends in "
            "the text, in characters from 0",
            "tokens": "the words of the text",
            "ner_tags": "the tag of each word: B- and a type for the first word of an entity, I- and the "
            "type for its other words, O for all others",
        },
        kept={kept: f"the column {name} of the source" for name, kept in names.items()},
        provenance="The entities were found by a program; no person has checked them.",
        tags=synthetic_tag(settings.data),
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=[settings.data]),
        task="token-classification",
    )
