"""The step ``ask``: generate questions on passages (Q1, Q2).

texts -> passages of whole sentences -> those that are drawn -> sampled answers with questions -> distinct
questions -> rows
"""

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa

from pairsmith.core.citations import QUIP
from pairsmith.core.errors import InputError, ModelError, SettingsError
from pairsmith.core.model_files import META
from pairsmith.core.model_names import model_revision
from pairsmith.core.paths import size_of
from pairsmith.core.settings import option_name
from pairsmith.data.documents import Document, read_documents
from pairsmith.data.kept_columns import kept_names, kept_schema, refuse_missing_columns
from pairsmith.data.questions import GENERATED_QUESTION, RELABELLED
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.data.squad import open_passages, read_questions
from pairsmith.data.text import finder_revision
from pairsmith.data.text.instructed import CLOSING_QUOTE, QuestionExample
from pairsmith.methods.quip.generators import GeneratorKind, generator_kind, load_question_generator
from pairsmith.methods.quip.options import BATCH_SIZES, CLOZE
from pairsmith.methods.quip.passages import Passage, QuestionGenerator, cut_passages
from pairsmith.runs import (
    Card,
    DatasetFolder,
    FolderWriter,
    Run,
    model_display_name,
    resolve_dtype,
    sources_of,
)
from pairsmith.runs.begun import shard_size_of
from pairsmith.runs.executors import ExecutorChoice
from pairsmith.runs.identity import Identity
from pairsmith.runs.mapped import (
    ProgressScaler,
    RecordShard,
    RowsAndRejects,
    commit_each,
    finished,
    nothing_to_do,
    record_shards,
    shards_left,
)
from pairsmith.runs.ranks import rank_folders
from pairsmith.runs.seeds import stream_key
from pairsmith.runs.storage import JSON, hash_json, write_json
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.questions.reused import EarlierQuestions, TextInput
from pairsmith.steps.questions.settings import AskSettings
from pairsmith.steps.reuse import commit_unchanged, is_complete
from pairsmith.steps.shared import hashes, naming_texts, refuse_sources

_NAMES = {
    "encoder-decoder": "a model with an encoder and a decoder",
    "causal": "a causal language model",
    "cloze": "--model cloze",
}
_UNUSED = {
    "encoder-decoder": {"instruction", "chat", "examples", "shots", "answers"},
    "causal": {"separator", "answers"},
    "cloze": {"instruction", "chat", "examples", "shots", "separator", "decoding", "top_p", "beams", "dtype"},
}
"""The settings that a kind of question generator (Q2, Q6) does not use."""

LIMITS = "sample.json"
"""The file with what ``passage_limits`` found."""

_OF_EVERY_STEP = {"seed", "dtype"}
"""Settings that a recipe may give to all its steps, whether they need them or not."""


def ask(settings: AskSettings, run: Run) -> DatasetFolder:
    """Generate questions on texts; see ``AskSettings``.

    Outputs that are not a new question with an answer become rejects, and so do passages that are too long.
    """
    settings = resolve_dtype(settings, run)
    kind, models = checked_kind(settings), models_of(settings)
    given = {"model": [] if settings.model == CLOZE else settings.model, "examples": settings.examples or []}
    refuse_sources(run, inputs=settings.inputs, reuse=settings.reuse or [], **given)
    refuse_missing_columns(("--keep-column", settings.inputs, settings.keep_column), opened=open_passages)
    count, twice = _counts(settings)
    if twice:
        run.progress.say(f"{twice:,} repeated texts left out; questions are generated once for each text")
    shard_size = shard_size_of(settings, run, count)
    settings = settings.model_copy(update={"shard_size": shard_size})
    earlier, identity = None, identity_of(settings, kind, models)
    if settings.reuse and not is_complete(run, identity):
        earlier = EarlierQuestions.open(settings.reuse, identity)
    shards = -(-count // shard_size)
    writer = FolderWriter.start(
        run,
        step="ask",
        schema=schema_of(settings),
        settings=identity.settings,
        inputs=identity.inputs,
        models=models,
        planned=shards,
    )
    limits = None
    if settings.sample and not all(map(writer.is_done, range(shards))):
        decides = {**identity.settings, **identity.inputs, **models}
        limits = passage_limits(settings, count, decides, run)
    if writer.finished:
        return nothing_to_do(writer, run)
    documents = partial(texts, settings)
    fill: Callable[[RecordShard[Document]], RecordShard[TextInput]] = _without_earlier
    if earlier:
        cutter = load_generator(settings.model_copy(update={"device": META}))
        fill = partial(earlier.filled, partial(_passages, settings, limits, cutter))
        work = partial(_question_rows, settings, limits, cutter)
        kept, every = commit_unchanged(writer, documents, fill, count, shard_size, work, run, unit="texts")
        if every:
            run.progress.say(
                f"{kept:,} of {every:,} passages to do are as in {settings.reuse} and keep their questions"
            )
    remaining, done = shards_left(writer, shards, count, shard_size)
    commit_each(
        writer,
        partial(_load_worker, settings, models, limits),
        map(fill, record_shards(documents, shard_size, remaining)),
        ExecutorChoice.of(settings),
        run,
        title="ask",
        unit="texts",
        done=done,
        total=count,
        model="" if settings.model == CLOZE else settings.model,
    )
    return finished(writer, _card(settings), run)


def identity_of(settings: AskSettings, kind: GeneratorKind, models: Mapping[str, str]) -> Identity:
    """What decides the questions; ``kind`` is that of the generator and ``models`` are its ``models_of``."""
    # In 16-bit formats the batch size changes rounding, and with it the generated text.
    batch = {"batch_size"} if settings.dtype == "float32" or kind == "cloze" else set()
    left_out = {*batch, *_unused(settings, kind)}
    settings = settings.model_copy(update={"batch_size": settings.batch_size or BATCH_SIZES[kind]})
    deciding = {name: value for name, value in settings.deciding().items() if name not in left_out}
    inputs = hashes("inputs", settings.inputs)
    if settings.examples:
        inputs |= hashes("examples", [settings.examples])
    return Identity.of("ask", deciding, inputs, models)


def _counts(settings: AskSettings) -> tuple[int, int]:
    """The number of distinct texts, and how many others repeat one of them."""
    distinct, total = set[int](), 0
    for document in _every(settings):
        total += 1
        distinct.add(stream_key(document.text))
    return len(distinct), total - len(distinct)


def texts(settings: AskSettings) -> Iterator[Document]:
    """The distinct texts, one at a time."""
    seen: set[int] = set()
    for document in _every(settings):
        key = stream_key(document.text)
        if key not in seen:
            seen.add(key)
            yield document


def _without_earlier(shard: RecordShard[Document]) -> RecordShard[TextInput]:
    """The texts of a shard without anything of an earlier run."""
    return RecordShard(shard.number, tuple(map(TextInput, shard.records)))


def _every(settings: AskSettings) -> Iterator[Document]:
    """All texts, each with the number of its input as its group."""
    remedy, keep = naming_texts("column"), _kept(settings)
    for number, source in enumerate(settings.inputs):
        for document in read_documents(
            open_passages(source), column=settings.column, keep=keep, remedy=remedy
        ):
            yield document._replace(group=str(number))


def _kept(settings: AskSettings) -> dict[str, str]:
    """The name under which each column is kept, which is never that of a column that ``relabel`` adds."""
    return kept_names(settings.keep_column, RELABELLED.names)


def schema_of(settings: AskSettings) -> pa.Schema:
    """The columns of the questions."""
    return kept_schema(GENERATED_QUESTION, _kept(settings))


def passage_limits(settings: AskSettings, count: int, identity: Mapping[str, JSON], run: Run) -> list[int]:
    """The highest ``_key`` of the passages that are drawn from each input: ``sample`` of them, or all (Q1).

    They are written into the run's folder with the ``identity`` of the work, as it takes long to cut many
    texts. ``count`` is the number of texts.
    """
    assert settings.sample is not None
    of = hash_json(dict(identity))
    # Of the ranks of an array job, those that start later find what an earlier one has drawn.
    for folder in (run.out, run.whole, *rank_folders(run.whole)):
        file = folder / LIMITS
        if size_of(file) is not None and (record := json.loads(file.read_bytes()))["of"] == of:
            known: list[int] = record["limits"]
            return known
    # Passages are cut by its tokenizer and its limit, without its weights.
    generator = load_generator(settings.model_copy(update={"device": META}))
    keys = [array("Q") for _ in settings.inputs]
    with run.progress.task("draw passages", count, "texts") as bar:
        for document in texts(settings):
            (passages,), _ = cut_passages(generator, [document])
            keys[int(document.group)].extend(_key(settings.seed, passage) for passage in passages)
            bar.advance(1)
    limits = [2**64 - 1] * len(keys)
    for number, (source, some) in enumerate(zip(settings.inputs, keys, strict=True)):
        if len(some) < settings.sample:
            run.progress.say(
                f"{source} has {len(some):,} passages, fewer than --sample {settings.sample:,}; all are used"
            )
        else:
            limits[number] = int(np.sort(np.array(some, np.uint64))[settings.sample - 1])
    write_json(run.out / LIMITS, {"of": of, "limits": tuple(limits)})
    return limits


def _key(seed: int, passage: Passage) -> int:
    """Passages are drawn in the order of these numbers."""
    return stream_key(seed, "draw passages", passage.id)


def _load_worker(
    settings: AskSettings, models: Mapping[str, str], limits: Sequence[int] | None, worker: int
) -> Work[RecordShard[TextInput], RowsAndRejects]:
    """Load the question generator; what is returned makes the rows and rejects of a shard of texts."""
    if models_of(settings) != models:
        raise ModelError(f"model {settings.model}: worker {worker} finds different weights under this name")
    return partial(_question_rows, settings, limits, load_generator(settings))


def _question_rows(
    settings: AskSettings,
    limits: Sequence[int] | None,
    generator: QuestionGenerator,
    shard: RecordShard[TextInput],
    advance: Advance,
) -> RowsAndRejects:
    """The rows and rejects of a shard, by passage; the first rejects are passages that are too long."""
    of_texts, lost = _passages(settings, limits, generator, [entry.document for entry in shard.records])
    passages = [
        entry.earlier.get(passage.id, passage)
        for entry, some in zip(shard.records, of_texts, strict=True)
        for passage in some
    ]
    new = [passage for passage in passages if passage.is_new]
    share = ProgressScaler(len(shard.records), len(new) * settings.tries, advance)
    generator.generate(new, share)
    share.finish()
    rows = [question.columns() for passage in passages for question in passage.questions.values()]
    rejects = [*lost, *(reject for passage in passages for reject in passage.rejects)]
    return pa.Table.from_pylist(rows, schema=schema_of(settings)), to_table(rejects, REJECT)


def _passages(
    settings: AskSettings,
    limits: Sequence[int] | None,
    generator: QuestionGenerator,
    documents: Sequence[Document],
) -> tuple[list[list[Passage]], list[Reject]]:
    """The passages of each text that are drawn, or all, and rejects for those that are too long (Q1)."""
    of_texts, lost = cut_passages(generator, documents)
    if limits is None:
        return of_texts, lost
    drawn = [
        [passage for passage in some if _key(settings.seed, passage) <= limits[int(document.group)]]
        for document, some in zip(documents, of_texts, strict=True)
    ]
    return drawn, lost


def checked_kind(settings: AskSettings) -> GeneratorKind:
    """The kind of question generator (Q2, Q6) that the model is; it has to use all given settings."""
    kind = generator_kind(settings.model)
    for name in sorted(_unused(settings, kind) - _OF_EVERY_STEP):
        if getattr(settings, name) != AskSettings.model_fields[name].default:
            way = f" and --decoding {settings.decoding}" if kind != "cloze" else ""
            raise SettingsError(f"{option_name(name)} has no effect with {_NAMES[kind]}{way}; leave it out")
    return kind


def _unused(settings: AskSettings, kind: GeneratorKind) -> set[str]:
    if kind == "cloze":
        return _UNUSED[kind]
    if settings.decoding == "nucleus":
        return _UNUSED[kind] | {"beams"}
    # Of searches the seed decides only which passages are drawn.
    return _UNUSED[kind] | {"top_p", "tries"} | (set() if settings.sample else {"seed"})


def models_of(settings: AskSettings) -> dict[str, str]:
    """The revisions that identify the question generator."""
    if settings.model == CLOZE:
        return {"model": CLOZE, **finder_revision(settings.answers)}
    return {"model": model_revision(settings.model)}


def load_generator(settings: AskSettings) -> QuestionGenerator:
    """Load the question generator, after a check that the settings suit its kind."""
    checked_kind(settings)
    options = replace(settings.options, examples=shown_examples(settings))
    return load_question_generator(settings.model, options, device=settings.device, dtype=settings.dtype)


def shown_examples(settings: AskSettings) -> tuple[QuestionExample, ...]:
    """The first questions of ``examples`` that contain no quotation mark, each with its first answer."""
    if settings.examples is None:
        return ()
    examples = (
        QuestionExample(question.context, question.answers[0].text.strip(), question.question)
        for question in read_questions(settings.examples)
    )
    shown = tuple(
        islice(
            (example for example in examples if CLOSING_QUOTE not in example.answer + example.question),
            settings.shots,
        )
    )
    if len(shown) < settings.shots:
        raise InputError(
            f"{settings.examples} has {len(shown)} questions without quotation marks, fewer than --shots "
            f"{settings.shots}"
        )
    return shown


def _card(settings: AskSettings) -> Card:
    return Card(
        title="Questions about passages",
        description="Passages of whole sentences, and "
        + (
            "noisy questions made from their sentences by taking out a name or number."
            if settings.model == CLOZE
            else f"questions about them generated by {model_display_name(settings.model)}."
        ),
        columns={
            "context": "the passage",
            "written": "the answer, as it was written before the question",
            "answers": "where the answer occurs in the passage; empty if it does not",
        }
        | {name: f"the column {column} of the texts" for column, name in _kept(settings).items()},
        provenance="The questions and answers were made by a program; no person has checked them.",
        citations=(QUIP,),
        licence="The rights in the passages apply.",
        sources=sources_of(models=[] if settings.model == CLOZE else [settings.model], data=settings.inputs),
    )
