"""A classifier of mined pairs that learns from seeds and from pairs without labels: the judge ``likeness``.

It is trained to tell the seeds from mined pairs by the vectors of both texts. If most mined pairs are wrong,
it ranks pairs like a classifier that was trained on right and wrong pairs (Elkan and Noto 2008,
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
"""Inverse strength of the L2 penalty; small, as a hundred seeds determine little more than a direction."""


@dataclass(frozen=True, slots=True)
class SeedClassifier:
    """A logistic regression on the concatenation of a pair's two vectors, each of length 1.

    ``weight`` is ``(2d,)`` float64 for vectors of d components.
    """

    weight: Float64s
    bias: float

    @classmethod
    def learn(cls, seeds: tuple[Vectors, Vectors], mined: tuple[Vectors, Vectors]) -> Self:
        """Fit the classifier to tell n seeds from m mined pairs; the two classes have the same total weight.

        Args:
            seeds: the vectors of the inputs and of the outputs, ``(n, d)`` each, of any floating dtype.
            mined: likewise, ``(m, d)`` each; some of the mined pairs may be right if most are wrong.
        """
        from sklearn.linear_model import LogisticRegression  # imported here, as it takes a second

        rows = np.concatenate([side_by_side(*seeds), side_by_side(*mined)])
        is_seed = np.arange(len(rows)) < len(seeds[0])
        fitted = LogisticRegression(C=C, class_weight="balanced", max_iter=1_000).fit(rows, is_seed)
        return cls(fitted.coef_[0].astype(np.float64), float(fitted.intercept_[0]))

    def log_odds(self, inputs: Vectors, outputs: Vectors) -> Float32s:
        """The log odds that each pair is a seed, ``(n,)`` float32, from its vectors, ``(n, d)`` each."""
        log_odds: Float32s = (side_by_side(inputs, outputs) @ self.weight + self.bias).astype(np.float32)
        return log_odds


def side_by_side(inputs: Vectors, outputs: Vectors) -> Float64s:
    """The two vectors of each of n pairs, scaled to length 1 and concatenated: ``(n, 2d)`` float64.

    ``inputs`` and ``outputs`` are ``(n, d)`` of any floating dtype.
    """
    return np.concatenate([unit_rows(inputs), unit_rows(outputs)], axis=1)
