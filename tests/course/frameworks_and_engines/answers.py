"""Wrong answers beside those that `mistakes` of the exercises hold."""

import numpy as np
from wrong_answers import wrong


@wrong("for_keras", "dense weight reshaped")
def weights_of_the_dense_layer_reshaped(conv_weight, dense_weight, shape):
    outputs, inputs = dense_weight.shape
    return conv_weight.transpose(2, 3, 1, 0), dense_weight.reshape(inputs, outputs)


@wrong("traffic", "inner arrays moved")
def bytes_of_each_operation(kernels, sizes, results):
    total = 0
    for kernel in kernels:
        touched = set()
        for output, inputs in kernel:
            touched |= {*inputs}
            total += sizes[output]
        total += sum(sizes[name] for name in touched)
    return total


@wrong("traffic", "loaded twice")
def bytes_loaded_at_each_use(kernels, sizes, results):
    total = 0
    for kernel in kernels:
        made = {output for output, _ in kernel}
        others = {name for k in kernels if k is not kernel for _, inputs in k for name in inputs}
        total += sum(sizes[name] for _, inputs in kernel for name in inputs if name not in made)
        total += sum(sizes[name] for name in made & (others | set(results)))
    return total


@wrong("traffic", "stored twice")
def bytes_of_results_beside_those_of_others(kernels, sizes, results):
    total = 0
    for kernel in kernels:
        made = {output for output, _ in kernel}
        others = {name for k in kernels if k is not kernel for _, inputs in k for name in inputs}
        total += sum(sizes[name] for name in {name for _, inputs in kernel for name in inputs} - made)
        total += sum(sizes[name] for name in made if name in others)
        total += sum(sizes[name] for name in made if name in results)
    return total


@wrong("traffic", "once in all")
def bytes_of_each_array_once(kernels, sizes, results):
    moved = set(results)
    for kernel in kernels:
        made = {output for output, _ in kernel}
        moved |= {name for _, inputs in kernel for name in inputs if name not in made}
    return sum(sizes[name] for name in moved)


@wrong("int8_dense", "scale of the columns")
def int8_by_the_columns(x, weight, bias, x_scale):
    scales = np.abs(weight).max(axis=0) / 127
    x8 = np.clip(np.rint(x / x_scale), -127, 127).astype(np.int8)
    w8 = np.clip(np.rint(weight / scales), -127, 127).astype(np.int8)
    return x8.astype(np.int32) @ w8.astype(np.int32).T * (x_scale * scales) + bias


@wrong("int8_dense", "not rounded at all")
def int8_in_floating_point(x, weight, bias, x_scale):
    return x @ weight.T + bias
