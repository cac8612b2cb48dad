"""Beam search for encoder-decoder models: the likeliest sequences for each input (Q2)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pairsmith.models.language.nucleus import first_token, refuse_nan, upto


def search_sequences(
    network: Any,
    states: Tensor,
    attention_mask: Tensor,
    begins: Sequence[Sequence[int]],
    *,
    beams: int,
    count: int,
    max_tokens: int,
    end: int | Sequence[int],
    never: Sequence[int] = (),
    length_penalty: float = 1.0,
) -> list[list[list[int]]]:
    """The sequences that beam search finds for each of n inputs, the likeliest first.

    Args:
        network: an encoder-decoder model of transformers.
        states: the encoder's outputs for the inputs, ``(n, longest, width)``.
        attention_mask: the mask of the inputs, ``(n, longest)`` int64.
        begins: the tokens that each input's sequences begin with, all of one length, which may be 0.
        beams: number of beams, 1 or more.
        count: sequences to return for each input, 1 to ``beams``.
        max_tokens: longest sequence without its beginning; one without an end token by then is cut off.
        end: the tokens that end a sequence.
        never: tokens that no sequence may contain.
        length_penalty: a sequence's log-probability is divided by its length to this power: 0 finds the
            likeliest sequences, 1 those with the likeliest tokens on average, which may be longer.

    Returns:
        for each input ``count`` sequences without their beginning, with the end token if there is one.
    """
    from transformers import GenerationConfig, LogitsProcessorList
    from transformers.modeling_outputs import BaseModelOutput

    start = first_token(network)
    decoder = torch.tensor([[start, *begin] for begin in begins], device=states.device)
    banned = torch.tensor(list(never), dtype=torch.int64, device=states.device)

    def allow(_: Tensor, scores: Tensor) -> Tensor:
        refuse_nan(scores)
        return scores.index_fill(1, banned, -torch.inf)

    with torch.inference_mode():
        found = network.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=attention_mask,
            decoder_input_ids=decoder,
            logits_processor=LogitsProcessorList([allow]),
            generation_config=GenerationConfig(
                do_sample=False,
                num_beams=beams,
                num_return_sequences=count,
                early_stopping=beams > 1,
                length_penalty=length_penalty,
                # Some models force an end as the last token, which is cut off.
                max_length=decoder.shape[1] + max_tokens + 1,
                eos_token_id=end,
                pad_token_id=network.generation_config.pad_token_id,
                decoder_start_token_id=start,
            ),
        )
    begun = decoder.shape[1]
    rows = [upto(row, end) for row in found[:, begun : begun + max_tokens].tolist()]
    return [rows[first : first + count] for first in range(0, len(rows), count)]
