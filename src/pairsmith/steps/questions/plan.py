"""The cost estimate of ``ask``, extrapolated from a few texts about which questions are generated."""

import json
import time
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from pairsmith.core.errors import InputError
from pairsmith.core.model_files import META
from pairsmith.data.documents import Document
from pairsmith.data.kept_columns import refuse_missing_columns
from pairsmith.data.questions import GeneratedQuestion
from pairsmith.data.schemas import Reject
from pairsmith.data.squad import open_passages
from pairsmith.methods.quip.causal_generator import CausalGenerator
from pairsmith.methods.quip.passages import QuestionGenerator, cut_passages
from pairsmith.methods.quip.sequence_generator import SequenceGenerator
from pairsmith.models.added_tokens import add_marker
from pairsmith.models.heads import writes_as
from pairsmith.models.question_generator import GENERATED_ANSWER_TOKENS, GENERATED_QUESTION_TOKENS
from pairsmith.models.text_generator import load_text_generator
from pairsmith.runs.estimate import Before, Estimate
from pairsmith.runs.mapped import RecordShard
from pairsmith.runs.seeds import stream_key
from pairsmith.steps.planning import evenly_spaced, read_first, sharded_estimate, timed
from pairsmith.steps.questions.ask import (
    checked_kind,
    identity_of,
    load_generator,
    models_of,
    schema_of,
    texts,
)
from pairsmith.steps.questions.reused import EarlierQuestions
from pairsmith.steps.questions.settings import AskSettings

_TRIED = 8
"""About the number of texts on which questions are generated."""


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

    def read(source: str, seen: set[int], reused: bool) -> Iterator[Document]:
        for document in texts(settings.model_copy(update={"inputs": [source]})):
            key = stream_key(document.text)
            if key not in seen and (earlier is not None and earlier.has(document)) == reused:
                seen.add(key)
                yield document

    new, new_count = read_first(settings.inputs, partial(read, seen=set(), reused=False), before, _TRIED)
    old, old_count = list[Document](), 0
    if earlier:
        old, old_count = read_first(settings.inputs, partial(read, seen=set(), reused=True), before, _TRIED)
    if not (new or old):
        raise InputError(f"{', '.join(settings.inputs)}: there are no texts to ask about")
    # 1. Load the generator, and generate questions on new texts, if there are any.
    one_try = settings.model_copy(update={"tries": 1} | ({} if new else {"device": META}))
    generator = _untrained(one_try) if untrained else load_generator(one_try)
    documents = evenly_spaced(new or old, _TRIED)
    loading = time.monotonic() - started
    _, cutting, (of_texts, _) = timed(lambda: partial(cut_passages, generator), documents)
    passages = [passage for of_text in of_texts for passage in of_text] if new else []
    begun = time.monotonic()
    generator.generate(passages)
    generating = (time.monotonic() - begun) / len(documents)
    if untrained and isinstance(generator, CausalGenerator):
        rejects = [reject for passage in passages for reject in passage.rejects]
        generating *= _complete_factor(rejects, sum(passage.outputs for passage in passages))
    # 2. Extrapolate to all texts, of which fewer are asked about if passages are sampled.
    if earlier or settings.sample:
        loading += cutting * (new_count + old_count)  # to look for earlier rows, or to sample passages
    text_count = float(new_count)
    if settings.sample:
        most = settings.sample * len(settings.inputs)
        text_count *= min(1.0, most * len(documents) / max(1, len(passages) * new_count))
    questions = [question for passage in passages for question in passage.questions.values()]
    if untrained or not questions:
        questions = [
            _stand_in(passage.text, number) for passage in passages for number in range(settings.questions)
        ]
    reused: list[GeneratedQuestion] = []
    if earlier:  # the questions that the earlier run generated for the texts in ``old``
        shard = earlier.filled(partial(cut_passages, generator), RecordShard(0, tuple(old)))
        of_old = (passage for entry in shard.records for passage in entry.earlier.values())
        reused = [question for passage in of_old for question in passage.questions.values()]
    sample = [question.columns() for question in questions or reused]
    question_count = round(len(questions) * text_count / len(documents))
    all_texts = new_count + old_count
    return sharded_estimate(
        pa.Table.from_pylist(sample, schema=schema_of(settings)),
        question_count + round(len(reused) * old_count / max(1, len(old))),
        -(-all_texts // (settings.shard_size or settings.shard_bounds.pick(all_texts))),
        loading=loading,
        shared=generating * text_count,
        tokens=question_count * 20,
    )


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
