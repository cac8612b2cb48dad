"""A text read in windows that overlap: each token counts in the one in which more stands about it."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor


def keep_middles(offsets: Sequence[Tensor], kept: Sequence[Tensor]) -> None:
    """Leave the tokens that neighbouring windows share to one of the two, half to each (Q7).

    Args:
        offsets: of each window of one text, in order: ``(tokens, 2)`` int64, where its tokens begin and end.
        kept: of each, ``(tokens,)`` bool, tokens of the text; changed in place.
    """
    for one, other in pairwise(range(len(kept))):
        if not kept[other].any():
            continue
        first = offsets[other][kept[other]][0, 0]
        shared = (kept[one] & (offsets[one][:, 0] >= first)).nonzero().squeeze(1)
        if len(shared):
            half = offsets[one][shared[len(shared) // 2], 0]  # a letter of several tokens stays in one piece
            kept[other][offsets[other][:, 0] < half] = False
            kept[one][offsets[one][:, 0] >= half] = False
