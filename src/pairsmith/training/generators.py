"""Text generators in training: the loss on target tokens (M9, Q2).

input texts and target texts -> logits of the target tokens -> negative log likelihood of the target tokens
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from pairsmith.core.errors import ModelError
from pairsmith.data.examples import Example
from pairsmith.models.encode import padded_tokens, tokens_at_once
from pairsmith.models.heads import load_config, written_by
from pairsmith.models.language.prefix_batches import (
    places_and_targets,
    predict_some,
    prefix_features,
    prefix_inputs,
    prefix_rows,
    unmasked,
)
from pairsmith.models.text_generator import TextGenerator, encode_inputs, encode_targets, input_features
from pairsmith.training.chunks import chunked, mean_of_losses

IGNORED = -100
"""The label of positions that do not count in the loss, such as padding."""
_LOGITS = 2**28
"""Largest number of logits that are computed at once after shared prompts, where most tokens are targets.

With their gradients and copies they take about four gigabytes.
"""


class GeneratorWithLoss(nn.Module, ABC):
    """A text generator in training; called with a batch of pairs, it returns the loss on the target tokens.

    A batch has the form that ``chunked`` returns; each chunk has ``labels``, ``(n, tokens)`` int64.
    """

    def __init__(self, model: Any, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self._label_smoothing = label_smoothing

    @abstractmethod
    def logits(self, chunk: Mapping[str, Tensor]) -> Tensor:
        """The logits at the positions of a chunk's labels, ``(n, tokens, vocabulary)`` (M9, Q2).

        ``labels`` are ``(n, tokens)``; each is predicted from the tokens before it. The dtype is the model's,
        or that of autocast.
        """

    def forward(self, pairs: Mapping[str, Any]) -> dict[str, Tensor]:
        """The loss of a batch, ``()`` float32: the mean over all target tokens (M9, Q2)."""
        tokens = sum((chunk["labels"] != IGNORED).sum() for chunk in pairs["chunks"])
        return mean_of_losses(self._losses, pairs["chunks"], self, tokens)

    def _losses(self, chunk: Mapping[str, Tensor]) -> Tensor:
        """The loss of each text."""
        return sequence_losses(self.logits(chunk), chunk["labels"], self._label_smoothing)


def sequence_losses(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """Negative log likelihood of each text, summed over its tokens: ``(n,)`` float32 (M9, Q2).

    ``logits`` are ``(n, tokens, vocabulary)`` of any floating dtype, ``labels`` ``(n, tokens)`` int64, -100
    for padding. ``label_smoothing``, in [0, 1), is the share of each label's probability that is spread over
    the vocabulary.
    """
    losses = nn.functional.cross_entropy(
        logits.float().flatten(0, 1),
        labels.flatten(),
        ignore_index=IGNORED,
        label_smoothing=label_smoothing,
        reduction="none",
    )
    return losses.view_as(labels).sum(dim=1)


def refuse_bidirectional_decoder(base: str) -> None:
    """Refuse a decoder-only model whose tokens also attend to later tokens, according to its config.

    Such a model would see the very tokens that it has to predict.
    """
    config = load_config(base)
    if written_by(config) != "decoder":
        return
    both_ways = getattr(config.get_text_config(), "use_bidirectional_attention", False)
    if not getattr(config, "is_causal", True) or both_ways in (True, "all"):
        raise ModelError(
            f"model {base}: cannot learn to write, as its tokens attend to those after them, as in an "
            "encoder; give the language model that it was made from"
        )


@dataclass(frozen=True, slots=True)
class GeneratorRow:
    """The tokens of an input, with the cue if there is one, and the tokens of its target text."""

    input: Sequence[int]
    target: Sequence[int]


def generator_rows(
    generator: TextGenerator,
    seeds: Sequence[Example],
    added: Sequence[Example],
    marker: str,
    tokens: int,
    separator: str = "",
) -> list[GeneratorRow]:
    """The rows of the seeds, then of the added pairs with the marker before their documents (M9).

    A target has at most ``tokens`` tokens. ``separator`` in a target is the special token of this name.
    """
    examples = [*seeds, *added]
    texts = [example.input for example in seeds] + [marker + example.input for example in added]
    summaries = encode_targets(generator, [example.output for example in examples], tokens, separator)
    documents = encode_inputs(generator, texts, tokens, marker)
    return [GeneratorRow(*row) for row in zip(documents, summaries, strict=True)]


class EncoderDecoderWithLoss(GeneratorWithLoss):
    """A model with an encoder and a decoder; called with a batch of rows, it returns the loss."""

    def __init__(self, generator: TextGenerator, label_smoothing: float) -> None:
        super().__init__(generator.model, label_smoothing)
        self.generator = generator
        if not hasattr(self.model, "prepare_decoder_input_ids_from_labels"):
            raise ModelError(
                f"models of type {self.model.config.model_type} cannot be trained as summarisers here; give "
                "BART, T5 or the like as base"
            )

    def batch(self, rows: Sequence[GeneratorRow]) -> Mapping[str, Any]:
        """Inputs with the labels of their target texts, in chunks of inputs of similar length."""

        def features(numbers: list[int]) -> dict[str, Tensor]:
            chunk = [rows[number] for number in numbers]
            labels = padded_tokens([row.target for row in chunk], IGNORED)
            return {**input_features(self.generator, [row.input for row in chunk]), "labels": labels}

        return {"pairs": chunked([len(row.input) for row in rows], features, self.model.device)}

    def logits(self, chunk: Mapping[str, Tensor]) -> Tensor:
        """The logits for each token of the targets, given those before it: ``(n, tokens, vocabulary)``."""
        logits: Tensor = self.model(
            input_ids=chunk["input_ids"],
            attention_mask=chunk["attention_mask"],
            decoder_input_ids=self.model.prepare_decoder_input_ids_from_labels(chunk["labels"]),
            use_cache=False,
        ).logits
        return logits


@dataclass(frozen=True, slots=True)
class PromptAndTarget:
    """The tokens of a prompt and its target text; the first ``prompt_length`` tokens are the prompt's."""

    tokens: Sequence[int]
    prompt_length: int


class CausalGeneratorWithLoss(GeneratorWithLoss):
    """A causal language model in training, which learns to continue prompts.

    With ``shares``, a prompt is computed once for all of its target texts; the model must have no
    ``obstacle`` to this.
    """

    def __init__(self, model: Any, label_smoothing: float, *, shares: bool = False) -> None:
        super().__init__(model, label_smoothing)
        self._keeps = "logits_to_keep" in signature(self.model.forward).parameters
        self.predictions = predict_some(model) if shares else None

    def continuations(self, rows: Sequence[PromptAndTarget]) -> Mapping[str, Any]:
        """The arguments of ``forward``: rows in chunks of similar length; a token's label is the next token.

        ``kept`` are all positions from the first position that predicts a target token. Logits are computed
        at these positions only, as with a large vocabulary the logits of the prompt would take most of the
        memory. The attention mask is all ones: padding follows the texts, so that no token attends to it, and
        with such a mask attention does not compute the scores of later tokens.
        """

        def features(numbers: list[int]) -> dict[str, Tensor]:
            chunk = [rows[number] for number in numbers]
            tokens = padded_tokens([row.tokens for row in chunk], 0)
            first = min(max(row.prompt_length - 1, 0) for row in chunk)
            return {
                "input_ids": tokens,
                "kept": torch.arange(first, tokens.shape[1]),
                "labels": padded_tokens([_labels(row) for row in chunk], IGNORED)[:, first:],
            }

        return {"pairs": chunked([len(row.tokens) for row in rows], features, self.model.device)}

    def behind_prompts(self, rows: Sequence[PromptAndTarget], texts: Sequence[Hashable]) -> Mapping[str, Any]:
        """The arguments of ``forward``, in which rows of the same text share one prompt.

        ``texts`` has the text of each row. ``labels`` are ``(1, targets)``; ``places``, ``(targets, 2)``, are
        the row and the column at which each target token is predicted. If the model does not share prompts,
        the arguments are those of ``continuations``.
        """
        if self.predictions is None:
            return self.continuations(rows)
        prompts = [row.tokens[: row.prompt_length] for row in rows]
        written = [row.tokens[row.prompt_length :] for row in rows]
        shared = list(prefix_rows(prompts, [tokens[:-1] for tokens in written], texts))

        def features(numbers: list[int]) -> dict[str, Any]:
            chunk = [shared[number] for number in numbers]
            places, targets = places_and_targets(chunk, written)
            return {
                **prefix_features(chunk),
                "places": torch.tensor(places),
                "labels": torch.tensor([targets]),
            }

        vocabulary = int(self.model.config.get_text_config().vocab_size)
        most = min(tokens_at_once(self.model.device), max(1, _LOGITS // vocabulary))
        return {"pairs": chunked(list(map(len, shared)), features, self.model.device, most)}

    def logits(self, chunk: Mapping[str, Any]) -> Tensor:
        """Logits of the next token at the positions ``kept`` of a chunk: ``(n, kept, vocabulary)`` (M9, Q2).

        After shared prompts they are ``(1, targets, vocabulary)``, as the labels are ``(1, targets)``.
        """
        logits: Tensor
        if self.predictions is not None and "places" in chunk:
            self.predictions.places = chunk["places"]
            rest = {name: value for name, value in chunk.items() if name not in {"places", "labels"}}
            logits = self.model(**prefix_inputs(rest, self.model), use_cache=False).logits
            self.predictions.places = None
            return logits
        keeping = {"logits_to_keep": chunk["kept"]} if self._keeps else {}
        logits = self.model(**unmasked(chunk["input_ids"]), use_cache=False, **keeping).logits
        return logits if self._keeps else logits[:, chunk["kept"]]


def _labels(row: PromptAndTarget) -> list[int]:
    """The next token at each position, or ``IGNORED`` where that is not part of the target."""
    ignored = max(row.prompt_length - 1, 0)
    return [IGNORED] * ignored + [*row.tokens[ignored + 1 :], IGNORED]
