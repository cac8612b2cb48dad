"""Encoders that give each token of a text a vector, of any of their layers (Q4, Q8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.encoders.heads import load_with_head
from pairsmith.errors import ModelError
from pairsmith.modelnames import DtypeName


@dataclass(frozen=True, slots=True)
class TokenEncoder:
    """A transformer without a head, its tokenizer, and the longest input in tokens."""

    model: Any
    tokenizer: Any
    max_length: int

    @property
    def layers(self) -> int:
        """How many there are; the vectors of layer 0 are those that go into the first."""
        return int(self.model.config.num_hidden_layers)

    def features(self, texts: Sequence[str]) -> Mapping[str, Tensor]:
        """What the model takes for n texts, padded: ``(n, longest)``; a text that is too long is cut off."""
        found: Mapping[str, Tensor] = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=self.max_length,
            padding=True,
            split_special_tokens=True,  # a text may hold what looks like one
            return_tensors="pt",
            verbose=False,
        )
        return found

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special ones included."""
        found = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=self.max_length,
            split_special_tokens=True,
            verbose=False,
        )
        return [len(ids) for ids in found["input_ids"]]

    def text_tokens(self, texts: Sequence[str]) -> list["TextTokens"]:
        """Where the tokens of ``features`` stand in each text."""
        encoded = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=self.max_length,
            split_special_tokens=True,
            return_offsets_mapping=True,
            verbose=False,
        )
        return [
            _text_tokens(text, encoded.sequence_ids(row), encoded["offset_mapping"][row])
            for row, text in enumerate(texts)
        ]

    def states(self, features: Mapping[str, Tensor]) -> Sequence[Tensor]:
        """The vectors of each layer from 0 on, each ``(n, longest, d)``."""
        device = self.model.device
        moved = {name: value.to(device) for name, value in features.items()}
        found: Sequence[Tensor] = self.model(**moved, output_hidden_states=True).hidden_states
        return found

    def is_special(self, features: Mapping[str, Tensor]) -> Tensor:
        """``(n, longest)`` bool, which tokens mark a text's begin or end, padding included."""
        names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
        ids = [getattr(self.tokenizer, name) for name in names]
        return torch.isin(features["input_ids"], torch.tensor([each for each in ids if each is not None]))


@dataclass(frozen=True, slots=True, eq=False)
class TextTokens:
    """The tokens of a text that are neither special nor white space alone.

    Attributes:
        numbers: ``(tokens,)`` int64, their places among all tokens.
        offsets: ``(tokens, 2)`` int64, where they begin and end in the text, in characters.
    """

    numbers: NDArray[np.int64]
    offsets: NDArray[np.int64]


def _text_tokens(text: str, parts: Sequence[int | None], offsets: Sequence[tuple[int, int]]) -> TextTokens:
    each = enumerate(zip(parts, offsets, strict=True))
    found = [(n, *span) for n, (part, span) in each if part == 0 and text[slice(*span)].strip()]
    table = np.array(found, np.int64).reshape(-1, 3)
    return TextTokens(table[:, 0], table[:, 1:])


def load_token_encoder(
    model: str,
    *,
    device: str = "auto",
    dtype: DtypeName = "float32",
    max_length: int | None = None,
    bidirectional: bool = False,
) -> TokenEncoder:
    """Load ``model`` as an encoder of tokens.

    Args:
        model: a folder or Hub id in the format of transformers; ``pairsmith:tiny``;
            ``embedded:all-minilm-l6-v2``. Of one with an encoder and a decoder it is the encoder.
        device: as for ``pick_device``.
        dtype: of the weights.
        max_length: longest text in tokens, special ones included; never more than the model's context, which
            is the default.
        bidirectional: refuse all but an encoder alone, in which the first token knows of the others.

    Raises:
        ModelError: the model is missing or incomplete, its tokenizer cannot be used, or it is another kind of
            model than is wanted.
        MissingExtra: an embedded model whose package is not installed.
        SettingsError: there is no such device.
    """
    network, tokenizer, context = load_with_head(model, "token vectors", device=device, dtype=dtype)
    if bidirectional and (network.config.is_encoder_decoder or type(network.config) not in _masked()):
        raise ModelError(
            f"model {model}: models of type {network.config.model_type} are no encoders alone, whose first "
            "token knows of all others; give BERT, RoBERTa or the like"
        )
    if network.config.is_encoder_decoder:
        network = network.get_encoder()
    return TokenEncoder(network, tokenizer, min(max_length or context, context))


def _masked() -> Any:
    """The kinds of models that fill in masks, and so look at a text from both sides."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    return MODEL_FOR_MASKED_LM_MAPPING
