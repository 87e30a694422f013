"""The chapter "Convolution on the CPU"."""
