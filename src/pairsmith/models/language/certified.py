"""Self-debiasing from lists of the likeliest tokens alone, where they prove the outcome.

Servers give a prompt's likeliest tokens with their log-probabilities, not whole distributions. A token
missing from a list is at most as likely as the list's last token, and as the mass that the list leaves. D3,
top-k and top-p often need no more: whatever the missing probabilities are, the same tokens are kept, with
the same weights. Then the step is exact, and certified; otherwise nothing is returned.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pairsmith.models.language.combine import self_debiased
from pairsmith.models.language.sampling import Sampling
from pairsmith.models.language.steering import Choices

LogProbabilities = Mapping[int, float]
"""A prompt's likeliest tokens and their log-probabilities; no other token is likelier than any of them."""


def certified(
    main: LogProbabilities,
    counters: Sequence[LogProbabilities],
    sampling: Sampling,
    decay: float,
    floor: float,
) -> Choices | None:
    """The choices of a next token by D3, with ``decay`` and ``floor``, and D4; None if not proved.

    They are the probabilities, ``(1, k)`` float32, and the tokens, ``(1, k)`` int64, that the whole
    distributions would give, up to rounding; k is at most top-k.

    Args:
        main: the list of the label's prompt.
        counters: those of its counter-prompts; lists may hold fewer tokens than were requested.
        sampling: with a top-k above 0.
        decay: lambda, at least 0.
        floor: the least factor of a probability, 0 to 1.

    Raises:
        ValueError: there is no top-k.
    """
    if not sampling.top_k:
        raise ValueError("without top-k, the tokens outside the lists always matter")
    tokens = sorted(main)
    if len(tokens) < sampling.top_k:
        return None
    p_main = _probabilities([main[token] for token in tokens])
    outside = _outside(main)
    least, most = torch.zeros_like(p_main), torch.zeros_like(p_main)
    for listed in counters:
        others = math.log(_outside(listed))
        least = torch.maximum(least, _probabilities([listed.get(token, -math.inf) for token in tokens]))
        most = torch.maximum(most, _probabilities([listed.get(token, others) for token in tokens]))
    # Weights fall as a counter-prompt's probability rises.
    high = self_debiased(p_main, least, decay, floor)
    low = self_debiased(p_main, most, decay, floor)
    low, order = low.sort(descending=True, stable=True)
    high = high[order]
    # Bounds of the sum that top-p takes its share of: of the k largest weights, listed or not.
    beside = torch.full((sampling.top_k,), outside)
    sums = (w.sort(descending=True).values[: sampling.top_k].sum() for w in (low, torch.cat([high, beside])))
    before = low.cumsum(0) - low
    share = (
        sampling.top_p if sampling.top_p < 1 else math.inf
    )  # at 1 rounding must not drop an unlikely token
    fewest, largest = (int((before[: sampling.top_k] < share * total).sum()) for total in sums)
    nucleus = low[:largest]
    next_best = max(outside, float(high[largest:].amax()) if largest < len(high) else 0.0)
    if fewest != largest or not torch.equal(nucleus, high[:largest]) or float(nucleus[-1]) <= next_best:
        return None
    return Choices((nucleus / nucleus.sum())[None], torch.tensor(tokens)[order[:largest]][None])


def _probabilities(logarithms: Sequence[float]) -> Tensor:
    return torch.tensor(logarithms, dtype=torch.float32).exp_()


def _outside(listed: LogProbabilities) -> float:
    """The largest probability that a token outside a list can have.

    That of the list's last token, or what the list leaves for all others together, which is above 0 because
    of rounding.
    """
    last = math.exp(min(listed.values(), default=0.0))
    return min(last, max(1.0 - sum(map(math.exp, listed.values())), 1e-6))
