"""The step ``summarize``: texts and documents -> summaries by beam search (M9)."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from pairsmith.core.errors import SettingsError
from pairsmith.data.documents import DOCUMENT_COLUMNS, joined_text
from pairsmith.data.files.reading import UNKNOWN_KIND, count_documents, document_files, source_documents
from pairsmith.data.filters import EMPTY
from pairsmith.data.kept_columns import kept_names, kept_schema
from pairsmith.data.labelled_texts import TextRow, read_text_rows
from pairsmith.data.schemas import SUMMARIZED_TEXT, Reject
from pairsmith.models.text_generator import TextGenerator, load_text_generator, require_text_generator
from pairsmith.runs import Card, DatasetFolder, Run, model_display_name, resolve_dtype, sources_of
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.work import Advance
from pairsmith.steps.planning import evenly_spaced, head_and_count, sharded_estimate, timed
from pairsmith.steps.shared import load_options, named, refuse_inside, refuse_sources
from pairsmith.steps.texts.settings import SummarizeSettings
from pairsmith.steps.texts.text_rows import NewRows, Row, columns_before, read_files, with_new_columns

_TRIED = 16
"""Number of texts that a plan summarises, of the first ``_READ``."""
_READ = 1_000


def summarize(settings: SummarizeSettings, run: Run) -> DatasetFolder:
    """Summarise texts or documents; see ``SummarizeSettings``.

    The column ``summary`` has the summary of a text; ``truncated`` says whether the model read only the
    beginning of the text. Rows keep the order, the ids and the other columns of the source; unless all rows
    have ids, they are numbered from 1. The id of a file is its path in the folder. Blank texts, and files
    that cannot be read, become rejects.
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, data=settings.data, model=settings.model)
    refuse_inside(run, data=settings.data)
    require_text_generator(settings.model)
    if document_files(settings.data):
        if settings.text_column:
            raise SettingsError(
                f"--text-column {settings.text_column} is for tables, not for documents: leave it out"
            )
        counts = count_documents(source_documents([settings.data]))
        if counts.unknown:
            run.progress.say(
                f"files of kinds that are not read: {counts.named()}; rejects/ lists them ({UNKNOWN_KIND})"
            )
    folder = with_new_columns("summarize", settings, run, SUMMARIZED_TEXT, _load, _card, texts_of)
    if folder.manifest.complete:
        truncated = folder.table(columns=["truncated"])["truncated"]
        if number := pc.sum(truncated).as_py():
            run.progress.say(
                f"longer than the model reads: {number:,} of {len(truncated):,} texts; their summaries are "
                "of the beginnings, see the column truncated"
            )
    return folder


def texts_of(settings: SummarizeSettings) -> Iterator[TextRow]:
    """The texts of the settings' source; documents in files are read later, by the workers.

    A text that is a list, such as one of paragraphs, is joined by line breaks.
    """
    if document_files(settings.data):
        for document in source_documents([settings.data]):
            yield TextRow(document.name, "", {}, document)
    else:
        yield from read_text_rows(settings.data, settings.text_column, DOCUMENT_COLUMNS, joined_text)


def _load(settings: SummarizeSettings) -> NewRows:
    """Load the summariser, and return the function that summarises texts."""
    return partial(_summarized, load_text_generator(settings.model, **load_options(settings)), settings)


def _summarized(
    summarizer: TextGenerator,
    settings: SummarizeSettings,
    texts: Sequence[TextRow],
    columns_of: Callable[[TextRow], Row],
    advance: Advance,
) -> tuple[list[Row], list[Reject]]:
    """The rows of texts, and a reject for each text for which the model writes nothing."""
    documents = [row.text for row in texts]
    with named(settings.model):
        summaries = summarizer.summarize(
            documents,
            beams=settings.beams,
            summary_tokens=settings.summary_tokens,
            batch_size=settings.batch_size,
            advance=advance,
        )
        truncated = summarizer.is_truncated(documents, settings.summary_tokens)
    rows, rejects = list[Row](), list[Reject]()
    for row, summary, is_truncated in zip(texts, summaries, truncated, strict=True):
        if summary:
            rows.append(columns_of(row) | {"summary": summary, "truncated": is_truncated})
        else:
            rejects.append(Reject.of(row.id, EMPTY, "the model wrote nothing", columns_of(row)))
    return rows, rejects


def plan_summarize(settings: SummarizeSettings, before: Before) -> Estimate:
    """Summarise some of the texts, and extrapolate."""
    first, count = head_and_count(texts_of(settings), settings.data, before, _READ)
    read, _ = read_files(evenly_spaced(first, _TRIED))
    sample = [row for row in read if row.text]
    names = kept_names((name for row in first for name in row.others), SUMMARIZED_TEXT.names)

    def load() -> Callable[[Sequence[TextRow]], list[Row]]:
        summarizer = load_text_generator(
            settings.model, fresh_decoder=settings.model in before, **load_options(settings)
        )

        def summarized(rows: Sequence[TextRow]) -> list[Row]:
            return _summarized(summarizer, settings, rows, partial(columns_before, names), lambda _: None)[0]

        return summarized

    loading, per_text, rows = timed(load, sample)
    table = pa.Table.from_pylist(rows, schema=kept_schema(SUMMARIZED_TEXT, names))
    shards, tokens = -(-count // settings.shard_size), count * settings.summary_tokens
    return sharded_estimate(table, count, shards, loading=loading, shared=per_text * count, tokens=tokens)


def _card(settings: SummarizeSettings, names: Mapping[str, str]) -> Card:
    return Card(
        title="Texts with their summaries",
        description=f"Texts, each with a summary by `{model_display_name(settings.model)}`.",
        columns={
            "summary": "the summary that the model wrote",
            "truncated": "whether the model read only the beginning of the text",
        },
        kept={kept: f"the column {name} of the source" for name, kept in names.items()},
        provenance="The summaries were written by a program; no person has checked them.",
        licence="The rights in the texts apply.",
        sources=sources_of(models=[settings.model], data=[settings.data]),
        task="summarization",
    )
