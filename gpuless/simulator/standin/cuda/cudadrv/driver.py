"""`numba.cuda.cudadrv.driver` where kernels run in the simulator: there is no driver that could fail."""

from gpuless.simulator.host import CudaAPIError, CudaSupportError, Device, Event, Stream


class LinkerError(RuntimeError):
    """What cannot be linked; nothing is linked here."""
