"""Encoders that give each token of a text a vector, from any of their layers (Q4, Q8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.core.errors import ModelError
from pairsmith.models.encode import moved
from pairsmith.models.heads import Loading, TextModel, load_with_head, written_by

Ints = NDArray[np.int64]


class TokenEncoder(TextModel):
    """A transformer without a head; see ``TextModel``."""

    @property
    def layers(self) -> int:
        """The number of layers; the vectors of layer 0 are the input of the first layer."""
        return int(self.model.config.num_hidden_layers)

    def text_tokens(self, texts: Sequence[str]) -> list["TextTokens"]:
        """The positions in each text of the tokens of ``features``."""
        encoded = self.tokenized(texts, return_offsets_mapping=True)
        return [
            _text_tokens(text, encoded.sequence_ids(row), encoded["offset_mapping"][row])
            for row, text in enumerate(texts)
        ]

    def states(self, features: Mapping[str, Tensor]) -> Sequence[Tensor]:
        """The vectors of each layer from 0 on (Q8), each ``(n, longest, d)`` in the model's dtype.

        ``features`` are those of n texts; there is a tensor more than ``layers``.
        """
        inputs = moved(features, self.model.device)
        states: Sequence[Tensor] = self.model(**inputs, output_hidden_states=True).hidden_states
        return states

    def is_special(self, features: Mapping[str, Tensor]) -> Tensor:
        """``(n, longest)`` bool, true for tokens that mark a text's start or end, and for padding."""
        names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
        ids = [getattr(self.tokenizer, name) for name in names]
        return torch.isin(features["input_ids"], torch.tensor([token for token in ids if token is not None]))


@dataclass(frozen=True, slots=True, eq=False)
class TextTokens:
    """The tokens of a text that are neither special nor white space alone."""

    numbers: Ints  # (tokens,), their indices among all tokens of the text
    offsets: Ints  # (tokens, 2), where they begin and end in the text, in characters


def _text_tokens(text: str, parts: Sequence[int | None], offsets: Sequence[tuple[int, int]]) -> TextTokens:
    tokens = enumerate(zip(parts, offsets, strict=True))
    rows = [(n, *span) for n, (part, span) in tokens if part == 0 and text[slice(*span)].strip()]
    table = np.array(rows, np.int64).reshape(-1, 3)
    return TextTokens(table[:, 0], table[:, 1:])


def start_tokens(offsets: Ints, positions: Ints) -> Ints:
    """The token that contains each position; the next token if the position lies between two (Q5).

    Args:
        offsets: ``(tokens, 2)`` int64, where the tokens, none of them empty, begin and end, in characters.
        positions: ``(n,)`` int64, characters at which something starts.

    Returns:
        rows of ``offsets``, ``(n,)`` int64; -1 for a position after the last token.
    """
    tokens: Ints = np.searchsorted(offsets[:, 1], positions, side="right").astype(np.int64)
    tokens[tokens == len(offsets)] = -1
    return tokens


def end_tokens(offsets: Ints, positions: Ints) -> Ints:
    """The token that contains the character before each position; the previous token if none does (Q5).

    Args:
        offsets: ``(tokens, 2)`` int64, as for ``start_tokens``.
        positions: ``(n,)`` int64, characters before which something ends.

    Returns:
        rows of ``offsets``, ``(n,)`` int64; -1 for a position before the first token, or after the last one,
        where the text was cut off.
    """
    tokens: Ints = np.searchsorted(offsets[:, 0], positions, side="left").astype(np.int64) - 1
    if len(offsets):
        tokens[positions > offsets[-1, 1]] = -1
    return tokens


def load_token_encoder(
    model: str, *, encoder_only: bool = False, bidirectional: bool = False, **how: Unpack[Loading]
) -> TokenEncoder:
    """Load ``model``, or the encoder of an encoder-decoder, as a token encoder, as ``load_with_head`` loads.

    With ``encoder_only`` an encoder-decoder is refused. With ``bidirectional``, too, and the tokens of a
    causal language model attend to later ones: its mask is removed.
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
    """Remove the causal mask of a language model, in place; its saved configuration records it."""
    network.config.is_causal = False
    two = torch.tensor([[0, 1], [0, 2]], device=network.device)
    with torch.inference_mode():
        first = network.eval()(input_ids=two, attention_mask=torch.ones_like(two)).last_hidden_state[:, 0]
    if torch.equal(first[0], first[1]):
        raise ModelError(
            f"model {model}: models of type {network.config.model_type} cannot attend to later tokens; turn "
            "bidirectional attention off, or give another model"
        )
