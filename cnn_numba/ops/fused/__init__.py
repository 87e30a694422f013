"""Layers computed together: chains of convolutions, each with its ReLU and max pooling, and heads.

A head is the last dense layer of a classifier with its loss. `cnn_numba.nn.chains` and `cnn_numba.nn.heads`
choose the layers.
"""
