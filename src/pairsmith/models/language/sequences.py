"""Sequences from encoder-decoder models, many for each input: by nucleus sampling or beam search (Q2).

Each sampled sequence has a random stream of its own, so that it does not depend on the rest of the batch.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pairsmith.core.batches import in_batches
from pairsmith.core.errors import ModelError
from pairsmith.models.encode import moved
from pairsmith.models.language.sampling import draw_tokens, truncate
from pairsmith.runs.seeds import uniforms

_LIKELIEST = (256, 4096)
"""Number of likeliest tokens among which the nucleus is searched, first and second; then all are sorted."""

_WORTHWHILE = 0.75
"""Finished sequences are dropped from the batch, which copies the cache, if at most this share remains."""


def nucleus(probabilities: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """The tokens of each row's nucleus, likeliest first, and their renormalised probabilities (Q2).

    The result is that of ``truncate`` without top-k, but computed faster if few tokens hold ``top_p`` of the
    probability. The nucleus of a row does not depend on the other rows; only its padding does.

    Args:
        probabilities: ``(rows, vocabulary)`` float32; each row sums to 1.
        top_p: share of the probability that a nucleus holds, above 0; 1 keeps the whole vocabulary.

    Returns:
        the probabilities, ``(rows, k)`` float32, 0 after the end of a row's nucleus, and the ids of the
        tokens, ``(rows, k)`` int64; k is the size of the largest nucleus.
    """
    if top_p >= 1:
        return truncate(probabilities, 0, top_p)
    incomplete = torch.arange(len(probabilities), device=probabilities.device)  # rows
    parts: list[tuple[Tensor, Tensor, Tensor]] = []
    for count in _LIKELIEST:
        if count < probabilities.shape[1] and len(incomplete):
            kept, tokens, complete = _among_likeliest(probabilities[incomplete], count, top_p)
            parts.append((incomplete[complete], kept[complete], tokens[complete]))
            incomplete = incomplete[~complete]
    if len(incomplete):
        parts.append((incomplete, *truncate(probabilities[incomplete], 0, top_p)))
    width = max((int((kept > 0).sum(dim=1).max()) for _, kept, _ in parts if len(kept)), default=1)
    kept_of_rows = probabilities.new_zeros(len(probabilities), width)
    tokens_of_rows = torch.zeros(len(probabilities), width, dtype=torch.int64, device=probabilities.device)
    for rows, kept, tokens in parts:
        columns = min(width, kept.shape[1])
        kept_of_rows[rows, :columns], tokens_of_rows[rows, :columns] = kept[:, :columns], tokens[:, :columns]
    return kept_of_rows, tokens_of_rows


def _among_likeliest(probabilities: Tensor, count: int, top_p: float) -> tuple[Tensor, Tensor, Tensor]:
    """The nucleus among the ``count`` likeliest tokens of rows, and whether it is complete, ``(rows,)``."""
    likely, tokens = probabilities.topk(count + 1, dim=1)
    before = likely.cumsum(dim=1) - likely
    inside = before < top_p
    # Other tokens may be as likely as the last one here.
    complete = ~(inside & (likely == likely[:, -1:])).any(dim=1)
    tied = ((likely[:, :-1] == likely[:, 1:]) & inside[:, :-1]).any(dim=1)
    if bool(tied.any()):
        tokens[tied] = _in_order(likely[tied], tokens[tied])
    kept = likely.masked_fill(~inside, 0.0)
    return kept / kept.sum(dim=1, keepdim=True), tokens, complete


def _in_order(likely: Tensor, tokens: Tensor) -> Tensor:
    """The tokens, likeliest first, equally likely ones in the order of their ids."""
    numbers, places = tokens.sort(dim=1)
    again = likely.gather(1, places).sort(dim=1, descending=True, stable=True).indices
    return numbers.gather(1, again)


def draw_sequences(
    network: Any,
    features: Mapping[str, Tensor],
    streams: Sequence[NDArray[np.uint64]],
    *,
    seed: int,
    top_p: float,
    max_tokens: int,
) -> list[list[list[int]]]:
    """Sample sequences for each of n inputs from an encoder-decoder network; each input is encoded once.

    The sequences of an input are in the order of their streams, without the start token, and with the end
    token if it was drawn.

    Args:
        features: the encoder's inputs: ``input_ids`` and ``attention_mask``, ``(n, longest)`` int64.
        streams: for each input the keys of its random streams, one per sequence to draw; one or more.
        seed: seed of the streams.
        top_p: share of the probability that the nucleus holds.
        max_tokens: longest sequence; one without an end token by then is cut off.
    """
    device, start = network.device, _first_token(network)
    ends = torch.tensor(network.generation_config.eos_token_id, device=device)
    keys = np.concatenate(list(streams))
    drawn = np.zeros((len(keys), max_tokens), np.int64)
    sequences = np.arange(len(keys))  # the sequence that each row of the batch continues
    with torch.inference_mode():
        inputs = moved(features, device)
        counts = torch.tensor([len(of_input) for of_input in streams], device=device)
        states = network.get_encoder()(**inputs)
        states.last_hidden_state = states.last_hidden_state.repeat_interleave(counts, dim=0)
        mask = inputs["attention_mask"].repeat_interleave(counts, dim=0)
        begun, cache = torch.full((len(keys), 1), start, device=device), None
        unfinished = torch.ones_like(begun[:, 0], dtype=torch.bool)
        rules = _rules(network.generation_config, device)
        for place in range(max_tokens):
            output = network(
                encoder_outputs=states,
                attention_mask=mask,
                decoder_input_ids=begun[:, -1:],
                past_key_values=cache,
                use_cache=True,
            )
            cache = output.past_key_values
            _refuse_nan(output.logits[:, -1])
            scores = rules(begun, output.logits[:, -1].float())
            # A nucleus is a small tensor, and not every device has float64.
            kept, tokens = (t.cpu() for t in nucleus(scores.softmax(dim=1), top_p))
            numbers = torch.from_numpy(uniforms(seed, keys[sequences], np.full(len(sequences), place + 1)))
            last = draw_tokens(kept, tokens, numbers).to(device)
            begun = torch.cat([begun, last[:, None]], dim=1)
            drawn[sequences, place] = last.cpu().numpy()
            unfinished &= ~torch.isin(last, ends)
            count = int(unfinished.sum())
            if not count:
                break
            if count <= _WORTHWHILE * len(unfinished):  # drop finished sequences
                rows = unfinished.nonzero()[:, 0]
                cache.batch_select_indices(rows)
                states.last_hidden_state, mask = states.last_hidden_state[rows], mask[rows]
                sequences, begun, unfinished = sequences[rows.cpu().numpy()], begun[rows], unfinished[rows]
    ended = iter([_upto(row, ends.tolist()) for row in drawn.tolist()])
    return [[next(ended) for _ in of_input] for of_input in streams]


def _rules(config: Any, device: torch.device) -> Any:
    """Logits processors for the tokens that a generation config forces or forbids, as language tokens are."""
    from transformers import (
        ForcedBOSTokenLogitsProcessor,
        LogitsProcessorList,
        NoBadWordsLogitsProcessor,
        SuppressTokensAtBeginLogitsProcessor,
        SuppressTokensLogitsProcessor,
    )

    rules, forced = LogitsProcessorList(), config.forced_bos_token_id
    if config.bad_words_ids is not None:
        ends = torch.as_tensor(config.eos_token_id, device=device).reshape(-1)
        rules.append(NoBadWordsLogitsProcessor(config.bad_words_ids, ends))
    if config.suppress_tokens is not None:
        rules.append(SuppressTokensLogitsProcessor(config.suppress_tokens, device=device))
    if config.begin_suppress_tokens is not None:
        first = 1 if forced is None else 2  # after the token that a decoder starts from, and a forced one
        rules.append(SuppressTokensAtBeginLogitsProcessor(config.begin_suppress_tokens, first, device=device))
    if forced is not None:
        rules.append(ForcedBOSTokenLogitsProcessor(forced))
    return rules


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
    """The sequences that beam search finds for each of n inputs of an encoder-decoder, the best first.

    They are returned without their beginning, and with the end token if there is one.

    Args:
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
    """
    from transformers import GenerationConfig, LogitsProcessorList
    from transformers.modeling_outputs import BaseModelOutput

    start = _first_token(network)
    decoder = torch.tensor([[start, *begin] for begin in begins], device=states.device)
    banned = torch.tensor(list(never), dtype=torch.int64, device=states.device)

    def allow(_: Tensor, scores: Tensor) -> Tensor:
        _refuse_nan(scores)
        return scores.index_fill(1, banned, -torch.inf)

    with torch.inference_mode():
        sequences = network.generate(
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
    rows = [_upto(row, end) for row in sequences[:, begun : begun + max_tokens].tolist()]
    return list(in_batches(rows, count))


def _refuse_nan(scores: Tensor) -> None:
    """Raise a ``ModelError`` if a score is NaN."""
    if torch.isnan(scores).any():
        raise ModelError(
            "the model's scores are not numbers; its weights are damaged, or its number format is too "
            "narrow: try float32"
        )


def _first_token(network: Any) -> int:
    """The token that a model's decoder starts from."""
    config = network.generation_config
    start = config.decoder_start_token_id
    return int(config.bos_token_id if start is None else start)


def _upto(row: list[int], end: int | Sequence[int]) -> list[int]:
    """The tokens up to and including the first end token."""
    ends = {end} if isinstance(end, int) else set(end)
    stop = next((place for place, token in enumerate(row) if token in ends), len(row))
    return row[: stop + 1]
