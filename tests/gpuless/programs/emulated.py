"""The start of programs on the emulated GPU: it is selected, and its primary context is current."""

import gpuless

gpuless.select()

from cuda.bindings import driver as cu  # noqa: E402
from numba import cuda  # noqa: E402, F401


def check(answer):
    """Return the result of a function of the driver, which must succeed."""
    code, *rest = answer
    assert code == cu.CUresult.CUDA_SUCCESS, code
    return rest[0] if len(rest) == 1 else rest


check(cu.cuInit(0))
check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
