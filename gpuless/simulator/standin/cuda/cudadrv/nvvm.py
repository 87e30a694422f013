"""`numba.cuda.cudadrv.nvvm` where kernels run in the simulator: there is no such compiler."""


def is_available():
    """Return whether NVIDIA's compiler can be used in this process."""
    return False
