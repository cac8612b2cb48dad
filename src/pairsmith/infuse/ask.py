"""The step ``ask``: questions asked of passages (Q1, Q2).

texts -> passages of whole sentences -> answers with their questions, drawn -> distinct ones -> rows
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from pairsmith.citations import QUIP
from pairsmith.encoders.asker import (
    ANSWER_TOKENS,
    QUESTION_TOKENS,
    Written,
    parse,
    separator_of,
)
from pairsmith.encoders.encode import batches_by_length, one_thread_each
from pairsmith.encoders.summarizer import Summarizer, document_features, encode_documents, load_summarizer
from pairsmith.infuse.settings import AskSettings
from pairsmith.lm.nucleus import draw_sequences
from pairsmith.modelnames import check_revision, model_revision
from pairsmith.records import REJECT, Document, Reject, read_documents, text_id, to_table
from pairsmith.records.asked import ASKED
from pairsmith.runs import Card, DatasetFolder, FolderWriter, Run, hash_source, refuse_source
from pairsmith.runs.executors import Advance, Where, Work
from pairsmith.runs.mapped import Made, completed
from pairsmith.runs.seeds import stream_key
from pairsmith.runs.streamed import RecordShard, commit_records
from pairsmith.texts.passages import passage_limit, passages, token_count
from pairsmith.texts.places import find_answer

_WHERE = {"device", "batch_size", "executor", "workers", "ray_address"}
"""Settings that say where and how fast, not what."""

_MAX_TOKENS = ANSWER_TOKENS + QUESTION_TOKENS + 3
"""With a begin, the separator and an end."""


def ask(settings: AskSettings, run: Run) -> DatasetFolder:
    """Have a model ask questions of texts; see ``AskSettings``.

    What was drawn and is no new question with an answer is a reject, as is a passage that is too long.

    Raises:
        UserError: the texts, the model or the folder is not usable.
        StorageError: the disk failed; finished shards are kept, and the same command continues.
        WorkerError: a worker failed; finished shards are kept.
    """
    for source in settings.inputs:
        refuse_source(run, inputs=source)
    refuse_source(run, model=settings.model)
    count = sum(1 for _ in texts(settings))
    twice = sum(1 for _ in _every(settings)) - count
    if twice:
        run.progress.say(f"{twice:,} texts stand there more than once; each is asked about once")
    revision = model_revision(settings.model)
    writer = FolderWriter.start(
        run,
        step="ask",
        schema=ASKED,
        settings=settings.model_dump(mode="json", exclude={*_WHERE, "inputs", "model"}),
        inputs={
            f"inputs {number}": hash_source(text) for number, text in enumerate(settings.inputs, start=1)
        },
        models={"model": revision},
        planned=-(-count // settings.shard_size),
    )
    commit = partial(
        commit_records,
        writer,
        AskerLoader(settings, revision),
        partial(texts, settings),
        count,
        settings.shard_size,
        Where(settings.executor, settings.workers, settings.ray_address),
        run,
        title="ask",
        unit="texts",
    )
    return completed(writer, run, commit, _card(settings))


def texts(settings: AskSettings) -> Iterator[Document]:
    """The distinct ones, one at a time.

    Raises:
        InputError: a source is not there (at once), or cannot be read.
    """
    every = _every(settings)

    def distinct() -> Iterator[Document]:
        seen: set[int] = set()
        for document in every:
            key = stream_key(document.document)
            if key not in seen:
                seen.add(key)
                yield document

    return distinct()


def _every(settings: AskSettings) -> Iterator[Document]:
    return chain.from_iterable([read_documents(each, column=settings.column) for each in settings.inputs])


@dataclass(slots=True)
class Passage:
    """A passage, and what has been asked of it so far.

    Attributes:
        id: of the passage, from its text and where it begins there.
        text: the passage.
        tokens: as the model reads it.
        found: by question without regard to case, its row.
        drawn: how many sequences were drawn.
    """

    id: str
    text: str
    tokens: Sequence[int]
    found: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    drawn: int = 0


@dataclass(frozen=True, slots=True)
class AskerLoader:
    """Makes a worker ready: loads the model once, then asks about one shard after the other."""

    settings: AskSettings
    revision: str

    def __call__(self, worker: int) -> Work[RecordShard[Document], Made]:
        """The work of a worker: a shard's rows and rejects.

        Raises:
            ModelError: the model cannot be loaded, or is not the one of the process that started this.
        """
        settings = self.settings
        check_revision(settings.model, self.revision, worker)
        asker = load_summarizer(
            settings.model, device=settings.device, dtype=settings.dtype, max_length=settings.max_length
        )
        separator_of(asker, settings.separator)

        def work(shard: RecordShard[Document], advance: Advance) -> Made:
            of_texts, lost = cut(asker, shard.records)
            rejects = [*lost, *ask_all(asker, [each for some in of_texts for each in some], settings)]
            advance(len(shard.records))
            rows = [row for some in of_texts for passage in some for row in passage.found.values()]
            return pa.Table.from_pylist(rows, schema=ASKED), to_table(rejects, REJECT)

        return work


def cut(asker: Summarizer, documents: Sequence[Document]) -> tuple[list[list[Passage]], list[Reject]]:
    """The passages of each text (Q1), and as rejects those that the model cannot read whole."""
    limit = passage_limit(asker.tokenizer, asker.max_length)
    found: list[list[Passage]] = []
    rejects = []
    for document in documents:
        windows = passages(document.document, limit, asker.tokenizer)
        some = []
        for window, tokens in zip(windows, encode_documents(asker, [w.text for w in windows]), strict=True):
            name = text_id(f"{window.start}:{document.document}")
            if token_count(window.text, asker.tokenizer) > limit:
                row = {"context": window.text, "where": document.where}
                rejects.append(Reject.of(name, "long passage", f"a word of more than {limit} tokens", row))
            else:
                some.append(Passage(name, window.text, tokens))
        found.append(some)
    return found, rejects


def ask_all(asker: Summarizer, every: Sequence[Passage], settings: AskSettings) -> list[Reject]:
    """Draw questions until each passage has enough, or has had its tries; returns what was not kept (Q2).

    Each batch is drawn by one thread, lest the number of threads move a probability and with it a draw.
    """
    asker.model.eval()
    separator, end = separator_of(asker, settings.separator), asker.model.generation_config.eos_token_id
    rejects: list[Reject] = []
    with one_thread_each(asker.model.device) as pool:
        for _ in range(settings.tries):
            left = [passage for passage in every if len(passage.found) < settings.questions]
            begin = partial(_begin, asker, left, settings)
            lengths = [len(passage.tokens) for passage in left]
            most = settings.batch_size * asker.max_length
            for rows, drawn in pool.each(begin, batches_by_length(lengths, settings.batch_size, most)):
                for row, sequences in zip(rows, drawn, strict=True):
                    for tokens in sequences:
                        reject = keep(left[row], parse(asker, tokens, separator, end))
                        left[row].drawn += 1
                        rejects += [reject] if reject else []
    return rejects


def _begin(
    asker: Summarizer,
    passages: Sequence[Passage],
    settings: AskSettings,
    pool: ThreadPoolExecutor,
    rows: list[int],
) -> Future[list[list[list[int]]]]:
    """Draw for each of some passages as many sequences as it lacks."""
    batch = [passages[row] for row in rows]
    streams = []
    for passage in batch:
        numbers = range(passage.drawn, passage.drawn + settings.questions - len(passage.found))
        streams.append(np.array([stream_key(passage.id, number) for number in numbers], np.uint64))
    return pool.submit(
        draw_sequences,
        asker.model,
        document_features(asker, [passage.tokens for passage in batch]),
        streams,
        seed=settings.seed,
        top_p=settings.top_p,
        max_tokens=min(_MAX_TOKENS, asker.context - 2),
    )


def keep(passage: Passage, written: Written) -> Reject | None:
    """Add what was written to the passage's questions, or say why not."""
    place = find_answer(written.answer, passage.text)
    name = f"{passage.id}-{passage.drawn}"
    row = {
        "id": name,
        "context": passage.text,
        "question": written.question,
        "written": written.answer,
        "answers": {
            "text": [passage.text[slice(*place)]] if place else [],
            "answer_start": [place[0]] if place else [],
        },
    }
    if written.fault:
        return Reject.of(name, written.fault, "not an answer, the separator and a question", row)
    if written.question.casefold() in passage.found:
        return Reject.of(name, "duplicate", "asked before of this passage", row)
    passage.found[written.question.casefold()] = row
    return None


def _card(settings: AskSettings) -> Card:
    return Card(
        title="Questions that a model asked of passages",
        description=f"Passages of whole sentences, and questions that {settings.model} asked of them.",
        columns={
            "context": "the passage",
            "written": "the answer that the model wrote before the question",
            "answers": "where it stands in the passage; empty where it does not",
        },
        made="The questions and answers were written by a program; no person has checked them.",
        citations=(QUIP,),
        licence="The rights in the passages apply.",
    )
