"""The step ``mine``: find naturally occurring pairs in two corpora (few-shot mining).

corpora -> texts to pair -> vectors of the texts in the style of the seeds (M4) -> nearest neighbours in both
directions, without those that may not be paired (M5) -> margin scores (M3) -> selected pairs -> rows
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pairsmith.core.citations import MINING
from pairsmith.core.errors import FolderError, counted
from pairsmith.core.folder_kinds import json_object
from pairsmith.core.model_names import model_revision
from pairsmith.core.paths import place, reaching
from pairsmith.data.documents import Document, read_documents
from pairsmith.data.kept_columns import kept_schema
from pairsmith.data.schemas import MINED_ANSWER, MINED_PAIR, REJECT, Reject, as_columns, to_table
from pairsmith.methods.mining.method import mined_pair
from pairsmith.methods.mining.style import load_style_classifier
from pairsmith.methods.mining.units import AnswerInPassage
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    model_display_name,
    resolve_dtype,
    sources_of,
    synthetic_tag,
)
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import finished, nothing_to_do
from pairsmith.runs.storage import ScratchFiles
from pairsmith.search.margin import ScoredCandidates
from pairsmith.search.selection import PairFile, select_pairs
from pairsmith.steps.corpora.corpus import STYLE, Corpus, cutter, encode_corpus, finder_of, is_styled
from pairsmith.steps.corpora.encoded import ENCODED_TEXTS, CorpusTexts, Encoded
from pairsmith.steps.mine.kept_columns import columns_to_keep, texts_with_columns
from pairsmith.steps.mine.search import find_neighbours, scored_candidates
from pairsmith.steps.mine.settings import MineSettings
from pairsmith.steps.search_parts import SearchGroup, check_index
from pairsmith.steps.shared import hashes, naming_texts, refuse_sources, unfinished_shards
from pairsmith.training.folder import TRAINING_RECORD

SHARD_ROWS = 100_000
"""Largest number of pairs in a shard, and of rejects for texts that repeat an earlier one."""

_LARGE_SHARE = 0.2
"""If a larger share of a corpus is dropped for its style, the progress names the option that keeps it."""


def mine(settings: MineSettings, run: Run) -> DatasetFolder:
    """Mine pairs; see ``MineSettings`` for the settings.

    Intermediate results are saved in subfolders: the vectors in ``inputs`` and ``outputs``, the neighbours
    in ``search``, and trained indexes in ``indexes``.
    """
    settings = resolve_dtype(settings, run)
    refuse_sources(run, inputs=settings.inputs, outputs=settings.outputs)
    blank: Counter[str] = Counter()
    both = corpora(settings, on_blank=lambda side: blank.update([side]))
    schema = schema_of(settings, both)
    revision = model_revision(settings.encoder)
    writer = FolderWriter.start(
        run,
        Identity.of(
            "mine",
            settings.deciding(),
            {name: digest for corpus in both for name, digest in corpus.hashes.items()},
            {"encoder": revision, **finder_of(settings.units())},
        ),
        schema,
    )
    if writer.finished:
        return nothing_to_do(writer)
    # Missing packages and unusable indexes are reported here, before hours of encoding.
    for corpus in both:
        cutter(corpus.side, settings.units())
    if settings.index:
        check_index(settings.index)
    for remark in _remarks_on_encoder(settings):
        run.progress.say(remark)
    records = [corpus.count() for corpus in both]  # a row that cannot be read is reported here, too
    blank_rows = blank.copy()  # whenever the corpora are read again, ``blank`` grows
    # 1. Encode both corpora, and leave out texts that are not in the style of the seeds (M4).
    folders = [
        encode_corpus(corpus, settings.encoding(), revision, run.part(corpus.side), count)
        for corpus, count in zip(both, records, strict=True)
    ]
    left_out_before = _left_out_before(folders, blank_rows, run)
    if run.rank is not None:
        return writer.folder()  # the search needs the vectors of all ranks
    with ScratchFiles(run.out) as scratch:
        x, y = (Encoded.of(folder, scratch(name)) for folder, name in zip(folders, ("x", "y"), strict=True))
        texts = _texts(x, both[0], settings, scratch("xs")), _texts(y, both[1], settings, scratch("ys"))
        forward, backward, pairs = (PairFile(scratch(name)) for name in ("forward", "backward", "chosen"))
        # 2. Search the nearest neighbours of all texts, in both directions (M3).
        encodings = {folder.path.name: folder.manifest.fingerprint for folder in folders}
        search, groups = find_neighbours(x, y, settings, encodings, run)
        # 3. Keep the k nearest that may be paired (M5), and compute their margins (M3).
        left_out, unscored = scored_candidates(
            search.batches("train"), groups, (x, y), texts, settings, (forward, backward), run.out
        )
        # 4. Select pairs by the retrieval rule, and write them.
        both_ways, sizes = (forward.parts(), backward.parts()), (len(x), len(y))
        pairs.extend(select_pairs(*both_ways, settings.retrieval, sizes, best=settings.best, folder=run.out))
        _commit(writer, pairs, (x, y), texts, settings, schema)
        unpaired = _without_candidates(x, y, groups, (forward, backward), settings)
        counts = left_out_before | {"input texts": len(x), "output texts": len(y)}
        counts |= {"groups searched": len(groups)} if settings.group_column else {}
        counts |= {"candidate outputs of inputs": len(forward), "candidate inputs of outputs": len(backward)}
        counts |= unpaired | {"neighbours left out: one text, or its answer, contains the other": left_out}
        counts |= {"candidates without a margin score": unscored}
    _report(left_out, unpaired, settings, run)
    return finished(writer, _card(settings, both, counts))


def corpora(
    settings: MineSettings, on_blank: Callable[[str], object] = lambda _: None
) -> tuple[Corpus, Corpus]:
    """The corpora of the inputs and of the outputs.

    Whenever a corpus is read, ``on_blank`` is called with its side for each row without a text.
    """

    def corpus(
        side: Literal["inputs", "outputs"], sources: list[str], column: str | None, keep: dict[str, str]
    ) -> Corpus:
        read = partial(
            read_documents,
            column=column,
            group_column=settings.group_column,
            prefer=("question",) if (settings.kind, side) == ("reading", "inputs") else (),
            keep=keep,
            remedy=naming_texts(f"{side.removesuffix('s')}_column"),
            on_blank=lambda _: on_blank(side),
        )

        def records() -> Iterator[Document]:
            return chain.from_iterable(map(read, sources))

        return Corpus(side, side, records, sources, column, hashes(side, sources), keep)

    keep_x, keep_y = columns_to_keep(settings)
    return (
        corpus("inputs", settings.inputs, settings.input_column, keep_x),
        corpus("outputs", settings.outputs, settings.output_column, keep_y),
    )


def _remarks_on_encoder(settings: MineSettings) -> Iterator[str]:
    """Warnings about an encoder that was not trained for pairs of this kind."""
    styled = any(is_styled(settings.units(), side) for side in ("inputs", "outputs"))
    if styled and load_style_classifier(settings.encoder) is None:
        yield f"{settings.encoder} has no style classifier; texts of every style are kept"
    with reaching(place(settings.encoder), FolderError):
        trained = json_object(place(settings.encoder) / TRAINING_RECORD)
    chosen = trained.get("settings")
    kind = chosen.get("kind", settings.kind) if isinstance(chosen, dict) else settings.kind
    if trained.get("step") == "train-biencoder" and kind != settings.kind:
        yield f"{settings.encoder} was trained with --kind {kind}, and mines pairs of --kind {settings.kind}"


def _texts(encoded: Encoded, corpus: Corpus, settings: MineSettings, file: Path) -> CorpusTexts:
    """Write the distinct texts of a corpus, with the columns to keep, into a file."""
    return CorpusTexts(texts_with_columns(encoded, corpus, settings), file, list(corpus.keep.values()))


def _left_out_before(folders: Sequence[DatasetFolder], blank: Mapping[str, int], run: Run) -> dict[str, int]:
    """Count and report the rows and texts that were left out before the search, by corpus and reason.

    ``folders`` hold the encoded inputs and outputs; ``blank`` has the numbers of rows without a text, by
    corpus.
    """
    left_out: dict[str, int] = {}
    for folder in folders:
        name, totals = folder.path.name, folder.manifest.counts
        if rows := blank.get(name):
            left_out[f"rows of {name} without a text"] = rows
            run.progress.say(f"{name}: rows without a text, which are skipped: {rows:,}")
        texts = totals.rows + totals.rejects
        left_out |= {
            f"{name} left out before the search, {reason}": n
            for reason, n in totals.rejects_by_reason.items()
        }
        if totals.rejects:
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in totals.rejects_by_reason.items())
            run.progress.say(
                f"{name}: {totals.rejects:,} of {texts:,} texts are left out before the "
                f"search ({reasons}); they are in {folder.path}/rejects"
            )
        of_style = sum(n for reason, n in totals.rejects_by_reason.items() if reason.startswith(f"{STYLE}:"))
        if of_style > _LARGE_SHARE * texts:
            run.progress.say(f"to keep {name} of every style, give --style 0")
    return left_out


def _commit(
    writer: FolderWriter,
    pairs: PairFile,
    corpora: tuple[Encoded, Encoded],
    texts: tuple[CorpusTexts, CorpusTexts],
    settings: MineSettings,
    schema: pa.Schema,
) -> None:
    """Write the pairs; pairs below the threshold and repeated texts of both corpora become rejects."""
    x, y = corpora
    for number, part in unfinished_shards(writer, max(len(pairs), x.copy_count + y.copy_count), SHARD_ROWS):
        rows, rejects = split_by_threshold(pairs[part], texts, settings)
        all_rejects = [
            to_table(rejects, REJECT),
            x.copies("inputs", part.start, part.stop),
            y.copies("outputs", max(0, part.start - x.copy_count), max(0, part.stop - x.copy_count)),
        ]
        table = pa.Table.from_pylist(rows, schema=schema)
        writer.commit(number, {"train": table}, pa.concat_tables(all_rejects))


def schema_of(settings: MineSettings, corpora: Sequence[Corpus]) -> pa.Schema:
    """The schema of the mined pairs, with the columns to keep."""
    own = MINED_ANSWER if settings.kind == "reading" else MINED_PAIR
    return kept_schema(kept_schema(own, corpora[0].keep), corpora[1].keep)


def _report(left_out: int, unpaired: Mapping[str, int], settings: MineSettings, run: Run) -> None:
    """Report how many neighbours were left out (M5), and how many texts are in no pair, by reason."""
    if left_out:
        run.progress.say(
            f"{counted(left_out, 'nearer neighbours are')} left out on purpose: if one text of a pair (or "
            "its answer) occurs word for word in the other, a model only learns to copy; "
            f"the {settings.k} nearest neighbours of each text (--k) are counted without these"
        )
    for what, count in unpaired.items():
        if count:
            run.progress.say(f"{what}, which are in no pair: {count:,}")


def _without_candidates(
    x: Encoded,
    y: Encoded,
    groups: Sequence[SearchGroup],
    candidates: tuple[PairFile, PairFile],
    settings: MineSettings,
) -> dict[str, int]:
    """Count the texts that are in no pair, by reason.

    ``candidates`` are the files of the inputs' candidates and of the outputs' candidates.
    """
    forward, backward = candidates
    has = forward.has(len(x))
    if settings.retrieval in ("candidates", "max"):  # these rules also use outputs' candidates
        has |= backward.has(len(x))
    if not settings.group_column:
        return {"inputs without a candidate": int((~has).sum())}
    inputs, other_inputs = _searched(x, [group.x for group in groups])
    _, other_outputs = _searched(y, [group.y for group in groups])
    return {
        "inputs without a candidate": int((inputs & ~has).sum()),
        "inputs of groups without outputs": other_inputs,
        "outputs of groups without inputs": other_outputs,
    }


def _searched(corpus: Encoded, numbers: Iterable[NDArray[np.int64]]) -> tuple[NDArray[np.bool_], int]:
    """Which of a corpus's n texts were searched, ``(n,)`` bool, and how many distinct texts were not.

    ``numbers`` has the numbers of the texts of each group that was searched. A text that is in several groups
    counts once, by the number of its first occurrence.
    """
    firsts = corpus.firsts()
    searched = np.zeros(len(corpus), np.bool_)
    for of_group in numbers:
        searched[firsts[of_group]] = True
    return searched, len(np.unique(firsts)) - int(searched.sum())


def split_by_threshold(
    pairs: ScoredCandidates, texts: tuple[CorpusTexts, CorpusTexts], settings: MineSettings
) -> tuple[list[dict[str, Any]], list[Reject]]:
    """The rows of the pairs whose margin is at least the threshold, and the rejects for the other pairs."""
    rows = _rows(pairs, texts)
    least = -math.inf if settings.threshold is None else settings.threshold
    rejects = [
        Reject.of(row["id"], "margin", f"below {settings.threshold}", row)
        for row in rows
        if row["margin"] < least
    ]
    return [row for row in rows if row["margin"] >= least], rejects


def _rows(pairs: ScoredCandidates, texts: tuple[CorpusTexts, CorpusTexts]) -> list[dict[str, Any]]:
    inputs, outputs = texts[0].rows(pairs.x.tolist()), texts[1].rows(pairs.y.tolist())
    rows = zip(inputs, outputs, pairs.margin.tolist(), pairs.similarity.tolist(), strict=True)
    return [
        as_columns(mined_pair(x["text"], _output(y), margin, cosine)) | _kept_columns(x) | _kept_columns(y)
        for x, y, margin, cosine in rows
    ]


def _kept_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a text's row that were kept of its record."""
    return {name: value for name, value in row.items() if name not in ENCODED_TEXTS.names}


def _output(row: Mapping[str, Any]) -> str | AnswerInPassage:
    """The output in a row of ``ENCODED_TEXTS``: a text, or a candidate answer in its passage."""
    if row["answer"] is None:
        return str(row["text"])
    return AnswerInPassage(row["answer"], row["answer_start"], row["context"])


_PAIRS = {
    "pairs": "",
    "reading": ", each a question and an answer in its passage",
    "summaries": ", each a document and a sentence of another document",
}
"""What a pair of each kind consists of."""


def _card(settings: MineSettings, corpora: Sequence[Corpus], counts: dict[str, int]) -> Card:
    return Card(
        title="Mined pairs",
        description=(
            f"Pairs of texts from two corpora{_PAIRS[settings.kind]}. They were paired by the "
            f"margin score of their vectors under the encoder `{model_display_name(settings.encoder)}`; the "
            "texts themselves are unchanged."
        ),
        counts=counts,
        columns={
            "input": "a text of the first corpus",
            "output": "an answer, a colon, and its passage in the second corpus"
            if settings.kind == "reading"
            else "a text of the second corpus",
            "margin": f"the pair's margin score ({settings.margin}), by which it was found; higher is better",
            "score": "the cosine of the two vectors, from -1 to 1",
        },
        kept={
            name: f"the column {column} of the {corpus.side}"
            for corpus in corpora
            for column, name in corpus.keep.items()
        },
        provenance="The pairs were put together by a program; no person has checked each of them.",
        tags=("mined", *synthetic_tag(*settings.inputs, *settings.outputs)),
        citations=(MINING,),
        licence="The rights in the corpora apply to the texts.",
        sources=sources_of(models=[settings.encoder], data=[*settings.inputs, *settings.outputs]),
        task="summarization" if settings.kind == "summaries" else "",
    )
