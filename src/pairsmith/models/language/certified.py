"""Self-debiasing from lists of the likeliest tokens, when the lists prove the result.

A server returns a prompt's likeliest tokens with their log-probabilities, not the whole distribution. A token
that is missing from a list is at most as likely as the last token of the list, and at most as likely as the
probability that the list leaves for all missing tokens. These bounds often suffice: whatever the missing
probabilities are, D3, top-k and top-p keep the same tokens with the same weights. Then the choices are exact
and called certified. Otherwise None is returned.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pairsmith.models.language.combine import self_debias_weights
from pairsmith.models.language.sampling import Sampling

LogProbabilities = Mapping[int, float]
"""A prompt's likeliest tokens and their log-probabilities; no other token is likelier than any of them."""


def certified(
    main: LogProbabilities,
    counters: Sequence[LogProbabilities],
    sampling: Sampling,
    decay: float,
    floor: float,
) -> tuple[Tensor, Tensor] | None:
    """The choices of a next token by D3 and D4; None if the lists do not prove them.

    The choices are the probabilities, ``(1, k)`` float32, and the tokens, ``(1, k)`` int64, that the whole
    distributions would give, up to rounding; k is at most top-k.

    Args:
        main: the list of the label's prompt.
        counters: the lists of its counter-prompts; lists may hold fewer tokens than were requested.
        sampling: top-k, which must be above 0, and top-p.
        decay: lambda of D3, at least 0.
        floor: the smallest factor of a probability in D3, 0 to 1.

    Raises:
        ValueError: there is no top-k.
    """
    if not sampling.top_k:
        raise ValueError("without top-k, the tokens outside the lists always matter")
    tokens = sorted(main)
    if len(tokens) < sampling.top_k:
        return None
    p_main = _probabilities([main[token] for token in tokens])
    # Bounds on the largest probability that a counter-prompt gives to each token.
    counter_low, counter_high = torch.zeros_like(p_main), torch.zeros_like(p_main)
    for listed in counters:
        unlisted = math.log(_largest_unlisted(listed))
        low, high = ([listed.get(token, p) for token in tokens] for p in (-math.inf, unlisted))
        counter_low = torch.maximum(counter_low, _probabilities(low))
        counter_high = torch.maximum(counter_high, _probabilities(high))
    # Bounds on each token's weight by D3, which falls as that probability rises.
    weight_high = self_debias_weights(p_main, counter_low, decay, floor)
    weight_low = self_debias_weights(p_main, counter_high, decay, floor)
    weight_low, order = weight_low.sort(descending=True, stable=True)
    weight_high = weight_high[order]
    # Bounds on the sum of the k largest weights, listed or not; top-p keeps a share of this sum.
    weight_unlisted = _largest_unlisted(main)
    with_unlisted = torch.cat([weight_high, torch.full((sampling.top_k,), weight_unlisted)])
    sums = (w.sort(descending=True).values[: sampling.top_k].sum() for w in (weight_low, with_unlisted))
    # Bounds on the number of tokens that top-p keeps; with top-p 1, rounding must not drop an unlikely one.
    share = sampling.top_p if sampling.top_p < 1 else math.inf
    likelier = (weight_low.cumsum(0) - weight_low)[: sampling.top_k]
    count_low, count_high = (int((likelier < share * total).sum()) for total in sums)
    # The kept tokens are proved if their bounds agree and no other token can weigh as much as they do.
    kept = weight_low[:count_high]
    largest_other = max(weight_unlisted, *weight_high[count_high:].tolist(), 0.0)
    proved = (
        count_low == count_high
        and torch.equal(kept, weight_high[:count_high])
        and float(kept[-1]) > largest_other
    )
    if not proved:
        return None
    return (kept / kept.sum())[None], torch.tensor(tokens)[order[:count_high]][None]


def _probabilities(logarithms: Sequence[float]) -> Tensor:
    return torch.tensor(logarithms, dtype=torch.float32).exp_()


def _largest_unlisted(listed: LogProbabilities) -> float:
    """The largest probability that a token outside a list can have.

    It is the probability of the list's last token or, if smaller, the probability that the list leaves for
    all other tokens, at least 1e-6 because of rounding.
    """
    # In float32, as the probabilities of the listed tokens are, so that a tie with the last one is a tie.
    last = float(_probabilities([min(listed.values(), default=0.0)]))
    return min(last, max(1.0 - sum(map(math.exp, listed.values())), 1e-6))
