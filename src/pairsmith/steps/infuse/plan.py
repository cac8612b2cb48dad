"""Cost estimates of ``ask`` and ``relabel``: a sample is processed, timed and extrapolated."""

import json
import time
from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa

from pairsmith.core.errors import InputError
from pairsmith.core.model_names import MINILM
from pairsmith.data.questions import ASKED, AskedQuestion, asked_in, read_asked
from pairsmith.data.schemas import Reject
from pairsmith.data.splits import to_train_on
from pairsmith.methods.quip.causal_generator import CausalGenerator
from pairsmith.methods.quip.passages import QuestionGenerator, cut
from pairsmith.methods.quip.sequence_generator import SequenceGenerator
from pairsmith.models.heads import writes_as
from pairsmith.models.language.loading import load_model
from pairsmith.models.question_generator import ANSWER_TOKENS, QUESTION_TOKENS
from pairsmith.models.reader import load_reader
from pairsmith.models.summarizer import add_marker, load_summarizer
from pairsmith.models.teacher import predict_spans
from pairsmith.runs.estimate import FOLDER_BYTES, SHARD_BYTES, Before, Estimate, peak_memory
from pairsmith.steps.infuse.ask import load_generator, texts
from pairsmith.steps.infuse.relabel import relabelled
from pairsmith.steps.infuse.settings import AskSettings, RelabelSettings

CALIBRATION_TEXTS = 8
CALIBRATION_QUESTIONS = 64


SOME = 2_000
"""Questions in the sample of a source."""


def some_asked(sources: Sequence[str], before: Before) -> tuple[list[AskedQuestion], int]:
    """A sample of the questions of all sources, existing or from earlier steps, and the number of all."""
    found: list[AskedQuestion] = []
    count = 0
    for source in sources:
        earlier = before.get(source)
        if earlier is not None and earlier.sample is not None:
            rows = ((source, row) for row in earlier.sample.to_pylist())
            found += islice(asked_in(rows), SOME)
            count += sum(earlier.rows.values())
        else:
            every: Iterator[AskedQuestion] = read_asked(source)
            some = list(islice(every, SOME))
            found += some
            count += len(some) + sum(1 for _ in every)
    return found, count


def plan_ask(settings: AskSettings, before: Before, base: str = MINILM) -> Estimate:
    """Estimate ``ask`` on some texts; ``base`` stands in for a question generator not yet trained.

    Untrained, it writes up to the token limit, which is more than a trained one does.
    """
    started = time.monotonic()
    every = texts(settings)
    some = list(islice(every, CALIBRATION_TEXTS))
    count = len(some) + sum(1 for _ in every)
    untrained = settings.model in before
    once = settings.model_copy(update={"tries": 1})
    asker = _untrained(once, base) if untrained else load_generator(once)
    of_texts, _ = cut(asker, some)
    passages = [passage for each in of_texts for passage in each]
    loading = time.monotonic() - started
    begun = time.monotonic()
    rejects = asker.generate(passages)
    shared = (time.monotonic() - begun) * count / len(some)
    if untrained and isinstance(asker, CausalGenerator):
        shared *= _were_all_asked(rejects, sum(passage.drawn for passage in passages))
    rows = [row for passage in passages for row in passage.found.values()]
    if untrained or not rows:
        rows = [
            _stand_in(passage.text, number) for passage in passages for number in range(settings.questions)
        ]
    sample = pa.Table.from_pylist(rows, schema=ASKED)
    pieces = -(-count // settings.shard_size)
    made = len(rows) * count // len(some)
    return Estimate(
        seconds=loading + shared,
        memory=peak_memory(),
        disk=sample.nbytes * count // len(some) + FOLDER_BYTES + pieces * SHARD_BYTES,
        rows={"train": made},
        tokens=made * 20,
        shared=shared,
        shards=pieces,
        worker_memory=peak_memory(),
        sample=sample,
    )


def _were_all_asked(rejects: Sequence[Reject], drawn: int) -> float:
    """The factor on the time if all sampled answers got a question, not only the complete ones."""
    asked = drawn - sum(not json.loads(each.row)["question"] for each in rejects)
    share = asked / max(1, drawn)
    return (ANSWER_TOKENS + QUESTION_TOKENS) / (ANSWER_TOKENS + share * QUESTION_TOKENS)


def _untrained(settings: AskSettings, base: str) -> QuestionGenerator:
    if writes_as(base) == "decoder":
        return CausalGenerator(
            load_model(base, device=settings.device, dtype=settings.dtype), settings.options
        )
    model = load_summarizer(base, device=settings.device, dtype=settings.dtype, fresh_decoder=True)
    add_marker(model, settings.separator, written=True)
    return SequenceGenerator(model, settings.options)


def _stand_in(text: str, number: int) -> dict[str, object]:
    """A row with a question of typical length."""
    word = text.split()[number % len(text.split())]
    answers = {"text": [word], "answer_start": [text.index(word)]}
    question = "Who was it that did this in the year before?"
    return {"id": str(number), "context": text, "question": question, "written": word, "answers": answers}


def plan_relabel(settings: RelabelSettings, before: Before, base: str = MINILM) -> Estimate:
    """Estimate ``relabel`` on some questions; ``base`` stands in for a teacher not yet trained."""
    data = [each if each in before else to_train_on(each, "answered") for each in settings.data]
    asked, count = some_asked(data, before)
    if not asked:
        raise InputError(f"{', '.join(settings.data)}: there are no questions to answer")
    sample = asked[:: max(1, len(asked) // CALIBRATION_QUESTIONS)]
    started = time.monotonic()
    untrained = settings.model in before
    teacher = load_reader(
        base if untrained else settings.model,
        device=settings.device,
        dtype=settings.dtype,
        fresh_head=untrained,
        perceptrons=True,
        max_length=settings.max_length,
    )
    questions, contexts = [each.question for each in sample], [each.context for each in sample]
    predict_spans(teacher, questions[:4], contexts[:4])
    loading = time.monotonic() - started
    begun = time.monotonic()
    told = predict_spans(teacher, questions, contexts, top=settings.top, batch_tokens=settings.batch_tokens)
    shared = (time.monotonic() - begun) * count / len(sample)
    rows, _ = relabelled(tuple(sample), told)
    pieces = -(-count // settings.shard_size)
    return Estimate(
        seconds=loading + shared,
        memory=peak_memory(),
        disk=rows.nbytes * count // len(sample) + FOLDER_BYTES + pieces * SHARD_BYTES,
        rows={"train": count},
        shared=shared,
        shards=pieces,
        worker_memory=peak_memory(),
        sample=rows,
    )
