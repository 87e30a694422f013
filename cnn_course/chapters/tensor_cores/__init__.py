"""The chapter "Tensor Cores"."""
