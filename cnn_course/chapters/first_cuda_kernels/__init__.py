"""The chapter "First CUDA kernels"."""
