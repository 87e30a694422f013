"""The compiler's `cuda`, imported once the GPU is known to work with it."""

import functools
from types import ModuleType

from cnn_numba.device.selection import simulated
from gpuless import nvidia


class UnusableGpu(RuntimeError):
    """The GPU does not work with the installed driver or toolkit; the message has the fix."""


@functools.cache
def usable_cuda() -> ModuleType:
    """Return the `cuda` of `compiler`, imported at first use; UnusableGpu if the GPU doesn't work."""
    if not simulated():
        from cnn_numba.device.health import gpu_findings

        wrong = [finding for finding in gpu_findings() if not finding.healthy]
        if wrong:
            raise UnusableGpu("; ".join(f"{f.topic}: {f.text} (fix: {f.fix})" for f in wrong))
    from cnn_numba.device.compiler import cuda

    return cuda


def driver_status(error: Exception) -> str:
    """Return the CUDA driver's name for an error, such as "CUDA_ERROR_OUT_OF_MEMORY"; any text for others.

    numba-cuda's errors hold it in a field; the text of cuda.core's errors begins with it.
    """
    return getattr(getattr(error, "code", None), "name", None) or str(error).partition(":")[0]


def use_gpu(number: int) -> bool:
    """Let this process use the GPU of this number; return whether there is one."""
    if there := number < len(nvidia.driver().gpus):
        usable_cuda().select_device(number)
    return there
