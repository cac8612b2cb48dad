"""Question generation with an encoder-decoder model (Q2).

nucleus: passage -> sampled sequences of answer, separator and question
beams: passage -> beam search for answers -> diverse ones -> beam search for the question of each
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import ModelError
from pairsmith.data.filters import EMPTY
from pairsmith.data.text.windows import passage_limit, token_count
from pairsmith.methods.quip.options import BATCH_SIZES, QUESTION_BEAMS, GenerationOptions
from pairsmith.methods.quip.passages import NOT_CHOSEN, Passage, diverse, keep_all
from pairsmith.models.encode import results_by_length
from pairsmith.models.language.sequences import draw_sequences, search_sequences
from pairsmith.models.question_generator import (
    GENERATED_ANSWER_TOKENS,
    GENERATED_QUESTION_TOKENS,
    WrittenQuestion,
    parse,
    separator_of,
)
from pairsmith.models.text_generator import TextGenerator, encode_inputs, input_features
from pairsmith.runs.seeds import stream_key
from pairsmith.runs.work import Advance

MAX_TOKENS = GENERATED_ANSWER_TOKENS + GENERATED_QUESTION_TOKENS + 3
"""Longest sequence in tokens: start token, answer, separator, question and end token."""

_NO_ANSWER = (EMPTY, "nothing before the separator")


class SequenceGenerator:
    """Generates questions with a model that has an encoder and a decoder, such as BART.

    Each batch is computed by one thread, so that the number of threads changes no probability and no text.
    """

    def __init__(self, model: TextGenerator, options: GenerationOptions, name: str = "") -> None:
        """Raises: ModelError: the model has no separator token, or no end token."""
        self.model = model
        self.limit = passage_limit(model.tokenizer, options.max_length or model.max_length, model.max_length)
        self.tries = options.tries
        self._options = options
        self._separator = separator_of(model, options.separator)
        ends = model.model.generation_config.eos_token_id
        if ends is None:
            raise ModelError(
                f"model {name or model.model.name_or_path}: does not say which token ends a text; give its "
                "config.json an eos_token_id"
            )
        self._room = model.context - 2  # less the decoder's start token, and one that is cut off
        self._ends: list[int] = ends if isinstance(ends, list) else [ends]
        model.model.eval()

    def __repr__(self) -> str:
        """The model's name, number format and device."""
        return f"{type(self).__name__}({self.model!r})"

    def length(self, text: str) -> int:
        """The number of tokens in a text, without special ones."""
        return token_count(text, self.model.tokenizer)

    def generate(self, passages: Sequence[Passage], advance: Advance = lambda _: None) -> None:
        """Add the generated questions to each passage, and outputs that are not kept to its rejects."""
        if self._options.decoding == "beams":
            questions = self._batchwise(passages, self._search, lambda count: advance(self.tries * count))
            keep_all(passages, questions)
            return
        for _ in range(self.tries):
            unfinished = [passage for passage in passages if passage.missing(self._options.questions)]
            advance(len(passages) - len(unfinished))
            keep_all(unfinished, self._batchwise(unfinished, self._draw, advance))

    def _batchwise(
        self,
        passages: Sequence[Passage],
        work: Callable[[Sequence[Passage], dict[str, Any]], list[list[WrittenQuestion]]],
        advance: Advance,
    ) -> list[list[WrittenQuestion]]:
        """Apply ``work`` to batches of passages of similar length; returns its result for each passage."""
        tokens = encode_inputs(self.model, [passage.text for passage in passages])
        size = self._options.batch_size or BATCH_SIZES["encoder-decoder"]

        def features(rows: list[int]) -> tuple[list[Passage], dict[str, Any]]:
            documents = input_features(self.model, [tokens[row] for row in rows])
            return [passages[row] for row in rows], documents

        by_row: dict[int, list[WrittenQuestion]] = {}
        for rows, results in results_by_length(
            list(map(len, tokens)),
            features,
            lambda batch: work(*batch),
            self.model.model.device,
            batch_size=size,
            batch_tokens=size * self.model.max_length,
        ):
            by_row.update(zip(rows, results, strict=True))
            advance(len(rows))
        return [by_row[row] for row in range(len(passages))]

    def _draw(self, passages: Sequence[Passage], features: dict[str, Any]) -> list[list[WrittenQuestion]]:
        """Sample a sequence for each question that a passage still needs."""
        streams = []
        for passage in passages:
            numbers = passage.missing(self._options.questions)
            streams.append(np.array([stream_key(passage.id, number) for number in numbers], np.uint64))
        drawn = draw_sequences(
            self.model.model,
            features,
            streams,
            seed=self._options.seed,
            top_p=self._options.top_p,
            max_tokens=min(MAX_TOKENS, self._room),
        )
        return [[self._parse(tokens) for tokens in sequences] for sequences in drawn]

    def _search(self, passages: Sequence[Passage], features: dict[str, Any]) -> list[list[WrittenQuestion]]:
        """Search for the likeliest answers, choose diverse ones, and search for the question of each."""
        network = self.model.model
        moved = {name: value.to(network.device) for name, value in features.items()}
        with torch.inference_mode():
            states = network.get_encoder()(**moved).last_hidden_state
        written: list[list[WrittenQuestion]] = [[] for _ in passages]
        begins: list[tuple[int, list[int]]] = []
        for row, sequences in enumerate(self._search_answers(states, moved["attention_mask"])):
            complete = [tokens for tokens in sequences if tokens[-1] == self._separator]
            written[row] += [self._parse(tokens) for tokens in sequences if tokens[-1] != self._separator]
            texts = [self._parse(tokens).answer for tokens in complete]
            chosen = diverse(texts, self._options.questions)
            written[row] += [
                WrittenQuestion(text, "", NOT_CHOSEN if text else _NO_ANSWER)
                for place, text in enumerate(texts)
                if place not in chosen
            ]
            begins += [(row, complete[place]) for place in chosen]
        for row, tokens in self._search_questions(states, moved["attention_mask"], begins):
            written[row].append(self._parse(tokens))
        return written

    def _search_answers(self, states: Tensor, mask: Tensor) -> list[list[list[int]]]:
        """The likeliest answers of each passage, each with the separator if it was generated."""
        return search_sequences(
            self.model.model,
            states,
            mask,
            [()] * len(states),
            beams=self._options.beams,
            count=self._options.beams,
            max_tokens=min(GENERATED_ANSWER_TOKENS + 2, self._room - 2),
            end=self._separator,
            never=self._ends,
            length_penalty=0.0,
        )

    def _search_questions(
        self, states: Tensor, mask: Tensor, begins: Sequence[tuple[int, list[int]]]
    ) -> Iterator[tuple[int, list[int]]]:
        """For each answer: the index of its passage, and the tokens of the answer and likeliest question."""
        most = max(1, len(states) * self._options.beams // QUESTION_BEAMS)
        by_length = sorted(begins, key=lambda begin: len(begin[1]))
        # A decoder counts positions from its first token, so the answers of a batch must have equal lengths.
        for length, alike in groupby(by_length, key=lambda begin: len(begin[1])):
            for batch in in_batches(list(alike), most):
                rows, answers = zip(*batch, strict=True)
                questions = search_sequences(
                    self.model.model,
                    states[list(rows)],
                    mask[list(rows)],
                    answers,
                    beams=QUESTION_BEAMS,
                    count=1,
                    max_tokens=min(GENERATED_QUESTION_TOKENS + 1, self._room - length),
                    end=self._ends,
                )
                for row, answer, (question,) in zip(rows, answers, questions, strict=True):
                    yield row, [*answer, *question]

    def _parse(self, tokens: Sequence[int]) -> WrittenQuestion:
        return parse(self.model, tokens, self._separator, self._ends)
