"""Map characters of a text to an encoder's tokens, as two models may tokenize a text differently."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def start_tokens(offsets: Ints, positions: Ints) -> Ints:
    """The token that contains each position, or the next token where it lies between two.

    Args:
        offsets: ``(tokens, 2)``, where the tokens of a text begin and end, in characters; none empty.
        positions: ``(n,)``, characters at which something starts.

    Returns:
        ``(n,)`` token indices; -1 for a position after the last token.
    """
    found: Ints = np.searchsorted(offsets[:, 1], positions, side="right").astype(np.int64)
    found[found == len(offsets)] = -1
    return found


def end_tokens(offsets: Ints, positions: Ints) -> Ints:
    """The token that contains the character before each position, or the one before it if between two.

    Args:
        offsets: as for ``start_tokens``.
        positions: ``(n,)``, exclusive ends in characters: the last character of something, plus 1.

    Returns:
        ``(n,)`` token indices; -1 for a position before the first token, or after the last one, where the
        text was cut off.
    """
    found: Ints = np.searchsorted(offsets[:, 0], positions, side="left").astype(np.int64) - 1
    if len(offsets):
        found[positions > offsets[-1, 1]] = -1
    return found
