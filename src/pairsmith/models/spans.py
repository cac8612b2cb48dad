"""The best span of a text by the probabilities of its start and of its end (Q7)."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Spans:
    """The best span of each of n windows.

    Attributes:
        starts: ``(n,)`` int64, the span's first token; ``ends``: its last.
        scores: ``(n,)`` float32 in [0, 1].
    """

    starts: Tensor
    ends: Tensor
    scores: Tensor


def best_span(start_logits: Tensor, end_logits: Tensor, allowed: Tensor, max_tokens: int) -> Spans:
    """The span of each window with the largest product of start and end probability (Q7).

    The softmax of the starts, and that of the ends, are taken over the allowed tokens.

    Args:
        start_logits: ``(n, tokens)`` of any floating dtype, as ``end_logits``; finite where allowed.
        end_logits: the same shape.
        allowed: ``(n, tokens)`` bool, where a span may start and end.
        max_tokens: longest span in tokens, at least 1.

    Returns:
        spans with ``start <= end < start + max_tokens``; ties go to the earliest start, then to the shortest
        span. A window without allowed tokens has score 0, start 0 and end 0.
    """
    shapes = {start_logits.shape, end_logits.shape, allowed.shape}
    if len(shapes) > 1 or allowed.ndim != 2 or not allowed.shape[1] or max_tokens < 1:
        raise ValueError(
            "expected three (n, tokens) with one token or more and max_tokens >= 1, got "
            f"{tuple(start_logits.shape)}, {tuple(end_logits.shape)}, {tuple(allowed.shape)}, {max_tokens}"
        )
    # Sums of logarithms: products of small probabilities would underflow to 0 and tie.
    starts, ends = (_log_softmax(logits, allowed) for logits in (start_logits, end_logits))
    longest = min(max_tokens, starts.shape[1])
    beyond = ends.new_full((len(ends), longest - 1), -torch.inf)
    ends_from = torch.cat([ends, beyond], dim=1).unfold(1, longest, 1)  # (n, tokens, longest)
    best_end, steps = ends_from.max(dim=2)
    score, start = (starts + best_end).max(dim=1)
    return Spans(start, start + steps.gather(1, start[:, None]).squeeze(1), score.exp())


def _log_softmax(logits: Tensor, allowed: Tensor) -> Tensor:
    """Logarithms of the softmax over the allowed tokens in float32; minus infinity elsewhere."""
    masked = logits.float().masked_fill(~allowed, -torch.inf)
    # Masked again, as a row without allowed tokens became NaN.
    return masked.log_softmax(dim=1).masked_fill(~allowed, -torch.inf)
