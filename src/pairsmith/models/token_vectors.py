"""Encoders that give each token of a text a vector, from any of their layers (Q4, Q8)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.core.errors import ModelError
from pairsmith.core.model_names import DtypeName
from pairsmith.models.heads import load_with_head


@dataclass(frozen=True, slots=True)
class TokenEncoder:
    """A transformer without a head, its tokenizer, and the longest input in tokens."""

    model: Any
    tokenizer: Any
    max_length: int

    @property
    def layers(self) -> int:
        """The number of layers; the vectors of layer 0 are the input of the first layer."""
        return int(self.model.config.num_hidden_layers)

    def features(self, texts: Sequence[str]) -> Mapping[str, Tensor]:
        """Model inputs for n texts, padded: ``(n, longest)``; a text that is too long is cut off."""
        found: Mapping[str, Tensor] = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=self.max_length,
            padding=True,
            split_special_tokens=True,  # a text may hold what looks like a special token
            return_tensors="pt",
            verbose=False,
        )
        return found

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, special tokens included."""
        found = self.tokenizer(
            list(texts),
            truncation=True,
            max_length=self.max_length,
            split_special_tokens=True,
            verbose=False,
        )
        return [len(ids) for ids in found["input_ids"]]

    def text_tokens(self, texts: Sequence[str]) -> list["TextTokens"]:
        """The positions in each text of the tokens of ``features``."""
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
        """``(n, longest)`` bool, true for tokens that mark a text's start or end, and for padding."""
        names = ("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
        ids = [getattr(self.tokenizer, name) for name in names]
        return torch.isin(features["input_ids"], torch.tensor([each for each in ids if each is not None]))


@dataclass(frozen=True, slots=True, eq=False)
class TextTokens:
    """The tokens of a text that are neither special nor white space alone.

    Attributes:
        numbers: ``(tokens,)`` int64, their indices among all tokens of the text.
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
    """Load ``model`` as a token encoder.

    Args:
        model: a folder or Hub id in the format of transformers; ``pairsmith:tiny``;
            ``embedded:all-minilm-l6-v2``. Of an encoder-decoder the encoder is taken.
        device: as for ``pick_device``.
        dtype: number format of the weights.
        max_length: longest text in tokens, special tokens included; never more than the model's context,
            which is the default.
        bidirectional: refuse anything but an encoder alone, in which the first token attends to all others.
    """
    network, tokenizer, context = load_with_head(model, "token vectors", device=device, dtype=dtype)
    if bidirectional and (network.config.is_encoder_decoder or type(network.config) not in _masked()):
        raise ModelError(
            f"model {model}: models of type {network.config.model_type} are not encoder-only models, whose "
            "first token attends to all others; give BERT, RoBERTa or the like"
        )
    if network.config.is_encoder_decoder:
        network = network.get_encoder()
    return TokenEncoder(network, tokenizer, min(max_length or context, context))


def _masked() -> Any:
    """The configurations of masked language models, whose attention is bidirectional."""
    from transformers import MODEL_FOR_MASKED_LM_MAPPING

    return MODEL_FOR_MASKED_LM_MAPPING
