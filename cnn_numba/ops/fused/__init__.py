"""Layers computed together: chains of convolutions, each with its ReLU and max pooling, and heads.

A head is the last dense layer of a classifier with its loss. `cnn_numba.nn.chains` and `cnn_numba.nn.heads`
choose the layers. On the GPU the first convolution can also gather its batch (`gpu_forward`), and Adam can
add up the gradients of convolutions (`gpu_update`).
"""
