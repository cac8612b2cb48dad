"""The beginnings that many prompts have in common: an instruction before its input, a chat's system text."""

from collections.abc import Iterable

import numpy as np

from pairsmith.models.language.protocols import Prompt

SHARE = 1 / 8
"""The smallest share of the prompts that must begin with a start."""

GAIN = 6
"""How many tokens longer than the next shorter start a start must be to be used in its place."""


def common_starts(prompts: Iterable[Prompt]) -> dict[Prompt, Prompt]:
    """For each prompt, the prefix that is worth computing once for it and other prompts; may be empty.

    A prefix is always shorter than its prompt. ``prompts`` are all that will be computed, with or without
    repeats.
    """
    ordered = sorted(set(prompts))  # prompts with a common start are adjacent
    many = max(2, -(-len(ordered) // round(1 / SHARE)))
    if len(ordered) < many:
        return dict.fromkeys(ordered, ())
    shared = [_common(ordered[i], ordered[i + many - 1]) for i in range(len(ordered) - many + 1)]
    padded = np.pad(np.array(shared), many - 1)
    longest = np.lib.stride_tricks.sliding_window_view(padded, many).max(axis=1)
    wanted = {p: p[: min(int(n), len(p) - 1)] for p, n in zip(ordered, longest, strict=True)}
    taken: dict[Prompt, Prompt] = {}
    for start in sorted(set(wanted.values()), key=len):
        shorter = max((s for s in set(taken.values()) if start[: len(s)] == s), key=len, default=())
        taken[start] = start if len(start) - len(shorter) >= GAIN else shorter
    return {prompt: taken[start] for prompt, start in wanted.items()}


def _common(one: Prompt, other: Prompt) -> int:
    """The number of leading tokens that both have in common."""
    differing = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))
