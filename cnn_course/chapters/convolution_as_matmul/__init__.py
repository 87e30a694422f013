"""The chapter "Convolution as matmul"."""
