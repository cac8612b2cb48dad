"""Beam search of a decoder-only model, in which the beams of a text share the text's keys and values.

The search is that of transformers. Without sharing, it computes a text once for each beam, holds its keys and
values once for each beam, and copies them all at every step. Here a text is computed and held once, and a
step copies only the few tokens that beams have added.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from copy import deepcopy
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from pairsmith.models.language.shared_cache import ATTENTION, SharedCache
from pairsmith.models.language.transformers_backend import has_shared_attention


class BeamCache(SharedCache):
    """The cache of a search: each text's keys and values in a slot, each beam's tokens in its tail.

    Args:
        computed: the keys and values of ``texts`` rows, padded on the left.
        mask: 1 for their tokens, 0 for padding, ``(texts, width)`` int64.
        beams: of each text.
        tail: the most tokens fed to a beam.
    """

    def __init__(self, computed: DynamicCache, mask: Tensor, beams: int, tail: int) -> None:
        texts, self._width = mask.shape
        super().__init__(texts * beams, (0, 0), self._width, tail, slots=texts, shared=True)
        for text, length in enumerate(mask.sum(dim=1).tolist()):
            first = self._width - length
            states = [(x.keys[text, :, first:], x.values[text, :, first:]) for x in computed.layers]
            self.put(text, -1, states)
        self.add_rows(text for text in range(texts) for _ in range(beams))

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Continue the beam ``beam_idx[i]`` in row i."""
        self.keep_rows(beam_idx.tolist())

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The number of tokens that a row has, padding included."""
        del layer_idx
        return self._width + self._fed[0]


def can_share_beams(network: Any) -> bool:
    """Whether ``search_shared_beams`` supports a model: a decoder-only model of a known type."""
    return not network.config.is_encoder_decoder and has_shared_attention(network)


def search_shared_beams(network: Any, features: Mapping[str, Tensor], how: Any, rules: Any) -> Tensor:
    """The token sequences of a beam search, as ``network.generate`` returns them: texts with continuations.

    ``how`` is the ``GenerationConfig`` of the search, ``rules`` a ``LogitsProcessorList`` of further rules.
    ``features`` has ``input_ids`` and ``attention_mask``, ``(texts, width)`` int64, padded on the left, with
    a width of 2 or more. All tokens of a text but the last are computed once for its beams.
    """
    mask = features["attention_mask"]
    with torch.inference_mode():
        before = mask[:, :-1]
        computed = DynamicCache()
        network.base_model(
            input_ids=features["input_ids"][:, :-1],
            attention_mask=before,
            position_ids=(before.cumsum(dim=1) - 1).clamp(min=0),
            past_key_values=computed,
            use_cache=True,
        )
        cache = BeamCache(computed, before, how.num_beams, how.max_new_tokens + 1)
        del computed
        # A copy with the same weights, as other threads use the network with its own attention.
        tensors = chain(network.parameters(), network.buffers())
        stepping = deepcopy(network, {id(tensor): tensor for tensor in tensors})
        stepping.set_attn_implementation(ATTENTION)
        with ExitStack() as step:

            def begin(*_: Any) -> None:
                step.enter_context(cache.step(mask.device, len(mask) * how.num_beams))

            stepping.register_forward_pre_hook(begin)
            stepping.register_forward_hook(lambda *_: step.close())
            sequences: Tensor = stepping.generate(
                **features, past_key_values=cache, generation_config=how, logits_processor=rules
            )
    return sequences
