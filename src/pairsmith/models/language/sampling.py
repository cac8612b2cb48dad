"""Truncation by top-k and top-p, and the drawing of tokens, for all rows at once (D4)."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a continuation is drawn and when it ends: under D4 only at ``stop`` or ``max_tokens``."""

    top_k: int = 5  # keep the k most likely tokens; 0 keeps all
    top_p: float = 0.9  # of these, keep the fewest likeliest that hold this share of their probability
    max_tokens: int = 40  # a continuation without the stop string after this many tokens is given up
    stop: str = '"'  # the text ends before its first occurrence
    may_end: bool = False  # whether the model may also end the text with an end token

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if self.top_k < 0 or not 0 < self.top_p <= 1 or self.max_tokens < 1 or not self.stop:
            raise ValueError(
                f"top_k >= 0, 0 < top_p <= 1, max_tokens >= 1 and a stop string are needed, not {self}"
            )


def truncate(probabilities: Tensor, top_k: int, top_p: float) -> tuple[Tensor, Tensor]:
    """The tokens that may be drawn, the likeliest first, and their renormalised probabilities (D4).

    Top-k (0 for all tokens) is applied first. Top-p is then applied to the renormalised probabilities of the
    k tokens; the token that crosses ``top_p`` is kept, so that at least one token remains. Equally likely
    tokens are taken in the order of their ids.

    Args:
        probabilities: ``(rows, vocab)`` float32, each row summing to 1.
        top_k: number of tokens to keep, 0 for all.
        top_p: share of their probability to keep, above 0 and at most 1.

    Returns:
        the probabilities, ``(rows, k)`` float32, 0 for truncated tokens, and the ids, ``(rows, k)`` int64.
    """
    vocab = probabilities.shape[1]
    if 0 < top_k < vocab:
        kept, tokens = _top(probabilities, top_k)
        kept = kept / kept.sum(dim=1, keepdim=True)
    else:
        kept, tokens = probabilities.sort(dim=1, descending=True, stable=True)
    if top_p < 1:
        before = kept.cumsum(dim=1) - kept
        kept = kept.masked_fill(before >= top_p, 0.0)
        kept = kept / kept.sum(dim=1, keepdim=True)
    return kept, tokens


def _top(probabilities: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each row and their columns, the largest first, equal ones by rising column.

    ``topk`` is fast, but does not define which of several equal values it takes, nor in which order.
    """
    kept, tokens = probabilities.topk(k + 1, dim=1)
    tied = (kept[:, :-1] == kept[:, 1:]).any(dim=1)
    kept, tokens = kept[:, :k], tokens[:, :k]
    if bool(tied.any()):
        ordered, numbers = probabilities[tied].sort(dim=1, descending=True, stable=True)
        kept, tokens = kept.clone(), tokens.clone()
        kept[tied], tokens[tied] = ordered[:, :k], numbers[:, :k]
    return kept, tokens


def draw_tokens(kept: Tensor, tokens: Tensor, uniforms: Tensor) -> Tensor:
    """Draw one token per row, ``(rows,)`` int64, by inverting the cumulative distribution.

    ``kept`` and ``tokens`` are the results of ``truncate``; ``uniforms`` are random numbers, ``(rows,)``
    float64 in [0, 1). A token of probability 0 is never drawn.
    """
    cumulative = kept.double().cumsum(dim=1)
    # Scaling by the sum keeps rounding from pushing a draw past the last token with any mass.
    places = (cumulative <= uniforms[:, None].to(cumulative) * cumulative[:, -1:]).sum(dim=1)
    last = (kept > 0).sum(dim=1) - 1
    return tokens.gather(1, torch.minimum(places, last)[:, None]).squeeze(1)
