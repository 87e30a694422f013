"""`numba.cuda.np` where kernels run in the simulator."""
