"""From the logits of many rows to the next-token choices of each group: rule (D3), top-k and top-p (D4).

The whole vocabulary is read once: for the normaliser of each row, and for the likeliest tokens of each main
prompt, its **candidates**. If these provably include every token that top-k or top-p can keep, rule and
truncation are computed on the candidates alone. For the other groups they are computed over the whole
vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pairsmith.core.errors import SettingsError
from pairsmith.models.language.combine import Combine, counter_maximum, favours_main, is_built_in, rule_name
from pairsmith.models.language.sampling import Sampling, truncate

CANDIDATES = 64
"""Number of candidates with top-k, or four times k if that is more."""
NUCLEUS = 512
"""Number of candidates without top-k."""
ROWS_AT_ONCE = 16
"""Number of rows whose normalisers are computed at once on a CPU: a float32 copy should fit its cache."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The tokens that each group may draw, the likeliest first: probabilities and ids, both ``(groups, k)``.

    ``kept`` are the probabilities, float32, 0 beyond a group's last token; ``tokens`` the ids, int64.
    """

    kept: Tensor
    tokens: Tensor


def token_choices(logits: Tensor, rows: Tensor, rule: Combine, sampling: Sampling) -> Choices:
    """Find the tokens that each group may draw next, and their probabilities, which sum to 1.

    The number of columns is that of the group with the most tokens. If the logits of a group are not finite,
    neither are its probabilities.

    Args:
        logits: ``(rows, vocab)`` of any floating-point format.
        rows: ``(groups, prompts)`` int64: the rows of each group, the main prompt's first, padded with -1.
        rule: combines the distributions of groups that have counter-prompts.
        sampling: top-k and top-p.
    """
    vocab = logits.shape[1]
    count = max(CANDIDATES, 4 * sampling.top_k) if sampling.top_k else NUCLEUS
    steered = rows.shape[1] > 1
    never_proved = steered and not (sampling.top_k and favours_main(rule)) and bool((rows[:, 1] >= 0).all())
    if count >= vocab or never_proved:
        return _over_vocabulary(logits, rows, rule, sampling)
    kept, tokens, proved = _over_candidates(logits, rows, rule, sampling, count)
    if bool(proved.all()):
        return Choices(kept, tokens)
    unproved = (~proved).nonzero().squeeze(1)
    exact = _over_vocabulary(logits, rows[unproved], rule, sampling)
    width = max(kept.shape[1], exact.kept.shape[1])
    kept, tokens = (torch.nn.functional.pad(t, (0, width - t.shape[1])) for t in (kept, tokens))
    kept[unproved], tokens[unproved] = 0.0, 0
    kept[unproved, : exact.kept.shape[1]], tokens[unproved, : exact.kept.shape[1]] = exact.kept, exact.tokens
    return Choices(kept, tokens)


def combined(logits: Tensor, rows: Tensor, rule: Combine) -> tuple[Tensor, Tensor]:
    """The main prompts' and the combined distributions over the vocabulary, ``(groups, vocab)`` float32."""
    distinct, indices = torch.unique(rows, return_inverse=True)
    padded = int(distinct[0] < 0)
    probabilities = torch.softmax(logits[distinct[padded:]], dim=1, dtype=torch.float32)
    indices = indices - padded  # -1 stays -1
    p_main = probabilities[indices[:, 0]]
    return p_main, _steered(rule, p_main, counter_maximum(probabilities, indices[:, 1:]), rows)


def _over_vocabulary(logits: Tensor, rows: Tensor, rule: Combine, sampling: Sampling) -> Choices:
    kept, tokens = truncate(combined(logits, rows, rule)[1], sampling.top_k, sampling.top_p)
    most = max(1, int((kept > 0).sum(dim=1).max())) if kept.numel() else 1
    return Choices(kept[:, :most], tokens[:, :most])


def _over_candidates(
    logits: Tensor, rows: Tensor, rule: Combine, sampling: Sampling, count: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The choices among the ``count`` likeliest tokens of each main prompt: probabilities and token ids.

    The third result is a mask of the groups for which the whole vocabulary provably gives the same choices.
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
    last = choices.gather(1, (kept > 0).sum(dim=1, keepdim=True).clamp_(min=1) - 1)
    if sampling.top_k:
        last = choices[:, -1:]
    # Proved if the last token that is kept outweighs the bound of every token that is no candidate.
    proved = (inside.gather(1, last).squeeze(1) > outside) | (outside == 0)
    if rows.shape[1] > 1 and not (sampling.top_k and favours_main(rule)):
        proved &= rows[:, 1] < 0
    if not sampling.top_k:  # of groups without counter-prompts, whose weights are their probabilities
        proved &= inside.sum(dim=1) >= sampling.top_p
    return kept, tokens.gather(1, choices), proved


def _probabilities(logits: Tensor, normaliser: Tensor) -> Tensor:
    largest, rest = normaliser[:, None].unbind(dim=2)
    return (logits.float() - largest).sub_(rest).exp_()


def _steered(rule: Combine, p_main: Tensor, p_counter: Tensor, rows: Tensor) -> Tensor:
    """The rule's distribution for groups with counter-prompts, the main prompt's for the others."""
    steered = (rows[:, 1:] >= 0).any(dim=1)
    if not bool(steered.any()):
        return p_main
    if bool(steered.all()):
        return _rule_weights(rule, p_main, p_counter)
    result = p_main.clone()
    result[steered] = _rule_weights(rule, p_main[steered], p_counter[steered])
    return result


def _rule_weights(rule: Combine, p_main: Tensor, p_counter: Tensor) -> Tensor:
    """The weights that a rule returns, checked: the rule may be the caller's own."""
    combined = rule(p_main, p_counter)
    if not isinstance(combined, Tensor) or combined.shape != p_main.shape:
        returned = tuple(combined.shape) if isinstance(combined, Tensor) else type(combined).__name__
        raise SettingsError(
            f"the rule {rule_name(rule)} must return a tensor of the shape of its arguments, "
            f"{tuple(p_main.shape)}, not {returned}"
        )
    if not is_built_in(rule) and not _are_weights(combined):
        raise SettingsError(
            f"the rule {rule_name(rule)} must return finite weights of at least 0, some above 0; they are "
            f"from {float(combined.min()):g} to {float(combined.max()):g}"
        )
    return combined


def _are_weights(combined: Tensor) -> bool:
    sums = combined.sum(-1)
    return bool((combined >= 0).all() and (sums > 0).all() and sums.isfinite().all())


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
