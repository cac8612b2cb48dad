"""From characters of a text to an encoder's tokens, as two models may cut a text otherwise."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def start_tokens(offsets: Ints, positions: Ints) -> Ints:
    """The token in which each position lies, or, where it lies between two, the next.

    Args:
        offsets: ``(tokens, 2)``, where the tokens of a text begin and end, in characters; none empty.
        positions: ``(n,)``, characters at which something starts.

    Returns:
        ``(n,)`` numbers of tokens; -1 for a position behind the last token.
    """
    found: Ints = np.searchsorted(offsets[:, 1], positions, side="right").astype(np.int64)
    found[found == len(offsets)] = -1
    return found


def end_tokens(offsets: Ints, positions: Ints) -> Ints:
    """The token in which the character before each position lies, or, between two tokens, the one before.

    Args:
        offsets: as for ``start_tokens``.
        positions: ``(n,)``, characters before which something ends: the last that belongs to it, plus 1.

    Returns:
        ``(n,)`` numbers of tokens; -1 for a position before the first token, or behind the last, whose text
        was cut off.
    """
    found: Ints = np.searchsorted(offsets[:, 0], positions, side="left").astype(np.int64) - 1
    if len(offsets):
        found[positions > offsets[-1, 1]] = -1
    return found
