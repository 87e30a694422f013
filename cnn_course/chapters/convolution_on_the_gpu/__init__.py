"""The chapter "Convolution on the GPU"."""
