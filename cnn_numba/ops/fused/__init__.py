"""Layers computed together: convolutions, each with the ReLU and the max pooling after it, and a head.

A head is the last dense layer of a classifier with its loss. The separate operations stay the definition;
`cnn_numba.nn.chains` and `cnn_numba.nn.heads` decide which layers are computed so.
"""
