"""Training a causal language model as a question generator: it learns to continue an instruction (Q2).

instruction and passage -> answer and question, each closed by a quotation mark -> loss on these -> model
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.errors import ModelError
from pairsmith.core.progress import Progress
from pairsmith.data.examples import Example
from pairsmith.data.text.instructed import ANSWER, END, QUESTION, room_for_passage, told
from pairsmith.models.encode import padded
from pairsmith.models.heads import load_config
from pairsmith.models.language.loading import load_causal
from pairsmith.models.language.transformers_backend import context_of
from pairsmith.models.question_generator import ANSWER_TOKENS, QUESTION_TOKENS
from pairsmith.training.best_step import TrainingHistory
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.chunks import chunked
from pairsmith.training.fit import TrainingTask, fit_each_rate
from pairsmith.training.question_settings import TrainQuestionGeneratorSettings
from pairsmith.training.target_tokens import IGNORED, Writer, chunks_of, token_accuracy


def causal_limit(base: str, tokenizer: Any) -> int:
    """The most tokens that a passage in ``ask`` may have for this model, special tokens not counted."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    config = load_config(base)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"model {base}: models of type {config.model_type} cannot be trained to write text; give BART, "
            "T5, BERT or a causal language model as --base"
        )
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"model {base}: its tokenizer does not give the positions of tokens in a text; give one with a "
            "tokenizer.json"
        )
    context = context_of(config)
    around = len(_tokens(tokenizer, told("", ANSWER + QUESTION))[0])
    room = room_for_passage(context, around, ANSWER_TOKENS + QUESTION_TOKENS)
    if room < 1:
        raise ModelError(
            f"model {base}: reads {context} tokens, of which the instruction takes {around} and the "
            f"output {ANSWER_TOKENS + QUESTION_TOKENS}; give one that reads more as --base"
        )
    return room


def _tokens(tokenizer: Any, text: str) -> tuple[list[int], list[int]]:
    """The tokens of a text as ``ask`` gives them to the model, and the offset at which each ends."""
    found = tokenizer(text, return_offsets_mapping=True, verbose=False)
    tokens, ends = list(found["input_ids"]), [end for _, end in found["offset_mapping"]]
    while tokens and tokens[-1] in tokenizer.all_special_ids:  # some tokenizers append one to every text
        tokens.pop()
        ends.pop()
    return tokens, ends


def said(answer: str, question: str) -> str | None:
    """The target text after ``ANSWER``; None if a quotation mark in answer or question would end it early."""
    answer, question = " ".join(answer.split()), " ".join(question.split())
    return None if END in answer + question else f"{answer}{QUESTION}{question}{END}"


@dataclass(frozen=True, slots=True)
class Row:
    """The tokens of an instruction and its target text; the first ``told`` of them are the prompt."""

    tokens: Sequence[int]
    told: int


def rows_of(tokenizer: Any, examples: Iterable[Example], context: int) -> Iterator[Row]:
    """Examples as rows, truncated to the context; those of which no target token is left are skipped."""
    for example in examples:
        given = told(example.input, ANSWER)
        tokens, ends = _tokens(tokenizer, given + example.output)
        # A token that spans the border belongs to the target: the prompt alone does not contain it.
        begin = next((place for place, end in enumerate(ends) if end > len(given)), len(tokens))
        if begin < min(len(tokens), context):
            yield Row(tokens[:context], begin)


class CausalWriter(Writer):
    """A causal language model; called with a batch of rows, it returns the loss on the target tokens."""

    def __init__(self, base: str, device: str, label_smoothing: float) -> None:
        """Load the base. Raises ``ModelError`` if there is no such model."""
        tokenizer, model = load_causal(base, device=device)
        super().__init__(model, label_smoothing)
        self.tokenizer = tokenizer
        self._keeps = "logits_to_keep" in signature(self.model.forward).parameters

    def batch(self, rows: Sequence[Row]) -> Mapping[str, Any]:
        """Rows in chunks of similar length; the labels are the next tokens.

        ``kept`` are the positions from the first one on that predicts a target token. Logits are computed
        for these only: with a large vocabulary those of the prompt would take most of the memory.
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
        """Logits of the next token at each kept position: ``(n, kept, vocabulary)``."""
        keeping = {"logits_to_keep": chunk["kept"]} if self._keeps else {}
        found: Tensor = self.model(
            input_ids=chunk["input_ids"], attention_mask=chunk["attention_mask"], use_cache=False, **keeping
        ).logits
        return found if self._keeps else found[:, chunk["kept"]]


def _labels(row: Row) -> list[int]:
    """The next token at each position, or ``IGNORED`` where that is not part of the target."""
    given = max(row.told - 1, 0)
    return [IGNORED] * given + [*row.tokens[given + 1 :], IGNORED]


def train_causal_generator_on(
    examples: Sequence[Example],
    validation: Sequence[Example],
    settings: TrainQuestionGeneratorSettings,
    device: str,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> tuple[CausalWriter, float, TrainingHistory]:
    """Train a causal language model at each learning rate, and keep the best.

    Args:
        examples: passages with the target texts that ``said`` makes; at least one.
        validation: examples by whose token accuracy the best step and rate are chosen; may be empty.
        settings: of its paths only ``base`` is read here.
        device: ``cpu``, ``cuda`` or ``mps``.
        progress: where progress is shown.
        checkpoints: where checkpoints are kept.
    """
    context = context_of(load_config(settings.base))

    def make() -> CausalWriter:
        return CausalWriter(settings.base, device, settings.label_smoothing)

    def lesson(writer: CausalWriter) -> TrainingTask[Row]:
        rows, unseen = (list(rows_of(writer.tokenizer, some, context)) for some in (examples, validation))

        def draw(number: int, _: int, __: np.random.Generator) -> Row:
            return rows[number]

        measure = partial(token_accuracy, writer, chunks_of(unseen, writer.batch)) if unseen else None
        return TrainingTask(len(rows), draw, writer.batch, measure)

    return fit_each_rate(
        make,
        lesson,
        settings,
        metric="token accuracy",
        device=device,
        progress=progress,
        checkpoints=checkpoints,
    )
