"""The training of a causal language model to ask: it learns to go on behind an instruction (Q2).

instruction and passage -> answer and question, each up to a quotation mark -> loss of these -> asker
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairsmith.encoders.asker import ANSWER_TOKENS, QUESTION_TOKENS
from pairsmith.encoders.heads import load_config
from pairsmith.encoders.summarizer import padded
from pairsmith.errors import ModelError
from pairsmith.lm.loading import load_causal
from pairsmith.lm.transformers_backend import context_of
from pairsmith.progress import Progress
from pairsmith.records import Example
from pairsmith.texts.instructed import ANSWER, END, QUESTION, room_for_passage, told
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.chunks import chunked
from pairsmith.training.fit import Lesson, fit_each_rate
from pairsmith.training.question_settings import TrainAskerSettings
from pairsmith.training.watch import Training
from pairsmith.training.writing import IGNORED, Writer, chunks_of, token_accuracy


def causal_limit(base: str, tokenizer: Any) -> int:
    """Tokens of a passage at most, special ones not counted, that ``ask`` can give to this model.

    Raises:
        ModelError: there is no such model, it is none that writes, it reads too few tokens for a passage, or
            its tokenizer does not say where tokens stand.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    config = load_config(base)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"model {base}: models of type {config.model_type} cannot be trained to write; give BART, T5, "
            "BERT or a causal language model as --base"
        )
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"model {base}: its tokenizer does not say where tokens stand in a text; give one with a "
            "tokenizer.json"
        )
    context = context_of(config)
    around = len(_tokens(tokenizer, told("", ANSWER + QUESTION))[0])
    room = room_for_passage(context, around, ANSWER_TOKENS + QUESTION_TOKENS)
    if room < 1:
        raise ModelError(
            f"model {base}: reads {context} tokens, of which the instruction takes {around} and what is "
            f"written {ANSWER_TOKENS + QUESTION_TOKENS}; give one that reads more as --base"
        )
    return room


def _tokens(tokenizer: Any, text: str) -> tuple[list[int], list[int]]:
    """The tokens of a text as ``ask`` gives them to the model, and where each ends in the text."""
    found = tokenizer(text, return_offsets_mapping=True, verbose=False)
    tokens, ends = list(found["input_ids"]), [end for _, end in found["offset_mapping"]]
    while tokens and tokens[-1] in tokenizer.all_special_ids:  # some tokenizers close every text
        tokens.pop()
        ends.pop()
    return tokens, ends


def said(answer: str, question: str) -> str | None:
    """What shall be written behind ``ANSWER``; None where a quotation mark would end it before its time."""
    answer, question = " ".join(answer.split()), " ".join(question.split())
    return None if END in answer + question else f"{answer}{QUESTION}{question}{END}"


@dataclass(frozen=True, slots=True)
class Row:
    """The tokens of an instruction and what is written behind it, of which the first ``told`` are given."""

    tokens: Sequence[int]
    told: int


def rows_of(tokenizer: Any, examples: Iterable[Example], context: int) -> Iterator[Row]:
    """Passages with what is to be written of each; what is longer than the context is cut off."""
    for example in examples:
        given = told(example.input, ANSWER)
        tokens, ends = _tokens(tokenizer, given + example.output)
        # A token across the border counts as written: it is not there before.
        begin = next((place for place, end in enumerate(ends) if end > len(given)), len(tokens))
        if begin < min(len(tokens), context):
            yield Row(tokens[:context], begin)


class CausalWriter(Writer):
    """A causal language model; called with a batch of rows, it gives the loss of what is written."""

    def __init__(self, base: str, device: str, label_smoothing: float) -> None:
        """Raises: ModelError: there is no such model."""
        tokenizer, model = load_causal(base, device=device)
        super().__init__(model, label_smoothing)
        self.tokenizer = tokenizer
        self._keeps = "logits_to_keep" in signature(self.model.forward).parameters

    def batch(self, rows: Sequence[Row]) -> Mapping[str, Any]:
        """Rows in chunks of about one length; labels are the tokens that come next.

        ``kept`` are the places from the first on behind which something is written: of the others no token
        is foretold, which for large vocabularies would take most of the memory.
        """

        def features(numbers: list[int]) -> dict[str, Tensor]:
            some = [rows[number] for number in numbers]
            tokens = padded([row.tokens for row in some], 0)
            first = min(max(row.told - 1, 0) for row in some)
            return {
                "input_ids": tokens,
                "attention_mask": padded([[1] * len(row.tokens) for row in some], 0),
                "kept": torch.arange(first, tokens.shape[1]),
                "labels": padded([_labels(row) for row in some], IGNORED)[:, first:],
            }

        return {"pairs": chunked([len(row.tokens) for row in rows], features, self.model.device).as_inputs()}

    def logits(self, chunk: Mapping[str, Tensor]) -> Tensor:
        """Of the token behind each that is kept: ``(n, kept, vocabulary)``."""
        keeping = {"logits_to_keep": chunk["kept"]} if self._keeps else {}
        found: Tensor = self.model(
            input_ids=chunk["input_ids"], attention_mask=chunk["attention_mask"], use_cache=False, **keeping
        ).logits
        return found if self._keeps else found[:, chunk["kept"]]


def _labels(row: Row) -> list[int]:
    """The tokens that come next, where these are written."""
    given = max(row.told - 1, 0)
    return [IGNORED] * given + [*row.tokens[given + 1 :], IGNORED]


def train_causal_asker_on(
    examples: Sequence[Example],
    validation: Sequence[Example],
    settings: TrainAskerSettings,
    device: str,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[CausalWriter, float, Training]:
    """Train a causal language model for each learning rate, and take the best.

    Args:
        examples: passages, and what ``said`` makes of answers and questions; at least one.
        validation: by whose token accuracy the best step and rate are chosen; may be empty.
        settings: paths in it are not looked at here, but for ``base``.
        device: ``cpu``, ``cuda`` or ``mps``.
        progress: where to show it.
        checkpoints: where they are kept.

    Raises:
        ModelError: the base cannot be loaded, or the training diverged.
    """
    context = context_of(load_config(settings.base))

    def make() -> CausalWriter:
        return CausalWriter(settings.base, device, settings.label_smoothing)

    def lesson(writer: CausalWriter) -> Lesson[Row]:
        rows, unseen = (list(rows_of(writer.tokenizer, some, context)) for some in (examples, validation))

        def draw(number: int, _: int, __: np.random.Generator) -> Row:
            return rows[number]

        measure = partial(token_accuracy, writer, chunks_of(unseen, writer.batch)) if unseen else None
        return Lesson(len(rows), draw, writer.batch, measure)

    return fit_each_rate(
        make,
        lesson,
        settings,
        metric="token accuracy",
        device=device,
        progress=progress,
        checkpoints=checkpoints,
    )
