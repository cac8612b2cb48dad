"""A classifier of mined pairs that learns from seeds and from pairs without labels: the judge ``likeness``.

It learns to tell the seeds from mined pairs, by the vectors of both texts. As long as most mined pairs are
wrong, it ranks pairs as a classifier would that learned from right and wrong ones (Elkan and Noto 2008,
doi:10.1145/1401890.1401920).
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pairsmith.core.arrays import Float32s, Float64s
from pairsmith.metrics.similarity import unit_rows

Vectors = NDArray[np.floating]

C = 0.01
"""Inverse strength of the L2 penalty: small, as a hundred seeds hardly determine more than a direction."""


@dataclass(frozen=True, slots=True)
class SeedClassifier:
    """A logistic regression on the two vectors of a pair, side by side, each of length 1.

    ``weight`` is ``(2d,)`` float64 for vectors of d numbers.
    """

    weight: Float64s
    bias: float

    @classmethod
    def learn(cls, seeds: tuple[Vectors, Vectors], mined: tuple[Vectors, Vectors]) -> Self:
        """Learn to tell seeds from mined pairs; both kinds weigh the same.

        Args:
            seeds: the vectors of inputs and of outputs, ``(n, d)`` each, of any floating dtype.
            mined: likewise, ``(m, d)`` each; they may hold right pairs, as long as most are wrong.
        """
        from sklearn.linear_model import LogisticRegression  # imported here, as it takes a second

        rows = np.concatenate([side_by_side(*seeds), side_by_side(*mined)])
        like = np.arange(len(rows)) < len(seeds[0])
        fitted = LogisticRegression(C=C, class_weight="balanced", max_iter=1_000).fit(rows, like)
        return cls(fitted.coef_[0].astype(np.float64), float(fitted.intercept_[0]))

    def log_odds(self, inputs: Vectors, outputs: Vectors) -> Float32s:
        """The log odds that each pair is a seed, ``(n,)`` float32, from its vectors, ``(n, d)`` each."""
        log_odds: Float32s = (side_by_side(inputs, outputs) @ self.weight + self.bias).astype(np.float32)
        return log_odds


def side_by_side(inputs: Vectors, outputs: Vectors) -> Float64s:
    """Both vectors of each of n pairs in one row, ``(n, 2d)`` float64, each scaled to length 1.

    ``inputs`` and ``outputs`` are ``(n, d)`` of any floating dtype.
    """
    return np.concatenate([unit_rows(inputs), unit_rows(outputs)], axis=1)
