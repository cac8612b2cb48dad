"""Tensors as on a device that has no float64, such as those of Apple's processors."""

import torch


class WithoutFloat64(torch.Tensor):
    """A tensor that has to be moved to the processor before it can be converted to float64."""

    def double(self):
        raise TypeError("this device has no float64")

    def cpu(self):
        return self.as_subclass(torch.Tensor)
