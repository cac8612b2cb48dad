"""From the logits of many rows to the next-token choices of each group: rule (D3), top-k and top-p (D4).

``_over_vocabulary`` computes them as the equations say, over all tokens: softmax, the rule of ``combine.py``,
the truncation of ``sampling.py``. ``_over_candidates`` is faster: it reads the vocabulary once, for the
normaliser of each row and for the likeliest tokens of each main prompt, its **candidates**, and applies rule
and truncation to these alone. The result is used if the candidates provably include every token that top-k
or top-p can keep; the other groups are computed over the whole vocabulary.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from pairsmith.core.errors import SettingsError
from pairsmith.models.language.combine import Rule, counter_maximum, favours_main, is_built_in, rule_name
from pairsmith.models.language.sampling import Sampling, truncate

CANDIDATES = 64
"""Number of candidates with top-k, or four times k if that is more."""
NUCLEUS = 512
"""Number of candidates without top-k."""
ROWS_AT_ONCE = 16
"""Number of rows whose normalisers are computed at once on a CPU: a float32 copy should fit its cache."""


def token_choices(logits: Tensor, rows: Tensor, rule: Rule, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """The tokens that each group may draw next, the likeliest first, and their renormalised probabilities.

    Args:
        logits: ``(rows, vocab)`` of any floating-point format.
        rows: ``(groups, prompts)`` int64: the rows of each group, the main prompt's first, padded with -1.
        rule: combines the distributions of groups that have counter-prompts (D3).
        sampling: top-k and top-p (D4).

    Returns:
        as ``truncate``: the probabilities, ``(groups, k)`` float32, 0 after the last token of a group, and
        the ids, ``(groups, k)`` int64. If the logits of a group are not finite, neither are its
        probabilities.
    """
    count = max(CANDIDATES, 4 * sampling.top_k) if sampling.top_k else NUCLEUS
    # Candidates prove nothing about a steered group if the rule may favour any token, or top-k keeps all.
    unsteered = (rows[:, 1:] < 0).all(dim=1)
    all_provable = sampling.top_k > 0 and favours_main(rule)
    if count >= logits.shape[1] or not (all_provable or bool(unsteered.any())):
        return _over_vocabulary(logits, rows, rule, sampling)
    kept, tokens, proved = _over_candidates(logits, rows, rule, sampling, count)
    if not all_provable:
        proved &= unsteered
    if bool(proved.all()):
        return kept, tokens
    unproved = (~proved).nonzero().squeeze(1)
    exact_kept, exact_tokens = _over_vocabulary(logits, rows[unproved], rule, sampling)
    width = max(kept.shape[1], exact_kept.shape[1])
    kept, tokens, exact_kept, exact_tokens = (
        pad(table, (0, width - table.shape[1])) for table in (kept, tokens, exact_kept, exact_tokens)
    )
    kept[unproved], tokens[unproved] = exact_kept, exact_tokens
    return kept, tokens


def full_distributions(logits: Tensor, rows: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
    """The main prompts' distributions and those of the rule (D3), both ``(groups, vocab)`` float32."""
    distinct, indices = torch.unique(rows, return_inverse=True)
    padded = int(distinct[0] < 0)
    probabilities = torch.softmax(logits[distinct[padded:]], dim=1, dtype=torch.float32)
    indices = indices - padded  # -1 stays -1
    p_main = probabilities[indices[:, 0]]
    return p_main, _steered(rule, p_main, counter_maximum(probabilities, indices[:, 1:]), rows)


def _over_vocabulary(logits: Tensor, rows: Tensor, rule: Rule, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """The choices among all tokens, without the columns in which all probabilities are 0."""
    _, p_steered = full_distributions(logits, rows, rule)
    kept, tokens = truncate(p_steered, sampling.top_k, sampling.top_p)
    most = max(1, int((kept > 0).sum(dim=1).max())) if kept.numel() else 1
    return kept[:, :most], tokens[:, :most]


def _over_candidates(
    logits: Tensor, rows: Tensor, rule: Rule, sampling: Sampling, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The choices among the ``count`` likeliest tokens of each main prompt: probabilities and token ids.

    The third result, ``(groups,)``, is whether the whole vocabulary provably gives the same choices, for a
    group without counter-prompts or for a rule that favours the main prompt's tokens.
    """
    normaliser = normalisers(logits)
    main = rows[:, 0]
    likeliest, tokens = logits[main].topk(count, dim=1)
    last_candidate = likeliest[:, -1:]
    tokens, order = tokens.sort(dim=1)  # so that equally likely tokens stay in the order of their ids
    p_main = _probabilities(torch.cat([likeliest.gather(1, order), last_candidate], dim=1), normaliser[main])
    # The last column bounds any other token: at most as likely as the last candidate, and impossible
    # for the counter-prompts.
    p_counter = torch.zeros_like(p_main)
    for column in rows[:, 1:].T:
        groups = (column >= 0).nonzero().squeeze(1)
        counter_rows = column[groups]
        p_row = _probabilities(logits[counter_rows[:, None], tokens[groups]], normaliser[counter_rows])
        p_counter[groups, :-1] = torch.maximum(p_counter[groups, :-1], p_row)
    weights = _steered(rule, p_main, p_counter, rows)
    inside, outside = weights[:, :-1], weights[:, -1]
    kept, choices = truncate(inside, sampling.top_k, sampling.top_p)
    # Proved if the last token that top-k or top-p keeps outweighs the bound of every other token.
    if sampling.top_k:
        last = choices[:, -1:]
    else:
        last = choices.gather(1, (kept > 0).sum(dim=1, keepdim=True).clamp_(min=1) - 1)
    proved = (inside.gather(1, last).squeeze(1) > outside) | (outside == 0)
    return kept, tokens.gather(1, choices), proved


def _probabilities(logits: Tensor, normaliser: Tensor) -> Tensor:
    largest, rest = normaliser[:, None].unbind(dim=2)
    return (logits.float() - largest).sub_(rest).exp_()


def _steered(rule: Rule, p_main: Tensor, p_counter: Tensor, rows: Tensor) -> Tensor:
    """What the rule makes of groups with counter-prompts; the others keep ``p_main``."""
    steered = (rows[:, 1:] >= 0).any(dim=1)
    if not bool(steered.any()):
        return p_main
    if bool(steered.all()):
        return _checked_weights(rule, p_main, p_counter)
    result = p_main.clone()
    result[steered] = _checked_weights(rule, p_main[steered], p_counter[steered])
    return result


def _checked_weights(rule: Rule, p_main: Tensor, p_counter: Tensor) -> Tensor:
    """The weights that a rule returns, checked, as the rule may be the caller's own."""
    weights = rule(p_main, p_counter)
    if not isinstance(weights, Tensor) or weights.shape != p_main.shape:
        returned = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
        raise SettingsError(
            f"the rule {rule_name(rule)} must return a tensor of the shape of its arguments, "
            f"{tuple(p_main.shape)}, not {returned}"
        )
    if is_built_in(rule):
        return weights
    sums = weights.sum(-1)
    if not bool((weights >= 0).all() and (sums > 0).all() and sums.isfinite().all()):
        raise SettingsError(
            f"the rule {rule_name(rule)} must return finite weights of at least 0, some above 0; they are "
            f"from {float(weights.min()):g} to {float(weights.max()):g}"
        )
    return weights


def normalisers(logits: Tensor) -> Tensor:
    """The two numbers that turn a row's logits into probabilities by ``exp(logit - largest - rest)``.

    ``(rows, 2)`` float32: the largest logit, and the log-sum-exp of the logits minus the largest one. The sum
    of the two would lose precision if logits are large.
    """
    parts = []
    for part in torch.split(logits, ROWS_AT_ONCE if logits.device.type == "cpu" else len(logits)):
        # One fused pass for the softmax; its largest probability gives the sum.
        largest = torch.softmax(part, dim=1, dtype=torch.float32).amax(dim=1)
        parts.append(torch.stack([part.amax(dim=1).float(), -largest.log()], dim=1))
    return torch.cat(parts)
