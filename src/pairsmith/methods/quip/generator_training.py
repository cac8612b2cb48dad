"""Training a question generator, which writes an answer and then its question (Q2).

questions with answers -> passage to "answer separator question" -> sequence-to-sequence loss -> model;
a causal language model instead learns to follow the instruction that ``ask`` gives it
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pairsmith.core.errors import InputError
from pairsmith.core.progress import Progress
from pairsmith.data.examples import Example
from pairsmith.data.squad import Question
from pairsmith.data.text import Window
from pairsmith.data.text.windows import passage_limit, passages, token_count
from pairsmith.methods.mining.summarizer import Figure, train_summarizer_on
from pairsmith.methods.quip.causal_training import causal_limit, said, train_causal_generator_on
from pairsmith.models.heads import load_tokenizer, writes_as
from pairsmith.models.question_generator import ANSWER_TOKENS, QUESTION_TOKENS, SEPARATOR
from pairsmith.training.best_step import TrainingHistory
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.question_settings import TrainQuestionGeneratorSettings
from pairsmith.training.settings import TrainSummarizerSettings
from pairsmith.training.target_tokens import token_accuracy


def train_question_generator_on(
    examples: Sequence[Example],
    unseen: Sequence[Example],
    settings: TrainQuestionGeneratorSettings,
    device: str,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[Any, Any, float, TrainingHistory]:
    """Train a question generator, of the kind that suits ``base``, at each learning rate; keep the best.

    Args:
        examples: training examples from ``generator_examples``; at least one.
        unseen: validation examples, by whose token accuracy step and rate are chosen; may be empty.
        settings: of its paths only ``base`` is read here.
        device: ``cpu``, ``cuda`` or ``mps``.
        progress: where progress is shown.
        checkpoints: where checkpoints are kept.

    Returns:
        the model and its tokenizer, the learning rate, and how the training went.
    """
    if writes_as(settings.base) == "decoder":
        writer, rate, training = train_causal_generator_on(
            examples, unseen, settings, device, progress=progress, checkpoints=checkpoints
        )
        return writer.model, writer.tokenizer, rate, training
    asker, rate, training = train_summarizer_on(
        examples,
        [],
        unseen,
        as_summarizer(settings, len(examples)),
        device,
        written_marker=SEPARATOR,
        figure=Figure("token accuracy", token_accuracy),
        progress=progress,
        checkpoints=checkpoints,
    )
    return asker.model, asker.tokenizer, rate, training


def as_summarizer(settings: TrainQuestionGeneratorSettings, examples: int) -> TrainSummarizerSettings:
    """The settings for training an encoder-decoder model on this number of examples.

    Passages are already within their limit, which excludes special tokens, so they are not truncated.
    """
    return TrainSummarizerSettings(
        **settings.model_dump(exclude={"data", "validation", "epochs", "max_steps", "max_length"}),
        seeds="",
        max_length=None,
        kind="reading",
        steps=settings.steps_of(examples),
        summary_tokens=ANSWER_TOKENS + QUESTION_TOKENS + 3,
    )


def generator_examples(
    questions: Iterable[Question], settings: TrainQuestionGeneratorSettings
) -> Iterator[Example]:
    """Training examples: the passage of a text that contains the answer, and the text to generate (Q1).

    A question is left out if no passage contains its answer, or if either contains the text that ends an
    answer: the separator or, for a causal model, a quotation mark.
    """
    tokenizer = load_tokenizer(settings.base)
    limit, write = _form(settings, tokenizer)
    cut: dict[str, list[Window]] = {}
    for question in questions:
        text = question.context
        if text not in cut:
            cut[text] = passages(text, limit, tokenizer)
        answer = question.answers[0]
        written = write(answer.text.strip(), question.question)
        if written is None:
            continue
        for window in cut[text]:
            last = window.start + len(window.text)
            if window.start <= answer.start and answer.start + len(answer.text) <= last:
                # Only a single word can exceed the limit, and no question can be asked about that.
                if len(window.text.split()) > 1 or token_count(window.text, tokenizer) <= limit:
                    yield Example(window.text, written)
                break


def check_examples(
    examples: Sequence[Example], unseen: Sequence[Example], settings: TrainQuestionGeneratorSettings
) -> None:
    """Refuse to train without examples, or to validate on none of the questions given for that."""
    if not examples or (settings.validation and not unseen):
        limit, _ = _form(settings, load_tokenizer(settings.base))
        raise InputError(
            f"none of the {'validation ' if examples else ''}questions can be used for training: no passage "
            f"of {limit} tokens holds the answer, or answer or question contain the mark that ends an "
            "answer; give others, or a larger --max-length if the base has room for it"
        )


def _form(
    settings: TrainQuestionGeneratorSettings, tokenizer: Any
) -> tuple[int, Callable[[str, str], str | None]]:
    """The most tokens in a passage, and the function that turns answer and question into a target text."""
    if writes_as(settings.base) == "decoder":
        room = causal_limit(settings.base, tokenizer)
        return min(settings.max_length or room, room), said
    return passage_limit(tokenizer, settings.max_length), _in_one_sequence


def _in_one_sequence(answer: str, question: str) -> str | None:
    return None if SEPARATOR in answer + question else f"{answer}{SEPARATOR}{question}"
