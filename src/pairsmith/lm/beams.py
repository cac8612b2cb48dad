"""Beam search of models with an encoder and a decoder: the likeliest sequences for each input (Q2)."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pairsmith.lm.nucleus import first_token, upto


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
) -> list[list[list[int]]]:
    """The sequences that beam search finds for each of n inputs, the likeliest first.

    Args:
        network: of transformers, with an encoder and a decoder.
        states: what its encoder gave for the inputs, ``(n, longest, width)``.
        attention_mask: of the inputs, ``(n, longest)`` int64.
        begins: what the sequences of each input begin with, all of one length, which may be 0.
        beams: sequences that are followed at once, 1 or more.
        count: sequences of each input that are returned, 1 to ``beams``.
        max_tokens: longest sequence without its beginning; one without an end by then is cut off.
        end: the tokens that end a sequence.

    Returns:
        of each input ``count`` sequences without their beginning, the end included where it was written.
    """
    from transformers import GenerationConfig
    from transformers.modeling_outputs import BaseModelOutput

    start = first_token(network)
    decoder = torch.tensor([[start, *begin] for begin in begins], device=states.device)
    with torch.inference_mode():
        found = network.generate(
            encoder_outputs=BaseModelOutput(last_hidden_state=states),
            attention_mask=attention_mask,
            decoder_input_ids=decoder,
            generation_config=GenerationConfig(
                do_sample=False,
                num_beams=beams,
                num_return_sequences=count,
                early_stopping=True,
                max_length=decoder.shape[1] + max_tokens,
                eos_token_id=end,
                pad_token_id=network.generation_config.pad_token_id,
                decoder_start_token_id=start,
            ),
        )
    rows = [upto(row, end) for row in found[:, decoder.shape[1] :].tolist()]
    return [rows[first : first + count] for first in range(0, len(rows), count)]
