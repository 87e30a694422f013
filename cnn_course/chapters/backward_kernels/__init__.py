"""The chapter "Backward kernels"."""
