"""Questions by a model with an encoder and a decoder: answer, separator and question in one sequence (Q2).

drawn from the nucleus, many for each passage; or two searches, one for answers and one for their questions
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pairsmith.encoders.asker import ANSWER_TOKENS, QUESTION_TOKENS, Written, parse, separator_of
from pairsmith.encoders.encode import batches_by_length, one_thread_each
from pairsmith.encoders.summarizer import Summarizer, document_features, encode_documents
from pairsmith.errors import ModelError
from pairsmith.lm.beams import search_sequences
from pairsmith.lm.nucleus import draw_sequences
from pairsmith.methods.quip.options import GenerationOptions
from pairsmith.methods.quip.passages import Passage, keep_all, unheard
from pairsmith.records import Reject
from pairsmith.runs.executors import Advance
from pairsmith.runs.seeds import stream_key
from pairsmith.texts.passages import passage_limit, token_count
from pairsmith.texts.squad_metrics import f1

QUESTION_BEAMS = 5
"""Beams of the search for the question that an answer answers; the paper does not say how many."""

_MAX_TOKENS = ANSWER_TOKENS + QUESTION_TOKENS + 3
"""With a begin, the separator and an end."""


class SequenceGenerator:
    """Generates questions with a model that has an encoder and a decoder, such as BART.

    Each batch is computed by one thread, lest the number of threads move a probability and with it a text.
    """

    def __init__(self, model: Summarizer, options: GenerationOptions, name: str = "") -> None:
        """Raises: ModelError: the model knows no separator, or no token that ends a text."""
        self.model = model
        self.limit = passage_limit(model.tokenizer, options.max_length or model.context, model.context)
        self._options = options
        self._separator = separator_of(model, options.separator)
        ends = model.model.generation_config.eos_token_id
        if ends is None:
            raise ModelError(
                f"model {name or model.model.name_or_path}: does not say which token ends a text; give its "
                "config.json an eos_token_id"
            )
        self._room = model.context - 2  # the token that a decoder starts from, and one that is cut off
        self._ends: list[int] = ends if isinstance(ends, list) else [ends]
        model.model.eval()

    def length(self, text: str) -> int:
        """Tokens of a text, special ones not counted."""
        return token_count(text, self.model.tokenizer)

    def generate(self, passages: Sequence[Passage], advance: Advance = unheard) -> list[Reject]:
        """Add questions to each passage; returns what was written and not kept."""
        if self._options.decoding == "beams":
            tries = self._options.tries
            return keep_all(
                passages, self._each_batch(passages, self._search, lambda count: advance(tries * count))
            )
        rejects: list[Reject] = []
        for _ in range(self._options.tries):
            left = [passage for passage in passages if len(passage.found) < self._options.questions]
            advance(len(passages) - len(left))
            rejects += keep_all(left, self._each_batch(left, self._draw, advance))
        return rejects

    def _each_batch(
        self,
        passages: Sequence[Passage],
        work: Callable[[Sequence[Passage], dict[str, Any]], list[list[Written]]],
        advance: Advance,
    ) -> list[list[Written]]:
        """What ``work`` gives for each passage, which gets batches of them of about one length."""
        tokens = encode_documents(self.model, [passage.text for passage in passages])
        most = self._options.batch_size * self.model.max_length
        batches = batches_by_length(list(map(len, tokens)), self._options.batch_size, most)

        def begin(pool: ThreadPoolExecutor, rows: list[int]) -> Future[list[list[Written]]]:
            features = document_features(self.model, [tokens[row] for row in rows])
            return pool.submit(work, [passages[row] for row in rows], features)

        found: dict[int, list[Written]] = {}
        with one_thread_each(self.model.model.device) as pool:
            for rows, results in pool.each(begin, batches):
                found.update(zip(rows, results, strict=True))
                advance(len(rows))
        return [found[row] for row in range(len(passages))]

    def _draw(self, passages: Sequence[Passage], features: dict[str, Any]) -> list[list[Written]]:
        """Draw for each passage as many sequences as it lacks."""
        streams = []
        for passage in passages:
            last = passage.drawn + self._options.questions - len(passage.found)
            numbers = range(passage.drawn, last)
            streams.append(np.array([stream_key(passage.id, number) for number in numbers], np.uint64))
        drawn = draw_sequences(
            self.model.model,
            features,
            streams,
            seed=self._options.seed,
            top_p=self._options.top_p,
            max_tokens=min(_MAX_TOKENS, self._room),
        )
        return [[self._parse(tokens) for tokens in sequences] for sequences in drawn]

    def _search(self, passages: Sequence[Passage], features: dict[str, Any]) -> list[list[Written]]:
        """Search the likeliest answers, keep those that differ most, and search a question for each."""
        network = self.model.model
        moved = {name: value.to(network.device) for name, value in features.items()}
        with torch.inference_mode():
            states = network.get_encoder()(**moved).last_hidden_state
        written: list[list[Written]] = [[] for _ in passages]
        begins: list[tuple[int, list[int]]] = []
        for row, sequences in enumerate(self._search_answers(states, moved["attention_mask"])):
            whole = [tokens for tokens in sequences if tokens[-1] == self._separator]
            written[row] += [self._parse(tokens) for tokens in sequences if tokens[-1] != self._separator]
            texts = [self._parse(tokens).answer for tokens in whole]
            chosen = diverse(texts, self._options.questions)
            written[row] += [
                Written(text, "", "not chosen" if text else "no answer")
                for place, text in enumerate(texts)
                if place not in chosen
            ]
            begins += [(row, whole[place]) for place in chosen]
        for row, tokens in self._search_questions(states, moved["attention_mask"], begins):
            written[row].append(self._parse(tokens))
        return written

    def _search_answers(self, states: Tensor, mask: Tensor) -> list[list[list[int]]]:
        """The likeliest answers of each passage, the separator included where it was written."""
        return search_sequences(
            self.model.model,
            states,
            mask,
            [()] * len(states),
            beams=self._options.beams,
            count=self._options.beams,
            max_tokens=min(ANSWER_TOKENS + 2, self._room - 2),
            end=self._separator,
            never=self._ends,
            length_penalty=0.0,
        )

    def _search_questions(
        self, states: Tensor, mask: Tensor, begins: Sequence[tuple[int, list[int]]]
    ) -> Iterator[tuple[int, list[int]]]:
        """For each row of a passage and answer of it, the row and the answer with its likeliest question."""
        most = max(1, len(states) * self._options.beams // QUESTION_BEAMS)
        by_length = sorted(begins, key=lambda begin: len(begin[1]))
        # A decoder counts places from its first token, so that those of a batch must be of one length.
        for length, alike in groupby(by_length, key=lambda begin: len(begin[1])):
            same = list(alike)
            for first in range(0, len(same), most):
                rows, answers = zip(*same[first : first + most], strict=True)
                found = search_sequences(
                    self.model.model,
                    states[list(rows)],
                    mask[list(rows)],
                    answers,
                    beams=QUESTION_BEAMS,
                    count=1,
                    max_tokens=min(QUESTION_TOKENS + 1, self._room - length),
                    end=self._ends,
                )
                for row, answer, (question,) in zip(rows, answers, found, strict=True):
                    yield row, [*answer, *question]

    def _parse(self, tokens: Sequence[int]) -> Written:
        return parse(self.model, tokens, self._separator, self._ends)


def diverse(answers: Sequence[str], count: int) -> list[int]:
    """The places of ``count`` answers that are as different as can be, or of fewer if there are no more.

    The first is taken, and then again and again the one whose F1 with any that was taken is least; of
    equals the first. Empty answers and those that stand there before count for nothing.
    """
    known: set[str] = set()
    left: list[int] = []
    for place, answer in enumerate(answers):
        if answer and answer.casefold() not in known:
            known.add(answer.casefold())
            left.append(place)
    taken: list[int] = []

    def likeness(place: int) -> float:
        return f1(answers[place], [answers[other] for other in taken]) if taken else 0.0

    while left and len(taken) < count:
        best = min(left, key=likeness)
        left.remove(best)
        taken.append(best)
    return taken
