"""The step ``ask``: generate questions on passages (Q1, Q2).

texts -> passages of whole sentences -> a random sample of the passages -> generated answers and questions ->
distinct questions -> rows
"""

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import pyarrow as pa

from pairsmith.core.citations import QUIP
from pairsmith.core.errors import InputError, ModelError, SettingsError, counted
from pairsmith.core.model_files import META
from pairsmith.core.model_names import CLOZE, model_revision
from pairsmith.core.paths import size_of
from pairsmith.core.settings import option_name
from pairsmith.data.documents import Document, read_documents
from pairsmith.data.kept_columns import kept_schema, refuse_missing_columns
from pairsmith.data.questions import GENERATED_QUESTION
from pairsmith.data.schemas import REJECT, Reject, to_table
from pairsmith.data.squad import open_passages, read_questions
from pairsmith.data.text import finder_revision
from pairsmith.data.text.instructed import CLOSING_QUOTE, QuestionExample
from pairsmith.methods.quip.generators import GeneratorKind, generator_kind, load_question_generator
from pairsmith.methods.quip.options import BATCH_SIZES
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
    Shards,
    commit_each,
    equal_shards,
    finished,
    nothing_to_do,
    record_shards,
)
from pairsmith.runs.seeds import stream_key
from pairsmith.runs.storage import JSON, hash_json, write_json
from pairsmith.runs.work import Advance, Work
from pairsmith.steps.questions.relabel import kept
from pairsmith.steps.questions.reused import EarlierQuestions
from pairsmith.steps.questions.settings import AskSettings
from pairsmith.steps.reuse import ShardWithEarlier, commit_kept, is_complete, without_earlier
from pairsmith.steps.shared import hashes, naming_texts, refuse_sources

ShardOfTexts = ShardWithEarlier[Document, Passage]
"""A shard of texts, each with its passages that have questions of an earlier run."""

_KIND_NAMES = {
    "encoder-decoder": "a model with an encoder and a decoder",
    "causal": "a causal language model",
    "cloze": "--model cloze",
}
_UNUSED = {
    "encoder-decoder": {"instruction", "chat", "examples", "shots", "answers"},
    "causal": {"separator", "answers"},
    "cloze": {"instruction", "chat", "examples", "shots", "separator", "decoding", "top_p", "beams", "dtype"},
}
"""The settings that have no effect, by the kind of question generator (Q2, Q6)."""

LIMITS = "sample.json"
"""The file in which ``passage_limits`` saves its result."""

_OF_EVERY_STEP = {"seed", "dtype"}
"""Settings that a recipe may give to all its steps, even to those on which they have no effect."""


def ask(settings: AskSettings, run: Run) -> DatasetFolder:
    """Generate questions on texts; see ``AskSettings`` for the settings.

    Generated texts that are not a new question with an answer become rejects, as do passages that are too
    long.
    """
    settings = resolve_dtype(settings, run)
    kind, models = checked_kind(settings), models_of(settings)
    refuse_sources(
        run,
        inputs=settings.inputs,
        reuse=settings.reuse,
        model=None if settings.model == CLOZE else settings.model,
        examples=settings.examples,
    )
    refuse_missing_columns(("--keep-column", settings.inputs, settings.keep_column), opened=open_passages)
    shown_examples(settings)  # too few examples are an error before the folder exists
    count, repeated, blank = _counts(settings)
    if blank:
        run.progress.say(f"{counted(blank, 'blank texts')} left out")
    if repeated:
        run.progress.say(
            f"{counted(repeated, 'repeated texts')} left out; questions are generated once for each text"
        )
    shard_size = shard_size_of(settings, run, count)
    settings = settings.model_copy(update={"shard_size": shard_size})
    earlier, identity = None, identity_of(settings, kind, models)
    if settings.reuse and not is_complete(run, identity):
        earlier = EarlierQuestions.open(settings.reuse, identity)
    sizes = equal_shards(count, shard_size)
    writer = FolderWriter.start(run, identity, schema_of(settings), planned=len(sizes))
    limits = None
    if settings.sample and not all(map(writer.is_done, range(len(sizes)))):
        decides = {**identity.settings, **identity.inputs, **models}
        limits = passage_limits(settings, count, decides, run)
    if writer.finished:
        return nothing_to_do(writer)
    fill: Callable[[RecordShard[Document]], ShardOfTexts] = without_earlier

    def read(numbers: Sequence[int]) -> Iterator[ShardOfTexts]:
        return map(fill, record_shards(partial(texts, settings), shard_size, numbers))

    shards = Shards(read, sizes, "texts")
    if earlier is not None and settings.reuse:
        cutter = load_generator(settings.model_copy(update={"device": META}))
        writer_of_kept = _QuestionWriter(settings, limits, cutter)
        fill = partial(earlier.filled, writer_of_kept.passages)
        commit_kept(
            writer,
            shards,
            writer_of_kept.write,
            path=settings.reuse,
            items="passages",
            rows="questions",
        )
    commit_each(
        writer,
        shards,
        partial(_load_worker, settings, models, limits),
        ExecutorChoice.of(settings),
        title="ask",
        model="" if settings.model == CLOZE else settings.model,
    )
    return finished(writer, _card(settings))


def identity_of(settings: AskSettings, kind: GeneratorKind, models: Mapping[str, str]) -> Identity:
    """The settings, inputs and models that decide the questions.

    ``kind`` is the kind of question generator, and ``models`` are its revisions (``models_of``).
    """
    # In 16-bit formats the batch size changes rounding, and with it the generated text.
    batch = {"batch_size"} if settings.dtype == "float32" or kind == "cloze" else set()
    left_out = {*batch, *_unused(settings, kind)}
    settings = settings.model_copy(update={"batch_size": settings.batch_size or BATCH_SIZES[kind]})
    deciding = {name: value for name, value in settings.deciding().items() if name not in left_out}
    inputs = hashes("inputs", settings.inputs) | hashes("examples", settings.examples)
    return Identity.of("ask", deciding, inputs, models)


def _counts(settings: AskSettings) -> tuple[int, int, int]:
    """The number of distinct texts, of texts that repeat one of them, and of rows with a blank text."""
    distinct, total, blank = set[int](), 0, list[str]()
    for document in _all_texts(settings, blank.append):
        total += 1
        distinct.add(stream_key(document.text))
    return len(distinct), total - len(distinct), len(blank)


def texts(settings: AskSettings) -> Iterator[Document]:
    """Yield the distinct texts."""
    seen: set[int] = set()
    for document in _all_texts(settings):
        key = stream_key(document.text)
        if key not in seen:
            seen.add(key)
            yield document


def _all_texts(
    settings: AskSettings, on_blank: Callable[[str], object] = lambda _: None
) -> Iterator[Document]:
    """Yield all texts; the group of a text is the number of its source among ``inputs``.

    ``on_blank`` is called with the location of each row with a blank text.
    """
    remedy, keep = naming_texts("column"), kept(settings)
    for number, source in enumerate(settings.inputs):
        for document in read_documents(
            open_passages(source), column=settings.column, keep=keep, remedy=remedy, on_blank=on_blank
        ):
            yield document._replace(group=str(number))


def schema_of(settings: AskSettings) -> pa.Schema:
    """The schema of the questions, with the columns to keep."""
    return kept_schema(GENERATED_QUESTION, kept(settings))


def passage_limits(settings: AskSettings, count: int, identity: Mapping[str, JSON], run: Run) -> list[int]:
    """The highest ``_sampling_key`` of the sampled passages, for each of the inputs (Q1).

    The sample of an input consists of the ``settings.sample`` passages with the lowest keys, or of all if
    there are fewer. The limits are saved in the run's folder, as it takes long to cut many texts into
    passages; ``identity``, the settings, inputs and models of the run, is saved with them. ``count`` is the
    number of texts.
    """
    assert settings.sample is not None
    identity_hash = hash_json(dict(identity))
    # Later ranks of an array job read the limits that an earlier rank has saved.
    for folder in run.folders_of_job():
        file = folder / LIMITS
        if size_of(file) is not None and (record := json.loads(file.read_bytes()))["of"] == identity_hash:
            saved: list[int] = record["limits"]
            return saved
    # To cut passages, only the generator's tokenizer and length limit are needed, not its weights.
    generator = load_generator(settings.model_copy(update={"device": META}))
    keys = [array("Q") for _ in settings.inputs]
    with run.progress.task("draw passages", count, "texts") as bar:
        for document in texts(settings):
            (passages,), _ = cut_passages(generator, [document])
            keys[int(document.group)].extend(_sampling_key(settings.seed, passage) for passage in passages)
            bar.advance(1)
    limits = [2**64 - 1] * len(keys)
    for number, (source, source_keys) in enumerate(zip(settings.inputs, keys, strict=True)):
        if len(source_keys) < settings.sample:
            run.progress.say(
                f"{source} has {counted(len(source_keys), 'passages')}, fewer than --sample "
                f"{settings.sample:,}; all are used"
            )
        else:
            limits[number] = int(np.sort(np.array(source_keys, np.uint64))[settings.sample - 1])
    write_json(run.out / LIMITS, {"of": identity_hash, "limits": tuple(limits)})
    return limits


def _sampling_key(seed: int, passage: Passage) -> int:
    """A pseudo-random number of a passage; the passages with the lowest numbers are sampled."""
    return stream_key(seed, "draw passages", passage.id)


def _load_worker(
    settings: AskSettings, models: Mapping[str, str], limits: Sequence[int] | None, worker: int
) -> Work[ShardOfTexts, RowsAndRejects]:
    """Load the question generator; returns the function that makes a shard's rows and rejects."""
    if models_of(settings) != models:
        raise ModelError(f"model {settings.model}: worker {worker} finds different weights under this name")
    return _QuestionWriter(settings, limits, load_generator(settings)).write


@dataclass(frozen=True, slots=True)
class _QuestionWriter:
    """Cuts texts into passages, and writes questions on those that are sampled.

    ``limits`` are those of ``passage_limits``; None if all passages are asked about.
    """

    settings: AskSettings
    limits: Sequence[int] | None
    generator: QuestionGenerator

    def passages(self, documents: Sequence[Document]) -> tuple[list[list[Passage]], list[Reject]]:
        """The passages of each text to ask about, and rejects for those that are too long (Q1)."""
        of_texts, too_long = cut_passages(self.generator, documents)
        if self.limits is None:
            return of_texts, too_long
        sampled = [
            [p for p in of_text if _sampling_key(self.settings.seed, p) <= self.limits[int(document.group)]]
            for document, of_text in zip(documents, of_texts, strict=True)
        ]
        return sampled, too_long

    def write(self, shard: ShardOfTexts, advance: Advance) -> RowsAndRejects:
        """The rows and rejects of a shard, sorted by passage.

        Rejects for passages that are too long come first. Passages of an earlier run keep their questions.
        """
        of_texts, too_long = self.passages([entry.record for entry in shard.records])
        passages = [
            entry.earlier.get(passage.id, passage)
            for entry, of_text in zip(shard.records, of_texts, strict=True)
            for passage in of_text
        ]
        new = [passage for passage in passages if passage.is_new]
        scaler = ProgressScaler(len(shard.records), len(new) * self.settings.tries, advance)
        self.generator.generate(new, scaler)
        scaler.finish()
        rows = [question.columns() for passage in passages for question in passage.questions.values()]
        rejects = [*too_long, *(reject for passage in passages for reject in passage.rejects)]
        return pa.Table.from_pylist(rows, schema=schema_of(self.settings)), to_table(rejects, REJECT)


def checked_kind(settings: AskSettings) -> GeneratorKind:
    """The model's kind of question generator (Q2, Q6).

    Raises:
        SettingsError: a setting is given that has no effect with this kind.
    """
    kind = generator_kind(settings.model)
    for name in sorted(_unused(settings, kind) - _OF_EVERY_STEP):
        if getattr(settings, name) != AskSettings.model_fields[name].default:
            decoding = f" and --decoding {settings.decoding}" if kind != "cloze" else ""
            generator = f"{_KIND_NAMES[kind]}{decoding}"
            raise SettingsError(f"{option_name(name)} has no effect with {generator}; leave it out")
    return kind


def _unused(settings: AskSettings, kind: GeneratorKind) -> set[str]:
    if kind == "cloze":
        return _UNUSED[kind]
    if settings.decoding == "nucleus":
        return _UNUSED[kind] | {"beams"}
    # Beam search is deterministic: the seed only decides which passages are sampled.
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
    """The questions of ``examples`` to show to the model, each with its first answer.

    These are the first ``shots`` questions such that neither question nor answer has a quotation mark.
    """
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
            f"{settings.examples} has {counted(len(shown), 'questions')} without quotation marks, fewer than "
            f"--shots {settings.shots}; give more examples or a smaller --shots"
        )
    return shown


def _card(settings: AskSettings) -> Card:
    return Card(
        title="Questions about passages",
        description="Passages of whole sentences, each with "
        + (
            "noisy questions made from its sentences by taking out a name or number."
            if settings.model == CLOZE
            else f"questions that `{model_display_name(settings.model)}` generated, and their answers."
        ),
        columns={
            "context": "the passage",
            "written": "the answer, as it was written before the question",
            "answers": "the answer and the characters at which it starts; empty if it is not in the passage",
        },
        kept={name: f"the column {column} of the texts" for column, name in kept(settings).items()},
        provenance="The questions and answers were made by a program; no person has checked them.",
        citations=(QUIP,),
        licence="The rights in the passages apply.",
        sources=sources_of(models=[] if settings.model == CLOZE else [settings.model], data=settings.inputs),
    )
