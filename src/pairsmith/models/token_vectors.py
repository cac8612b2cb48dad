"""Token encoders, which compute a vector for each token of a text, at any of their layers (Q4, Q8)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.core.arguments import checked_texts
from pairsmith.core.errors import ModelError
from pairsmith.models.encode import moved
from pairsmith.models.heads import Loading, TextModel, load_with_head, written_by

Ints = NDArray[np.int64]


class TokenEncoder(TextModel):
    """A transformer without a head; see ``TextModel``."""

    @property
    def layers(self) -> int:
        """The number of layers. The vectors of layer 0 are the input of the first layer."""
        return int(self.model.config.num_hidden_layers)

    def text_tokens(self, texts: Iterable[str]) -> list["TextTokens"]:
        """For each text, the tokens of its ``features`` that are ordinary text, and their offsets."""
        if not (texts := checked_texts(texts, "texts")):
            return []
        encoded = self.tokenized(texts, return_offsets_mapping=True)
        return [
            _text_tokens(text, encoded.sequence_ids(row), encoded["offset_mapping"][row])
            for row, text in enumerate(texts)
        ]

    def states(self, features: Mapping[str, Tensor]) -> Sequence[Tensor]:
        """The token vectors of n texts at each layer (Q8): tensors ``(n, longest, d)`` in the model's dtype.

        There are ``layers`` + 1 tensors, for the layers from 0 on. ``features`` are those of the texts.
        """
        inputs = moved(features, self.model.device)
        states: Sequence[Tensor] = self.model(**inputs, output_hidden_states=True).hidden_states
        return states

    def is_special(self, features: Mapping[str, Tensor]) -> Tensor:
        """Whether each token marks the start or end of a text, or is padding: ``(n, longest)`` bool."""
        names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
        ids = [getattr(self.tokenizer, name) for name in names]
        return torch.isin(features["input_ids"], torch.tensor([token for token in ids if token is not None]))


@dataclass(frozen=True, slots=True, eq=False)
class TextTokens:
    """The tokens of a text that are neither special tokens nor white space."""

    numbers: Ints  # (tokens,) int64, their indices among all tokens of the text
    offsets: Ints  # (tokens, 2) int64, their starts and ends in the text, in characters


def _text_tokens(text: str, parts: Sequence[int | None], offsets: Sequence[tuple[int, int]]) -> TextTokens:
    tokens = enumerate(zip(parts, offsets, strict=True))
    rows = [(n, *span) for n, (part, span) in tokens if part == 0 and text[slice(*span)].strip()]
    table = np.array(rows, np.int64).reshape(-1, 3)
    return TextTokens(table[:, 0], table[:, 1:])


def start_tokens(offsets: Ints, positions: Ints) -> Ints:
    """For each start position, the token that contains it, or the next token if it lies between tokens (Q5).

    Args:
        offsets: ``(tokens, 2)`` int64, start and end of each token in characters; no token is empty.
        positions: ``(n,)`` int64, the offsets of first characters.

    Returns:
        The indices of the tokens, ``(n,)`` int64; -1 for a position after the last token.
    """
    tokens: Ints = np.searchsorted(offsets[:, 1], positions, side="right").astype(np.int64)
    tokens[tokens == len(offsets)] = -1
    return tokens


def end_tokens(offsets: Ints, positions: Ints) -> Ints:
    """For each end position, the token with the last character before it, or the previous token (Q5).

    The previous token is taken if this character lies between two tokens.

    Args:
        offsets: ``(tokens, 2)`` int64, as for ``start_tokens``.
        positions: ``(n,)`` int64, the offsets after last characters.

    Returns:
        The indices of the tokens, ``(n,)`` int64; -1 for a position before the first token, or after the last
        token of a truncated text.
    """
    tokens: Ints = np.searchsorted(offsets[:, 0], positions, side="left").astype(np.int64) - 1
    if len(offsets):
        tokens[positions > offsets[-1, 1]] = -1
    return tokens


def load_token_encoder(
    model: str, *, encoder_only: bool = False, bidirectional: bool = False, **how: Unpack[Loading]
) -> TokenEncoder:
    """Load ``model``, or the encoder of an encoder-decoder model, as a token encoder.

    Args:
        model: as for ``load_with_head``.
        encoder_only: whether an encoder-decoder model is an error.
        bidirectional: whether, in addition, the causal mask of a language model is removed, so that its
            tokens attend to later tokens, too.
        how: ``device``, ``dtype`` and ``max_length`` as for ``load_with_head``.
    """
    network, tokenizer, longest = load_with_head(model, "token vectors", **how)
    if network.config.is_encoder_decoder:
        if encoder_only or bidirectional:
            raise ModelError(
                f"model {model}: models of type {network.config.model_type} have an encoder and a decoder; "
                "give an encoder such as BERT or RoBERTa, or a causal language model"
            )
        network = network.get_encoder()
    elif bidirectional and written_by(network.config) == "decoder":
        see_both_ways(network, model)
    return TokenEncoder(network, tokenizer, longest)


def see_both_ways(network: Any, model: str) -> None:
    """Remove the causal mask of a language model, in place. Its configuration records this, and is saved.

    Raises:
        ModelError: the model attends only to earlier tokens, whatever its configuration.
    """
    network.config.is_causal = False
    # The state of the first token has to depend on the second token.
    ids = torch.tensor([[0, 1], [0, 2]], device=network.device)
    with torch.inference_mode():
        first = network.eval()(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 0]
    if torch.equal(first[0], first[1]):
        raise ModelError(
            f"model {model}: models of type {network.config.model_type} cannot attend to later tokens; turn "
            "bidirectional attention off, or give another model"
        )
