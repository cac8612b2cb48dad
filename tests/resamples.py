"""Bootstrap intervals by a plain loop, to compare those of evaluations with."""

import math
from collections.abc import Callable, Sequence

import numpy as np


def loop_interval(
    count: int, figure: Callable[[Sequence[int]], float], *, draws: int, seed: int
) -> list[float]:
    """The 95 % interval of a figure ×100: in each resample, the figure is computed anew from the rows.

    ``figure`` returns a share or NaN, which is left out, for the indices of the ``count`` rows of a resample.
    """
    rng = np.random.default_rng(seed)
    values = [figure([int(row) for row in rng.integers(0, count, size=count)]) for _ in range(draws)]
    defined = [100 * value for value in values if not math.isnan(value)]
    return [round(float(limit), 4) for limit in np.percentile(defined, [2.5, 97.5])]
