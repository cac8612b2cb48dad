"""Types of arrays by dtype. The shapes of arrays are given in docstrings."""

import numpy as np
from numpy.typing import NDArray

Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
