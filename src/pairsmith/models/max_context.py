"""Max-context windows: each token of a text counts in the window with the most context around it."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor


def keep_max_context(offsets: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
    """Divide the tokens that two neighbouring windows share between them, half to each (Q7).

    Args:
        offsets: for each window of a text, in order: ``(tokens, 2)`` int64, where its tokens begin and end.
        kept: for each window, ``(tokens,)`` bool, true for tokens of the text; changed in place.
    """
    for one, other in pairwise(range(len(kept))):
        if not kept[other].any():
            continue
        first = offsets[other][kept[other]][0, 0]
        shared = (kept[one] & (offsets[one][:, 0] >= first)).nonzero().squeeze(1)
        if len(shared):
            half = offsets[one][shared[len(shared) // 2], 0]  # keeps a character's tokens together
            kept[other][offsets[other][:, 0] < half] = False
            kept[one][offsets[one][:, 0] >= half] = False
