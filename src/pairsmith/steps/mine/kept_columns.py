"""The columns of the users' records that mined pairs keep.

To get these columns, the records are read a second time, after all texts are encoded. The encoded corpora do
not have these columns, so a later run can keep other columns without encoding anything again.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from pairsmith.data.documents import Document
from pairsmith.data.kept_columns import kept_names, refuse_missing_columns
from pairsmith.data.schemas import MINED_ANSWER
from pairsmith.data.text import count_words, windows
from pairsmith.methods.mining.units import sentences_of
from pairsmith.runs.mapped import record_shards
from pairsmith.runs.source_hashes import refuse_changed_sources
from pairsmith.steps.corpora.corpus import Corpus
from pairsmith.steps.corpora.encoded import ENCODED_TEXTS, Encoded
from pairsmith.steps.mine.settings import MineSettings


def columns_to_keep(settings: MineSettings) -> tuple[dict[str, str], dict[str, str]]:
    """The columns to keep of the inputs, and of the outputs: column -> its name in mined pairs."""
    refuse_missing_columns(
        ("--keep-input-column", settings.inputs, settings.keep_input_column),
        ("--keep-output-column", settings.outputs, settings.keep_output_column),
    )
    return (
        kept_names(settings.keep_input_column, MINED_ANSWER.names, "input_"),
        kept_names(settings.keep_output_column, MINED_ANSWER.names, "output_"),
    )


def texts_with_columns(encoded: Encoded, corpus: Corpus, settings: MineSettings) -> Iterator[pa.Table]:
    """The tables of ``Encoded.texts``, with the columns to keep of each text's record.

    One shard of the encoded corpus and its records are held in memory at a time. If several records of a
    shard contain a text, the columns are taken from the first of these records.

    Raises:
        InputError: a source of the corpus has changed since it was hashed.
    """
    if not corpus.keep:
        yield from encoded.texts()
        return
    edges = np.cumsum([0, *encoded.folder.shard_rows()]).tolist()
    tables = encoded.folder.shards("train", ENCODED_TEXTS.names)
    shards = record_shards(corpus.records, settings.shard_size, range(len(edges) - 1))
    for (start, stop), table, shard in zip(pairwise(edges), tables, shards, strict=True):
        refuse_changed_sources(corpus.hashes.values())
        distinct = table.filter(pa.array(encoded.distinct[start:stop]))
        kept: dict[tuple[str, str], Mapping[str, str | None]] = {}
        for record in shard.records:
            for text in _texts_of(record, corpus, settings):
                kept.setdefault((text, record.group), record.kept)
        rows = distinct.select(["text", "context", "group"]).to_pylist()
        of_rows = [kept[row["context"] or row["text"], row["group"]] for row in rows]
        for name in corpus.keep.values():
            distinct = distinct.append_column(
                pa.field(name, pa.string()), pa.array([values[name] for values in of_rows], pa.string())
            )
        yield distinct


def _texts_of(record: Document, corpus: Corpus, settings: MineSettings) -> Sequence[str]:
    """The texts that a record was cut into; instead of candidate answers, the passages that contain them."""
    if corpus.side == "outputs" and settings.kind == "reading":
        return [passage.text for passage in windows(record.text, settings.window, count_words)]
    if corpus.side == "outputs" and settings.kind == "summaries":
        return sentences_of(record.text)
    return [record.text]
