"""The wrong answers to the exercises of notebook 18, and unusual right ones."""

from wrong_answers import wrong

from cnn_numba.ops.dense.gpu import linear_forward

WRONG = {
    "filter_gradient_kernel": {
        "out of bounds": [("h + kh, w + kw", "h + kh + 1, w + kw")],
        "wrong numbers": [("h + kh, w + kw", "h + kw, w + kh")],
        "never written": [("cuda.threadIdx.x == 0", "cuda.threadIdx.x == cuda.blockDim.x")],
        "wrong when large": [("range(x.shape[0])", "range(min(x.shape[0], 32))")],
        "wrong signature": [("(grad_output, x, grad_weight):", "(grad_output, x, grad_weight, parts):")],
        "slower": [
            (
                "range(cuda.threadIdx.x, grad_output.shape[2] * width, cuda.blockDim.x)",
                "range(0, grad_output.shape[2] * width if cuda.threadIdx.x == 0 else 0)",
            )
        ],
    },
    "forward_maps_kernel": {
        "missing barrier": [("cuda.syncthreads()", "", 2)],
        "wrong numbers": [("h + k // 3, w + k % 3", "h + k % 3, w + k // 3")],
        "out of bounds": [("range(min(MAPS, bias.size - first))", "range(MAPS)")],
        "wrong when large": [("range(x.shape[1])", "range(min(x.shape[1], 16))")],
        "wrong signature": [("(x, weight, bias, out):", "(x, weight, out, bias, more):")],
    },
    "your_swaps": {
        "wrong numbers": [("total += bias[o]", "total -= bias[o]")],
        "no such part": [('"dense_forward"', '"dense"')],
        "a kernel": [("dense_by_warps}", "dense_warp_kernel}")],
        "not a function": [("dense_by_warps}", "3}")],
        "no launch": [
            ("dense_warp_kernel[device.blocks(out.size, 4), 128](x, weight, bias, relu, out)", "pass")
        ],
        "wrong signature": [
            ("def dense_by_warps(x, weight, bias, relu, out)", "def dense_by_warps(x, weight, bias, out)")
        ],
        "no swaps": [('{"dense_forward": dense_by_warps}', "{}"), ("return {", "{")],
        "out of bounds": [("if i < out.size:", "if True:")],
        "computes on the host": [
            (
                "dense_warp_kernel[device.blocks(out.size, 4), 128](x, weight, bias, relu, out)",
                "dense_warp_kernel[device.blocks(out.size, 4), 128](x, weight, bias, relu, out)\n"
                "out.copy_to_host()",
            )
        ],
        "raises": [("return {", "return 1 / 0 or {")],
        "race between blocks": [("total += bias[o]", "total += bias[o]\nbias[o] = 0")],
    },
    "your_layer": {
        "does nothing": [("float32(0.1) * values[i]", "values[i]")],
        "no output": [("(lambda shape: shape)", "(lambda shape: (*shape[:2], shape[2] // 2, shape[3]))")],
        "out of bounds": [("if i < out.size:", "if True:")],
        "not a layer": [("(lambda shape: shape), forward", "forward")],
        "never written": [("device.blocks(out.size, 128), 128", "1, 32")],
        "wrong gradient": [
            ("leaky(x, grad_output, grad_input)", "leaky(grad_output, grad_output, grad_input)")
        ],
        "raises": [("return (lambda", "return 1 / 0, (lambda")],
        "changes input": [("leaky(x, x, out)", "leaky(x, x, out)\nleaky(out, out, x)")],
    },
}

RIGHT = {
    "your_layer": {
        "the sign of the output": [
            ("leaky(x, grad_output, grad_input)", "leaky(out, grad_output, grad_input)")
        ]
    },
}


@wrong("filter_gradient_kernel", "not a kernel")
def a_plain_function(grad_output, x, grad_weight):
    grad_weight[:] = 0


@wrong("your_swaps", "package's kernel")
def swaps_of_the_package():
    return {"dense_forward": lambda x, weight, bias, relu, out: linear_forward(x, weight, bias, out, relu)}
