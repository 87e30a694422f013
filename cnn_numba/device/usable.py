"""The compiler's `cuda`, imported once a GPU that it can work with is known to be there."""

import functools
from types import ModuleType

from cnn_numba.device.selection import simulated
from gpuless import nvidia


class UnusableGpu(RuntimeError):
    """A GPU that does not work with the driver or toolkit that is installed; the message has the fix."""


@functools.cache
def usable_cuda() -> ModuleType:
    """Return the `cuda` of `compiler`, imported at first use, when its GPU is known to be usable."""
    if not simulated():
        from cnn_numba.device.health import gpu_findings

        wrong = [finding for finding in gpu_findings() if not finding.healthy]
        if wrong:
            raise UnusableGpu("; ".join(f"{f.topic}: {f.text} (fix: {f.fix})" for f in wrong))
    from cnn_numba.device.compiler import cuda

    return cuda


def driver_status(error: Exception) -> str:
    """Return the CUDA driver's name for an error, such as "CUDA_ERROR_OUT_OF_MEMORY"; of others any text.

    numba-cuda's errors hold it in a field; those of cuda.core have none, and begin with it.
    """
    return getattr(getattr(error, "code", None), "name", None) or str(error).partition(":")[0]


def use_gpu(number: int) -> bool:
    """Let this process compute on the GPU of this number; return whether there is one."""
    if there := number < len(nvidia.driver().gpus):
        usable_cuda().select_device(number)
    return there
