"""Rules that make one next-token distribution out of those of several prompts.

Pure functions of one shape: the main prompt's probabilities and the counter-prompts', rows of
float32 over the vocabulary, in; renormalised probabilities out.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

Combine = Callable[[Tensor, Tensor], Tensor]
"""``(p_main, p_counter)``, each ``(rows, vocab)`` float32, to ``(rows, vocab)`` float32."""


def self_debias(p_main: Tensor, p_counter: Tensor, decay: float = 100.0, floor: float = 0.01) -> Tensor:
    """Lower the probability of tokens that a counter-prompt finds likelier than the main prompt does (D3).

    With ``delta = p_main - p_counter``, a token with ``delta < 0`` is multiplied by
    ``max(exp(decay * delta), floor)``; the rest stay; each row is then renormalised.

    Args:
        p_main: ``(rows, vocab)`` float32 in [0, 1], each row summing to 1.
        p_counter: ``(rows, vocab)`` float32 in [0, 1]: the maximum over the counter-prompts, all
            zeros for a row that has none.
        decay: lambda, at least 0; 0 leaves ``p_main`` as it is.
        floor: the smallest factor, 0 to 1.

    Returns:
        ``(rows, vocab)`` float32, each row summing to 1.

    Raises:
        ValueError: the shapes differ, or ``decay`` or ``floor`` is out of range.
    """
    if p_main.shape != p_counter.shape or p_main.ndim != 2:
        shapes = f"{tuple(p_main.shape)} and {tuple(p_counter.shape)}"
        raise ValueError(f"p_main and p_counter must both be (rows, vocab), not {shapes}")
    if not 0 <= decay < math.inf or not 0 <= floor <= 1:
        raise ValueError(f"decay must be at least 0 and floor in [0, 1], not {decay} and {floor}")
    exponent = (p_main - p_counter).clamp_(max=0).mul_(decay)
    if floor > 0:
        weighted = exponent.clamp_(min=math.log(floor)).exp_().mul_(p_main)
        return weighted.div_(weighted.sum(dim=1, keepdim=True))
    # Without a floor every factor of a row may underflow; its largest term is brought to 1 first.
    return torch.softmax(exponent.add_(p_main.log()), dim=1)


def counter_maximum(probabilities: Tensor, counters: Tensor) -> Tensor:
    """The largest probability that any counter-prompt of a group gives to each token (D3).

    Args:
        probabilities: ``(rows, vocab)`` float32, of all prompts.
        counters: ``(groups, most)`` int64 row numbers of each group's counter-prompts; -1 where a
            group has fewer than ``most``.

    Returns:
        ``(groups, vocab)`` float32; zeros for a group without counter-prompts.
    """
    largest = probabilities.new_zeros(counters.shape[0], probabilities.shape[1])
    for column in counters.T:
        held = (column >= 0).nonzero().squeeze(1)
        largest[held] = torch.maximum(largest[held], probabilities[column[held]])
    return largest
