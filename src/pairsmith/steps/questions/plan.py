"""Cost estimates of ``ask`` and ``relabel``, extrapolated from a sample that is processed."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from pairsmith.core.errors import InputError
from pairsmith.core.model_files import META
from pairsmith.data.documents import Document
from pairsmith.data.kept_columns import refuse_missing_columns
from pairsmith.data.questions import GeneratedQuestion, read_generated_questions
from pairsmith.data.schemas import Reject
from pairsmith.data.splits import to_train_on
from pairsmith.data.squad import open_passages, open_questions
from pairsmith.methods.quip.causal_generator import CausalGenerator
from pairsmith.methods.quip.method import label_questions
from pairsmith.methods.quip.passages import QuestionGenerator, cut_passages
from pairsmith.methods.quip.sequence_generator import SequenceGenerator
from pairsmith.models.heads import writes_as
from pairsmith.models.question_generator import GENERATED_ANSWER_TOKENS, GENERATED_QUESTION_TOKENS
from pairsmith.models.reader import load_reader
from pairsmith.models.text_generator import add_marker, load_text_generator
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.mapped import RecordShard
from pairsmith.steps.planning import counted, evenly_spaced, first_items, sharded, timed
from pairsmith.steps.questions.ask import (
    checked_kind,
    identity_of,
    load_generator,
    models_of,
    schema_of,
    texts,
)
from pairsmith.steps.questions.relabel import kept, relabelled_rows
from pairsmith.steps.questions.reused import EarlierQuestions
from pairsmith.steps.questions.settings import AskSettings, RelabelSettings
from pairsmith.steps.shared import load_options

CALIBRATION_TEXTS = 8
CALIBRATION_QUESTIONS = 64
MOST_QUESTIONS = 2_000
"""Largest number of questions of each source from which the sample is drawn."""


def plan_ask(settings: AskSettings, before: Before) -> Estimate:
    """Estimate ``ask``: generate questions on a sample of the texts.

    An untrained model writes up to the token limit, which is more than a trained one does. Texts whose
    questions the folder of ``reuse`` has take only the time to cut them into passages. If passages are
    sampled, all are estimated as new.
    """
    started = time.monotonic()
    refuse_missing_columns(("--keep-column", settings.inputs, settings.keep_column), opened=open_passages)
    untrained = settings.model in before
    earlier = None
    if settings.reuse and not (untrained or settings.sample):
        identity = identity_of(settings, checked_kind(settings), models_of(settings))
        earlier = EarlierQuestions.open(settings.reuse, identity)
    # 1. Load the generator, and cut the first texts into passages.
    new, known = _first_texts(settings, before, earlier)
    documents, all_texts = new.first or known.first, new.count + known.count
    once = settings.model_copy(update={"tries": 1} | ({} if new.first else {"device": META}))
    generator = _untrained(once) if untrained else load_generator(once)
    of_texts, _ = cut_passages(generator, documents)
    passages = [passage for text_passages in of_texts[: len(new.first)] for passage in text_passages]
    reused = _reused_questions(earlier, generator, known.first)
    loading = time.monotonic() - started
    # 2. Time the cutting and the generation.
    cutting = _seconds(lambda: cut_passages(generator, documents)) / len(documents)
    generating = _seconds(lambda: generator.generate(passages)) / len(documents)
    if untrained and isinstance(generator, CausalGenerator):
        rejects = [reject for passage in passages for reject in passage.rejects]
        generating *= _complete_factor(rejects, sum(passage.outputs for passage in passages))
    # 3. Extrapolate to all texts.
    if earlier or settings.sample:
        loading += cutting * all_texts  # to look for earlier rows, or to sample passages
    text_count = float(new.count)
    if settings.sample:
        most = settings.sample * len(settings.inputs)
        text_count *= min(1.0, most * len(documents) / max(1, len(passages) * new.count))
    questions = [question for passage in passages for question in passage.questions.values()]
    if untrained or not questions:
        questions = [
            _stand_in(passage.text, number) for passage in passages for number in range(settings.questions)
        ]
    rows = [question.columns() for question in questions or reused]
    sample = pa.Table.from_pylist(rows, schema=schema_of(settings))
    new_count = round(len(questions) * text_count / len(documents))
    question_count = new_count + round(len(reused) * known.count / max(1, len(known.first)))
    return sharded(
        loading=loading,
        shared=generating * text_count,
        size=round(sample.nbytes * question_count / max(1, len(sample))),
        rows=question_count,
        shards=-(-all_texts // (settings.shard_size or settings.shard_bounds.pick(all_texts))),
        tokens=new_count * 20,
        sample=sample,
    )


def _seconds(work: Callable[[], object]) -> float:
    """How many seconds the work takes."""
    begun = time.monotonic()
    work()
    return time.monotonic() - begun


@dataclass(slots=True)
class _Texts:
    """The first texts of a set, and the number of all texts in it."""

    first: list[Document] = field(default_factory=list)
    count: int = 0


def _first_texts(
    settings: AskSettings, before: Before, earlier: EarlierQuestions | None
) -> tuple[_Texts, _Texts]:
    """The texts that are new, and those whose questions ``earlier`` has.

    The first texts are taken from all sources that exist, and from the sample of each earlier step's output.
    """
    sides = _Texts(), _Texts()
    existing = [source for source in settings.inputs if source not in before]
    for sources in (existing, *([source] for source in settings.inputs if source in before)):
        numbers = [0, 0]
        for document in texts(settings.model_copy(update={"inputs": sources})):
            side = int(earlier is not None and earlier.has(document))
            if numbers[side] < CALIBRATION_TEXTS:
                sides[side].first.append(document)
            numbers[side] += 1
        for side, number in enumerate(numbers):
            sides[side].count += counted(sources[0], before, number) if sources else 0
    return sides


def _reused_questions(
    earlier: EarlierQuestions | None, generator: QuestionGenerator, documents: Sequence[Document]
) -> list[GeneratedQuestion]:
    """The questions that an earlier run generated for these texts."""
    if earlier is None:
        return []
    shard = earlier.filled(partial(cut_passages, generator), RecordShard(0, tuple(documents)))
    passages = [passage for entry in shard.records for passage in entry.earlier.values()]
    return [question for passage in passages for question in passage.questions.values()]


def _complete_factor(rejects: Sequence[Reject], drawn: int) -> float:
    """The factor by which the time grows if each of the ``drawn`` answers is followed by a question."""
    question_count = drawn - sum(not json.loads(reject.row)["question"] for reject in rejects)
    share = question_count / max(1, drawn)
    return (GENERATED_ANSWER_TOKENS + GENERATED_QUESTION_TOKENS) / (
        GENERATED_ANSWER_TOKENS + share * GENERATED_QUESTION_TOKENS
    )


def _untrained(settings: AskSettings) -> QuestionGenerator:
    if writes_as(settings.model) == "decoder":
        return load_generator(settings)
    model = load_text_generator(
        settings.model, device=settings.device, dtype=settings.dtype, fresh_decoder=True
    )
    add_marker(model, settings.separator, written=True)
    return SequenceGenerator(model, settings.options)


def _stand_in(text: str, number: int) -> GeneratedQuestion:
    """A question of typical length on a passage, with one of the passage's words as its answer."""
    word = text.split()[number % len(text.split())]
    span = text.index(word), text.index(word) + len(word)
    question = "Who was it that did this in the year before?"
    return GeneratedQuestion(str(number), text, question, word, span, span)


def plan_relabel(settings: RelabelSettings, before: Before) -> Estimate:
    """Estimate ``relabel``: answer a sample of the questions."""
    refuse_missing_columns(("--keep-column", settings.data, settings.keep_column), opened=open_questions)
    questions, count = list[GeneratedQuestion](), 0
    for source in settings.data:
        source_questions = read_generated_questions(to_train_on(source, "answered"), kept(settings))
        first, number = first_items(source_questions, MOST_QUESTIONS)
        questions += first
        count += counted(source, before, number)
    if not questions:
        raise InputError(f"{', '.join(settings.data)}: there are no questions to answer")
    untrained = settings.model in before

    def load() -> Callable[[Sequence[GeneratedQuestion]], list[GeneratedQuestion]]:
        teacher = load_reader(
            settings.model, fresh_head=untrained, perceptrons=True, **load_options(settings)
        )
        return partial(label_questions, teacher=teacher, top=settings.top, batch_tokens=settings.batch_tokens)

    sample = evenly_spaced(questions, CALIBRATION_QUESTIONS)
    loading, per_question, labelled = timed(load, sample, few=4)
    rows = relabelled_rows([question for question in labelled if question.answer], settings)
    return sharded(
        loading=loading,
        shared=per_question * count,
        size=rows.nbytes * count // len(sample),
        rows=count,
        shards=-(-count // (settings.shard_size or settings.shard_bounds.pick(count))),
        sample=rows,
    )
