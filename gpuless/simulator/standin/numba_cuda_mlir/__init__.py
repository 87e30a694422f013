"""`numba_cuda_mlir` where kernels run in the simulator."""

__version__ = "0.0+gpuless"
