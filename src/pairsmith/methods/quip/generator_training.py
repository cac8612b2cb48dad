"""Training a question generator, which writes an answer and then its question (Q2).

questions with answers -> passage to "answer separator question" -> sequence-to-sequence loss -> model;
a causal language model instead learns to follow the instruction that ``ask`` gives it
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import InputError, ModelError
from pairsmith.core.model_files import pick_device
from pairsmith.core.progress import Progress
from pairsmith.data.examples import Example
from pairsmith.data.squad import Question
from pairsmith.data.text.instructed import (
    ANSWER_CUE,
    CLOSING_QUOTE,
    QUESTION_CUE,
    instructed_prompt,
    room_for_passage,
)
from pairsmith.data.text.windows import passage_limit, passages, token_count
from pairsmith.methods.quip.sequence_generator import MAX_TOKENS
from pairsmith.methods.quip.training_options import QuestionGeneratorOptions
from pairsmith.models.added_tokens import add_marker
from pairsmith.models.encode import moved, refuse_unknown_tokens
from pairsmith.models.heads import load_config, load_tokenizer, writes_as
from pairsmith.models.language.loading import load_causal
from pairsmith.models.language.prefix_batches import obstacle
from pairsmith.models.language.transformers_backend import context_of
from pairsmith.models.question_generator import GENERATED_ANSWER_TOKENS, GENERATED_QUESTION_TOKENS, SEPARATOR
from pairsmith.models.text_generator import (
    BEAMS,
    load_text_generator,
    search_settings,
    shortest_of,
)
from pairsmith.runs.seeds import generator, stream_key
from pairsmith.training.checkpoints import Checkpoints
from pairsmith.training.fit import TrainedModel, TrainingTask, same_rows, train_at_each_rate
from pairsmith.training.generators import (
    IGNORED,
    CausalGeneratorWithLoss,
    EncoderDecoderWithLoss,
    GeneratorWithLoss,
    PromptAndTarget,
    generator_rows,
    refuse_bidirectional_decoder,
)

_VALIDATED_AT_ONCE = 32
"""Number of validation examples whose logits over the vocabulary are held in memory at once."""
_TEXTS = 256
"""Number of texts whose passages are cached; questions on the same text mostly follow each other."""


def train_question_generator_on(
    examples: Sequence[Example],
    validation: Sequence[Example],
    options: QuestionGeneratorOptions,
    *,
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
) -> TrainedModel["CausalWriter | SequenceWriter"]:
    """Train a question generator at each learning rate, and keep the best one (Q2).

    The architecture of ``options.base`` decides which kind of generator is trained. ``generator_examples``
    makes both ``examples``, at least one, and ``validation``, which may be empty. The token accuracy on
    ``validation`` chooses step and learning rate.
    """
    refuse_bidirectional_decoder(options.base)
    device = pick_device(options.device)
    causal = writes_as(options.base) == "decoder"
    order = None
    if options.questions > 1:
        groups = QuestionGroups((example.input for example in examples), options.questions, options.seed)
        order = groups.order

    def make() -> tuple[CausalWriter | SequenceWriter, TrainingTask[Example]]:
        writer = CausalWriter(options, device) if causal else SequenceWriter(options, device)

        def measure() -> float:
            batches = map(writer.collate, in_batches(validation, _VALIDATED_AT_ONCE))
            return token_accuracy(writer, (chunk for batch in batches for chunk in batch["pairs"]["chunks"]))

        # Examples are tokenized batch by batch, as the tokens of all may not fit into memory.
        draw, measured = same_rows(examples), measure if validation else None
        task = TrainingTask(len(examples), draw, writer.collate, measured, "token accuracy", order)
        return writer, task

    trained = train_at_each_rate(make, options, progress, checkpoints)
    writer = trained.model
    if isinstance(writer, SequenceWriter):
        how = search_settings(writer.generator, BEAMS, MAX_TOKENS, shortest_of("reading"))
        writer.model.generation_config = how
    return trained


def generator_examples(questions: Iterable[Question], options: QuestionGeneratorOptions) -> Iterator[Example]:
    """Training examples: the passage that contains a question's answer, and the text to write (Q1, Q2).

    A question is left out if no passage contains its answer, or if question or answer contain the mark that
    ends an answer: the separator or, for a causal model, a quotation mark.
    """
    tokenizer = load_tokenizer(options.base)
    limit, target = _limit_and_target(options, tokenizer)
    cut = lru_cache(_TEXTS)(partial(passages, limit=limit, tokenizer=tokenizer))
    for question in questions:
        answer = question.answers[0]
        written = target(answer.text.strip(), question.question)
        if written is None:
            continue
        for window in cut(question.context):
            last = window.start + len(window.text)
            if window.start <= answer.start and answer.start + len(answer.text) <= last:
                # Only a single word can exceed the limit, and no question can be asked about that.
                if len(window.text.split()) > 1 or token_count(window.text, tokenizer) <= limit:
                    yield Example(window.text, written)
                break


def check_generator_examples(
    examples: Sized, validation: Sized | None, options: QuestionGeneratorOptions
) -> None:
    """Refuse an empty training or validation set, and ``questions`` for a base that cannot share passages.

    ``validation`` is None if the training does not validate.
    """
    if options.questions > 1 and writes_as(options.base) != "decoder":
        raise InputError(
            f"questions {options.questions}: {options.base} is no causal language model, and only such a "
            "model reads a passage once for several questions; leave the setting out"
        )
    if not examples or (validation is not None and not validation):
        limit, _ = _limit_and_target(options, load_tokenizer(options.base))
        raise InputError(
            f"none of the {'validation ' if examples else ''}questions can be used for training: no passage "
            f"of {limit} tokens holds the answer, or answer or question contain the mark that ends an "
            "answer; give other questions, or a larger max_length if the base has room for it"
        )


def _limit_and_target(
    options: QuestionGeneratorOptions, tokenizer: Any
) -> tuple[int, Callable[[str, str], str | None]]:
    """The longest passage in tokens, and the function that joins answer and question to a target text."""
    if writes_as(options.base) == "decoder":
        room = causal_limit(options.base, tokenizer)
        return min(options.max_length or room, room), target_text
    return passage_limit(tokenizer, options.max_length), _target_sequence


def _target_sequence(answer: str, question: str) -> str | None:
    """What an encoder-decoder model learns to write; None if answer or question contain the separator."""
    return None if SEPARATOR in answer + question else f"{answer}{SEPARATOR}{question}"


def target_text(answer: str, question: str) -> str | None:
    """The text that a causal model learns to write after ``ANSWER_CUE``.

    None if answer or question contain a quotation mark, which would end the text early.
    """
    answer, question = " ".join(answer.split()), " ".join(question.split())
    return None if CLOSING_QUOTE in answer + question else f"{answer}{QUESTION_CUE}{question}{CLOSING_QUOTE}"


def causal_limit(base: str, tokenizer: Any) -> int:
    """The longest passage, in tokens without special ones, for which ``ask`` can use this causal model."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    config = load_config(base)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"model {base}: models of type {config.model_type} cannot be trained to write text; give BART, "
            "T5, BERT or a causal language model as base"
        )
    if not getattr(tokenizer, "is_fast", False):
        raise ModelError(
            f"model {base}: its tokenizer does not give the positions of tokens in a text; give one with a "
            "tokenizer.json"
        )
    context = context_of(config)
    around = len(_tokens(tokenizer, instructed_prompt("", ANSWER_CUE))[0])
    lead = len(_tokens(tokenizer, "x\n" + QUESTION_CUE)[0]) - len(_tokens(tokenizer, "x\n")[0])
    written = GENERATED_ANSWER_TOKENS + lead + GENERATED_QUESTION_TOKENS
    room = room_for_passage(context, around, written)
    if room < 1:
        raise ModelError(
            f"model {base}: reads {context} tokens, of which the instruction takes {around} and the "
            f"output {written}; give a base that reads more"
        )
    return room


def _tokens(tokenizer: Any, text: str) -> tuple[list[int], list[int]]:
    """The tokens of a text as ``ask`` gives them to the model, and the offset at which each ends."""
    encoding = tokenizer(text, return_offsets_mapping=True, split_special_tokens=True, verbose=False)
    tokens, ends = list(encoding["input_ids"]), [end for _, end in encoding["offset_mapping"]]
    while tokens and tokens[-1] in tokenizer.all_special_ids:  # some tokenizers append one to every text
        tokens.pop()
        ends.pop()
    return tokens, ends


def causal_rows(tokenizer: Any, examples: Iterable[Example], context: int) -> Iterator[PromptAndTarget]:
    """Examples as tokens, truncated to the context; an example is skipped if no target token remains."""
    for example in examples:
        prompt = instructed_prompt(example.input, ANSWER_CUE)
        tokens, ends = _tokens(tokenizer, prompt + example.output)
        # A token that spans the border belongs to the target: the prompt alone does not contain it.
        begin = next((place for place, end in enumerate(ends) if end > len(prompt)), len(tokens))
        if begin < min(len(tokens), context):
            yield PromptAndTarget(tokens[:context], begin)


class SequenceWriter(EncoderDecoderWithLoss):
    """An encoder-decoder model, which learns to write answer, separator and question in one sequence."""

    def __init__(self, options: QuestionGeneratorOptions, device: str) -> None:
        # Passages are already within their limit, which excludes special tokens, so they are not truncated.
        model = load_text_generator(options.base, device=device, fresh_decoder=True, seed=options.seed)
        add_marker(model, SEPARATOR, written=True)
        super().__init__(model, options.label_smoothing)
        self.tokenizer = model.tokenizer

    def collate(self, examples: Sequence[Example]) -> Mapping[str, Any]:
        """The arguments of ``forward`` for a batch of one or more examples."""
        return self.batch(generator_rows(self.generator, examples, [], "", MAX_TOKENS, SEPARATOR))


class CausalWriter(CausalGeneratorWithLoss):
    """A causal language model; called with a batch of rows, it returns the loss on the target tokens."""

    def __init__(self, options: QuestionGeneratorOptions, device: str) -> None:
        self.tokenizer, model = load_causal(options.base, device=device)
        if options.questions > 1 and (reason := obstacle(model)):
            raise ModelError(
                f"questions {options.questions}: {options.base} cannot read a passage once for several "
                f"questions: {reason}; leave it out"
            )
        super().__init__(model, options.label_smoothing, shares=options.questions > 1)
        self._context = context_of(load_config(options.base))

    def collate(self, examples: Sequence[Example]) -> Mapping[str, Any]:
        """The arguments of ``forward`` for a batch of examples, truncated to the context."""
        rows, texts = [], []
        for example in examples:
            for row in causal_rows(self.tokenizer, [example], self._context):
                rows.append(row)
                texts.append(example.input)
        refuse_unknown_tokens(self.model.config, [row.tokens for row in rows])
        return self.behind_prompts(rows, texts)


class QuestionGroups:
    """Questions in groups of at most ``most`` on the same passage.

    The groups of a passage are about equally large. Each pass over the questions groups them anew. Memory
    holds a few numbers for each question.
    """

    def __init__(self, passages: Iterable[str], most: int, seed: int) -> None:
        """``passages`` has the passage of each question; equal passages need not be adjacent."""
        keys = np.array(array("Q", map(stream_key, passages)), np.uint64)
        _, self._passage, self._sizes = np.unique(keys, return_inverse=True, return_counts=True)
        self._groups = -(-self._sizes // most)  # the number of groups of each passage
        self._seed = seed

    def order(self, turn: int) -> NDArray[np.int64]:
        """The numbers of all questions in the order of pass ``turn``, counted from 0: ``(n,)`` int64."""
        rng = generator(self._seed, "order", turn)
        shuffled = rng.permutation(len(self._passage))
        questions = shuffled[np.argsort(self._passage[shuffled], kind="stable")]  # passage by passage
        passage = self._passage[questions]
        first_question, first_group = (np.cumsum(counts) - counts for counts in (self._sizes, self._groups))
        rank_in_passage = np.arange(len(questions)) - first_question[passage]
        group = first_group[passage] + rank_in_passage * self._groups[passage] // self._sizes[passage]
        place_of_group = rng.permutation(int(self._groups.sum()))
        order: NDArray[np.int64] = questions[np.argsort(place_of_group[group], kind="stable")]
        return order


def token_accuracy(model: GeneratorWithLoss, chunks: Iterable[Mapping[str, Tensor]]) -> float:
    """Share, ×100, of target tokens that the model ranks first, given all tokens before: 0 to 100 (Q2).

    A chunk's ``labels`` are ``(n, tokens)`` int64, ``IGNORED`` at positions that do not count; at least one
    position counts.
    """
    correct = count = 0
    with torch.inference_mode():
        for chunk in chunks:
            inputs = moved(chunk, model.model.device)
            counted = inputs["labels"] != IGNORED
            correct += int(((model.logits(inputs).argmax(dim=2) == inputs["labels"]) & counted).sum())
            count += int(counted.sum())
    return 100.0 * correct / count
