"""One training at a time in a process, after which the caller's random states are as before."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import numpy as np
import torch

from pairsmith.training.processes import Processes

_TRAINING = RLock()


@contextmanager
def exclusive_training(device: str) -> Iterator[None]:
    """Wait for the trainings of other threads; at the end, restore the global random states.

    The trainers of transformers and sentence-transformers share one state per process (accelerate's). Both
    also seed the generators of Python, of NumPy, and of torch for the CPU and a CUDA device.
    """
    # Several processes are never a caller's own program, so the GPU's state need not be restored. Restoring
    # it would open the first GPU in each process.
    on_gpu = device.startswith("cuda") and Processes.current().size == 1
    with _TRAINING, torch.random.fork_rng(devices=[device] if on_gpu else []):
        python_state, numpy_state = random.getstate(), np.random.get_state()
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
