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
    # Bounds of the largest probability that a counter-prompt gives to each token.
    counter_low, counter_high = torch.zeros_like(p_main), torch.zeros_like(p_main)
    for listed in counters:
        unlisted = math.log(_largest_unlisted(listed))
        low, high = ([listed.get(token, p) for token in tokens] for p in (-math.inf, unlisted))
        counter_low = torch.maximum(counter_low, _probabilities(low))
        counter_high = torch.maximum(counter_high, _probabilities(high))
    # Bounds of each token's weight by D3, which falls as that probability rises.
    weight_high = self_debiased(p_main, counter_low, decay, floor)
    weight_low = self_debiased(p_main, counter_high, decay, floor)
    weight_low, order = weight_low.sort(descending=True, stable=True)
    weight_high = weight_high[order]
    # Bounds of the sum of the k largest weights, listed or not, of which top-p keeps a share.
    weight_unlisted = _largest_unlisted(main)
    with_unlisted = torch.cat([weight_high, torch.full((sampling.top_k,), weight_unlisted)])
    sums = (w.sort(descending=True).values[: sampling.top_k].sum() for w in (weight_low, with_unlisted))
    # Bounds of the number of tokens that top-p keeps; at 1 rounding must not drop an unlikely one.
    share = sampling.top_p if sampling.top_p < 1 else math.inf
    likelier = (weight_low.cumsum(0) - weight_low)[: sampling.top_k]
    count_low, count_high = (int((likelier < share * total).sum()) for total in sums)
    # Where the bounds meet, and no other token can weigh as much as those that are kept, these are proved.
    kept = weight_low[:count_high]
    largest_other = max(weight_unlisted, *weight_high[count_high:].tolist(), 0.0)
    proved = (
        count_low == count_high
        and torch.equal(kept, weight_high[:count_high])
        and float(kept[-1]) > largest_other
    )
    if not proved:
        return None
    return Choices((kept / kept.sum())[None], torch.tensor(tokens)[order[:count_high]][None])


def _probabilities(logarithms: Sequence[float]) -> Tensor:
    return torch.tensor(logarithms, dtype=torch.float32).exp_()


def _largest_unlisted(listed: LogProbabilities) -> float:
    """The largest probability that a token outside a list can have.

    That of the list's last token, or what the list leaves for all others together, which is above 0 because
    of rounding.
    """
    last = math.exp(min(listed.values(), default=0.0))
    return min(last, max(1.0 - sum(map(math.exp, listed.values())), 1e-6))
