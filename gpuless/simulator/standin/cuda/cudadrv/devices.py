"""`numba.cuda.cudadrv.devices` where kernels run in the simulator."""

from gpuless.simulator.host import current_context as get_context, gpus, require_context
