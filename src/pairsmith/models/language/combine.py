"""Rules that combine the next-token distributions of several prompts into one.

A rule is a pure function of two tensors: ``p_main``, the main prompt's probabilities, ``(rows, vocab)``
float32, whose rows sum to 1; and ``p_counter``, of the same shape, the maximum of the counter-prompts'
probabilities, all zeros for a row without counter-prompts. It returns ``(rows, vocab)`` float32, whose rows
sum to 1. It raises a ``ValueError`` if the shapes differ or a parameter is out of range.
"""

import math
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

import torch
from torch import Tensor

from pairsmith.core.errors import SettingsError
from pairsmith.data.tasks import Decoding

Rule = Callable[[Tensor, Tensor], Tensor]
"""A rule with its parameters bound; see the module."""

SMALLEST = torch.finfo(torch.float32).tiny
"""Stands for a probability of zero before a logarithm is taken."""


def self_debias(p_main: Tensor, p_counter: Tensor, decay: float = 100.0, floor: float = 0.01) -> Tensor:
    """Lower the probability of tokens that are likelier after a counter-prompt than after the main one (D3).

    With ``delta = p_main - p_counter``, the probability of a token with ``delta < 0`` is multiplied by
    ``max(exp(decay * delta), floor)``; the others stay. Each row is then renormalised. ``decay`` is lambda,
    at least 0; 0 leaves ``p_main`` unchanged. ``floor`` is from 0 to 1.
    """
    _check(p_main, p_counter)
    if not 0 <= decay < math.inf or not 0 <= floor <= 1:
        raise ValueError(f"decay must be at least 0 and floor in [0, 1], not {decay} and {floor}")
    if floor > 0:
        weights = self_debias_weights(p_main, p_counter, decay, floor)
        return weights.div_(weights.sum(dim=1, keepdim=True))
    # Without a floor all factors of a row may underflow; softmax scales the largest term to 1 first.
    return torch.softmax((p_main - p_counter).clamp_(max=0).mul_(decay).add_(p_main.log()), dim=1)


def self_debias_weights(p_main: Tensor, p_counter: Tensor, decay: float, floor: float) -> Tensor:
    """The probabilities of D3 before renormalising; arguments as for ``self_debias``, but of any shape."""
    exponent = (p_main - p_counter).clamp_(max=0).mul_(decay)
    if floor > 0:
        exponent.clamp_(min=math.log(floor))
    return exponent.exp_().mul_(p_main)


def guidance(p_main: Tensor, p_counter: Tensor, scale: float = 1.5) -> Tensor:
    """Classifier-free guidance: from the counter-prompts' distribution to the main prompt's and beyond.

    ``p`` is proportional to ``p_counter * (p_main / p_counter) ** scale``. A ``scale`` of 0 gives the
    counter-prompts' distribution, 1 the main prompt's, and more moves further away from the counter-prompts.
    """
    _check(p_main, p_counter)
    if not 0 <= scale < math.inf:
        raise ValueError(f"scale must be at least 0, not {scale}")
    of_main, of_counter = (p.clamp(min=SMALLEST).log_() for p in (p_main, p_counter))
    return torch.softmax(torch.lerp(of_counter, of_main, scale), dim=1)


def contrast(p_main: Tensor, p_counter: Tensor, strength: float = 0.5, plausible: float = 0.1) -> Tensor:
    """Contrastive decoding: among plausible tokens, favour those that the counter-prompts make unlikely.

    Tokens with ``p_main >= plausible * max(p_main)`` get the probability
    ``p_main ** (1 + strength) / p_counter ** strength``, renormalised; the others get 0. ``strength`` is at
    least 0; with 0, plausible tokens keep the main prompt's ratios. ``plausible`` is above 0, at most 1.
    """
    _check(p_main, p_counter)
    if not 0 <= strength < math.inf or not 0 < plausible <= 1:
        raise ValueError(
            f"strength must be at least 0 and plausible in (0, 1], not {strength} and {plausible}"
        )
    of_main, of_counter = (p.clamp(min=SMALLEST).log_() for p in (p_main, p_counter))
    scores = of_main.mul(1 + strength).sub_(of_counter, alpha=strength)
    implausible = p_main < plausible * p_main.amax(dim=1, keepdim=True)
    return torch.softmax(scores.masked_fill_(implausible, -torch.inf), dim=1)


def rule_of(decoding: Decoding) -> Rule:
    """The rule that ``decoding`` names, with its parameters bound; D3 by default."""
    match decoding.rule:  # mypy reports a name without a case
        case "self-debiasing":
            return partial(self_debias, decay=decoding.decay, floor=decoding.floor)
        case "guidance":
            return partial(guidance, scale=decoding.scale)
        case "contrast":
            return partial(contrast, strength=decoding.strength, plausible=decoding.plausible)


def named_rule(rule: Rule | str | None) -> Rule | None:
    """A rule by its dotted name, ``package.module.function``; a function or None is returned unchanged.

    Raises:
        SettingsError: there is no such function, or it cannot be called with two arguments.
    """
    if rule is None:
        return None
    if callable(rule):
        return _checked_rule(rule)
    if not isinstance(rule, str):
        raise SettingsError(f"rule must be a function or its dotted name, not {rule!r:.60}")
    module, _, name = rule.rpartition(".")
    if not module:
        raise SettingsError(
            f"no rule is called {rule!r}; give package.module.function, or name a built-in rule in decoding"
        )
    try:
        function: Rule = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingsError(f"no rule is called {rule!r}: {error}; give package.module.function") from None
    return _checked_rule(function)


def _checked_rule(rule: Rule) -> Rule:
    name = rule_name(rule)
    if not callable(rule):
        raise SettingsError(f"the rule {name} is no function; it is of the type {type(rule).__name__}")
    with suppress(ValueError):  # some functions that are not written in Python do not tell their arguments
        try:
            signature(rule).bind(None, None)
        except TypeError as error:
            raise SettingsError(
                f"the rule {name} cannot be called with two arguments, p_main and p_counter: {error}"
            ) from None
    return rule


def rule_name(rule: Rule) -> str:
    """The name of a rule's function, for messages."""
    function = _function(rule)
    return str(getattr(function, "__name__", repr(function)))


def is_built_in(rule: Rule) -> bool:
    """Whether a rule is one of this module, whose results are known to be probabilities."""
    return _function(rule) in (self_debias, guidance, contrast)


def favours_main(rule: Rule) -> bool:
    """Whether a rule is known to favour tokens that are likely after the main prompt.

    With such a rule, a token of probability 0 after the counter-prompts weighs at least as much as every
    token that is no likelier after the main prompt. The main prompt's likeliest tokens can then be proved to
    include all tokens that top-k keeps (``steering``).
    """
    return _function(rule) in (self_debias, contrast)


def _function(rule: Rule) -> Any:
    return rule.func if isinstance(rule, partial) else rule


def _check(p_main: Tensor, p_counter: Tensor) -> None:
    if p_main.shape != p_counter.shape or p_main.ndim != 2:
        shapes = f"{tuple(p_main.shape)} and {tuple(p_counter.shape)}"
        raise ValueError(f"p_main and p_counter must both be (rows, vocab), not {shapes}")


def counter_maximum(probabilities: Tensor, counters: Tensor) -> Tensor:
    """The largest probability that any counter-prompt of a group gives to each token (D3).

    Args:
        probabilities: ``(rows, vocab)`` float32, of all prompts.
        counters: ``(groups, most)`` int64, the rows of each group's counter-prompts, padded with -1.

    Returns:
        ``(groups, vocab)`` float32; zeros for a group without counter-prompts.
    """
    largest = probabilities.new_zeros(counters.shape[0], probabilities.shape[1])
    for column in counters.T:
        held = (column >= 0).nonzero().squeeze(1)
        largest[held] = torch.maximum(largest[held], probabilities[column[held]])
    return largest
