"""The prefixes that prompts share, which are thus computed once.

Nearly all prompts share an instruction or the system text of a chat; a few prompts share a passage.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from pairsmith.models.language.protocols import Prompt

SHARE = 1 / 8
"""Smallest share of all prompts that must begin with a start, unless the start is a passage."""

GAIN = 6
"""A start replaces the next shorter one only if it is at least this many tokens longer."""

LEAST_SHARED = 32
"""Smallest number of tokens after a start that prompts must share for these to be computed once."""


def common_starts(prompts: Iterable[Prompt], most: int, least_saved: int = 0) -> dict[Prompt, Prompt]:
    """For each prompt, its start: the prefix whose keys and values are stored separately; may be empty.

    ``prompts`` are all prompts that will be computed; repeats do not matter. A start is shorter than its
    prompt. Usually it is the beginning of many prompts, such as an instruction. If most prompts share longer
    prefixes, such as passages, these are the starts, provided that there are at most ``most`` of them; the
    start of a prompt that shares none is then the prompt without its last token, so that every prompt is
    short after its start. For ``least_saved`` see ``by_prefix``.
    """
    ordered = sorted(set(prompts))  # prompts with a common start are adjacent
    starts = _frequent_prefixes(ordered)
    by_start: dict[Prompt, list[Prompt]] = defaultdict(list)
    for prompt, start in starts.items():
        by_start[start].append(prompt)
    passages: dict[Prompt, Prompt] = {}
    for start, same_start in by_start.items():
        for prefix, sharing in by_prefix(same_start, start, least_saved).items():
            # A passage is computed and kept with what stands before it, which must not be most of it.
            if prefix != start and len(prefix) >= 2 * len(start):
                passages |= dict.fromkeys(sharing, prefix)
    if not passages:
        return starts
    # What many prompts begin with may be a passage itself, if there are few.
    passages |= {prompt: start for prompt, start in starts.items() if 2 * len(start) >= len(prompt)}
    prefixes = {prompt: passages.get(prompt, prompt[:-1]) for prompt in ordered}
    return prefixes if 2 * len(passages) > len(prefixes) and len(set(prefixes.values())) <= most else starts


def _frequent_prefixes(ordered: Sequence[Prompt]) -> dict[Prompt, Prompt]:
    """For each of the sorted prompts, the prefix that it shares with ``SHARE`` of all; may be empty."""
    many = max(2, -(-len(ordered) // round(1 / SHARE)))
    if len(ordered) < many:
        return dict.fromkeys(ordered, ())
    # The length of the common prefix of each window of ``many`` prompts; for each prompt the longest one.
    shared = [common_length(ordered[i], ordered[i + many - 1]) for i in range(len(ordered) - many + 1)]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(np.array(shared), many - 1), many)
    lengths = zip(ordered, windows.max(axis=1).tolist(), strict=True)
    longest = {prompt: prompt[: min(length, len(prompt) - 1)] for prompt, length in lengths}
    starts: dict[Prompt, Prompt] = {}
    for start in sorted(set(longest.values()), key=len):
        beginnings = (other for other in set(starts.values()) if start[: len(other)] == other)
        shorter = max(beginnings, key=len, default=())
        starts[start] = start if len(start) - len(shorter) >= GAIN else shorter
    return {prompt: starts[start] for prompt, start in longest.items()}


def by_prefix(prompts: Iterable[Prompt], start: Prompt, least_saved: int = 0) -> dict[Prompt, list[Prompt]]:
    """Group prompts that begin with ``start`` by longer prefixes that are worth computing once.

    After the start, such a prefix has at least ``LEAST_SHARED`` tokens, and at least half as many as the
    longest prompt of its group. It is shorter than each prompt of the group, and sharing it saves the
    computation of at least ``least_saved`` tokens. Prompts without such a prefix are listed under ``start``.
    """
    runs: list[list[Prompt]] = []
    longest = 0  # of the last run, without the start
    for prompt in sorted(set(prompts)):
        rest = len(prompt) - len(start)
        least = max(LEAST_SHARED, max(longest, rest) / 2)
        if runs and len(_prefix_of([runs[-1][0], prompt])) - len(start) >= least:
            runs[-1].append(prompt)
            longest = max(longest, rest)
        else:
            runs.append([prompt])
            longest = rest
    groups: dict[Prompt, list[Prompt]] = {}
    for run in runs:
        prefix = _prefix_of(run)
        worth = len(run) > 1 and (len(run) - 1) * (len(prefix) - len(start)) >= least_saved
        groups.setdefault(prefix if worth else start, []).extend(run)
    return groups


def _prefix_of(ordered: Sequence[Prompt]) -> Prompt:
    """The longest prefix that all these sorted prompts share and that is shorter than each of them."""
    return ordered[0][: min(common_length(ordered[0], ordered[-1]), *(len(prompt) - 1 for prompt in ordered))]


def common_length(one: Sequence[int], other: Sequence[int]) -> int:
    """The number of leading tokens that both have in common."""
    differing = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))
