"""The beginnings that prompts have in common, so that each is computed once.

Many prompts share an instruction or a chat's system text; some, the passage that several questions are about.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from pairsmith.models.language.protocols import Prompt

SHARE = 1 / 8
"""The smallest share of the prompts that must begin with a start."""

GAIN = 6
"""How many tokens longer than the next shorter start a start must be to be used in its place."""

LEAST = 32
"""The fewest tokens after a start for which two prompts are computed as one."""


def common_starts(prompts: Iterable[Prompt], most: int) -> dict[Prompt, Prompt]:
    """For each prompt, its start: the prefix that is kept once for it and other prompts; may be empty.

    A start is always shorter than its prompt. ``prompts`` are all that will be computed, with or without
    repeats. If most of them share passages, and there are no more than ``most`` of these, the start is the
    passage with what stands before it; otherwise it is what many prompts begin with.
    """
    ordered = sorted(set(prompts))  # prompts with a common start are adjacent
    starts = _of_many(ordered)
    passages: dict[Prompt, Prompt] = {}
    for start in set(starts.values()):
        some = [prompt for prompt in ordered if starts[prompt] == start]
        for prefix, sharing in by_prefix(some, start).items():
            if prefix != start and len(prefix) >= 2 * len(start):
                passages |= dict.fromkeys(sharing, prefix)
    if not passages:
        return starts
    passages |= {prompt: start for prompt, start in starts.items() if 2 * len(start) >= len(prompt)}
    found = {prompt: passages.get(prompt, prompt[:-1]) for prompt in ordered}
    return found if 2 * len(passages) > len(found) and len(set(found.values())) <= most else starts


def _of_many(ordered: Sequence[Prompt]) -> dict[Prompt, Prompt]:
    """For each of sorted prompts, what it and at least ``SHARE`` of all begin with; may be empty."""
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


def by_prefix(prompts: Iterable[Prompt], start: Prompt) -> dict[Prompt, list[Prompt]]:
    """Prompts that begin with ``start``, by the longer prefix that some of them share, if it is worth it.

    Neighbours in the order of their tokens share a prefix if it has ``LEAST`` tokens after the start and
    half of the longer one's. Like a start, a prefix is shorter than its prompts. The others stand under
    ``start`` itself.
    """
    runs: list[list[Prompt]] = []
    for prompt in sorted(set(prompts)):
        if runs and _worth_sharing(runs[-1][-1], prompt, start):
            runs[-1].append(prompt)
        else:
            runs.append([prompt])
    found: dict[Prompt, list[Prompt]] = {}
    for run in runs:
        found.setdefault(start if len(run) == 1 else _prefix_of(run), []).extend(run)
    return found


def _worth_sharing(one: Prompt, other: Prompt, start: Prompt) -> bool:
    rest = max(len(one), len(other)) - len(start)
    return len(_prefix_of([one, other])) - len(start) >= max(LEAST, rest / 2)


def _prefix_of(ordered: Sequence[Prompt]) -> Prompt:
    """The longest prefix of sorted prompts that is shorter than each of them."""
    return ordered[0][: min(_common(ordered[0], ordered[-1]), *(len(prompt) - 1 for prompt in ordered))]


def _common(one: Prompt, other: Prompt) -> int:
    """The number of leading tokens that both have in common."""
    differing = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differing, min(len(one), len(other)))
