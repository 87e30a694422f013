"""PyTorch finds no GPU, before and after a kernel."""

import os
import warnings

import numpy as np
from emulated import cuda


def kernel():
    @cuda.jit
    def fill(x):
        x[cuda.grid(1)] = cuda.grid(1)

    x = cuda.to_device(np.zeros(64))
    fill[2, 32](x)
    assert (x.copy_to_host() == np.arange(64)).all()


def torch():
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nor does it complain of a driver
        assert not torch.cuda.is_available()
        x = torch.ones(3, requires_grad=True)
        (x * 2).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


if os.environ["FIRST"] == "torch":
    torch()
kernel()
torch()
