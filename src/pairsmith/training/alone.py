"""A training alone in its process, which leaves the caller's random numbers as they were."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import numpy as np
import torch

from pairsmith.training.processes import Processes

_TRAINING = RLock()


@contextmanager
def alone(device: str) -> Iterator[None]:
    """Wait for the trainings of other threads; at the end, restore the global random states.

    The trainers of transformers and sentence-transformers keep global state of which a process has one
    (accelerate's), and seed the generators of Python, NumPy and torch: those of the CPU and of a CUDA device.
    """
    # With several processes, which are never a caller's own program, each would open the first GPU.
    on_gpu = device.startswith("cuda") and Processes.current().size == 1
    with _TRAINING, torch.random.fork_rng(devices=[device] if on_gpu else []):
        python_state, numpy_state = random.getstate(), np.random.get_state()
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)
