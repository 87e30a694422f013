"""Chains of layers computed in one pass: convolutions, each with the ReLU and the max pooling behind it.

The separate operations stay the definition, and `cnn_numba.nn.chains` decides which layers become a chain.
"""
