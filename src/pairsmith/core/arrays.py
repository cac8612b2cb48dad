"""Types of arrays, by their dtype; docstrings say their shapes."""

import numpy as np
from numpy.typing import NDArray

Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
