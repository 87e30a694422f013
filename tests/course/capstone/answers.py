"""The wrong answers to the exercises of notebook 18, and unusual right ones."""

from wrong_answers import wrong

from cnn_numba.ops.dense.gpu import linear_forward


def _input_gradient(place):
    """Return a swap for the input gradient that takes the output's gradient from this place."""
    return f'''
        @cuda.jit
        def input_kernel(grad_output, weight, grad_input):
            i = cuda.grid(1)
            channels, height, width = grad_input.shape[1:]
            if i < grad_input.size:
                plane, h, w = i // (height * width), i // width % height, i % width
                n, c = plane // channels, plane % channels
                total = float32(0)
                for o in range(weight.shape[0]):
                    for k in range(9):
                        row, column = {place}
                        if 0 <= row < grad_output.shape[2] and 0 <= column < grad_output.shape[3]:
                            total += grad_output[n, o, row, column] * weight[o, c, k // 3, k % 3]
                grad_input[n, c, h, w] = total


        def input_gradient(grad_output, weight, grad_input):
            input_kernel[device.blocks(grad_input.size, 128), 128](grad_output, weight, grad_input)


        def your_swaps():
            """Return launchers by the names of their parts."""
            return {{"conv_input": input_gradient}}
    '''


WRONG = {
    "filter_gradient_kernel": {
        "out of bounds": [("h + kh, w + kw", "h + kh + 1, w + kw")],
        "wrong numbers": [("total = block_sum(total)", "total = block_sum(total) + float32(1)")],
        "window exchanged": [("h + kh, w + kw", "h + kw, w + kh")],
        "first image only": [("range(x.shape[0])", "range(1)")],
        "mean over the images": [("block_sum(total)", "block_sum(total) / float32(x.shape[0])")],
        "first thread only": [("total = block_sum(total)", "")],
        "first warp only": [("block_sum(total)", "warp_sum(total)")],
        "added by every thread": [
            (
                "range(cuda.threadIdx.x, grad_output.shape[2] * width, cuda.blockDim.x)",
                "range(0, grad_output.shape[2] * width)",
            )
        ],
        "divergent barrier": [
            [
                ("total = block_sum(total)", ""),
                ("grad_weight[oc, ic, kh, kw] = total", "grad_weight[oc, ic, kh, kw] = block_sum(total)"),
            ]
        ],
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
        "wrong numbers": [("+= pixel * window[k, m]", "-= pixel * window[k, m]")],
        "filters transposed": [("h + k // 3, w + k % 3", "h + k % 3, w + k // 3")],
        "filters turned": [("h + k // 3, w + k % 3", "h + 2 - k // 3, w + 2 - k % 3")],
        "bias left out": [("sums[m] = bias[min(first + m, bias.size - 1)]", "sums[m] = float32(0)")],
        "bias of the first group": [("bias[min(first + m, bias.size - 1)]", "bias[min(m, bias.size - 1)]")],
        "weights of the first group": [
            ("min(first + t % MAPS, bias.size - 1)", "min(t % MAPS, bias.size - 1)")
        ],
        "bias in every round": [
            (
                "for ic in range(x.shape[1]):",
                "for m in range(MAPS):\n    sums[m] *= float32(x.shape[1])\nfor ic in range(x.shape[1]):",
            )
        ],
        "first input channel only": [("range(x.shape[1])", "range(1)")],
        "last input channel only": [
            (
                "    cuda.syncthreads()\n    if t < 9",
                "    cuda.syncthreads()\n    for m in range(MAPS):\n"
                "        sums[m] = bias[min(first + m, bias.size - 1)]\n    if t < 9",
            )
        ],
        "weights loaded again": [
            ("pixel * window[k, m]", "pixel * weight[min(first + m, bias.size - 1), ic, k // 3, k % 3]")
        ],
        "out of bounds": [("range(min(MAPS, bias.size - first))", "range(MAPS)")],
        "wrong when large": [("range(x.shape[1])", "range(min(x.shape[1], 16))")],
        "wrong signature": [("(x, weight, bias, out):", "(x, weight, out, bias, more):")],
    },
    "your_swaps": {
        "wrong numbers": [("total += bias[o]", "total -= bias[o]")],
        "bias left out": [("            total += bias[o]\n", "")],
        "ReLU left out": [("max(total, float32(0)) if relu else total", "total")],
        "ReLU always": [("max(total, float32(0)) if relu else total", "max(total, float32(0))")],
        "ReLU before the bias": [
            [
                ("            total += bias[o]\n", ""),
                (
                    "= max(total, float32(0)) if relu else total",
                    "= bias[o] + (max(total, float32(0)) if relu else total)",
                ),
            ]
        ],
        "filters turned": [_input_gradient("h - 2 + k // 3, w - 2 + k % 3")],
        "filters transposed": [_input_gradient("h - k % 3, w - k // 3")],
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
        "raises": [
            ("return {", "return 1 / 0 or {"),
            ("dense_by_warps}", "dense_by_warps()}"),
            ("dense_warp_kernel[", "dense_wrap_kernel["),
        ],
        "race between blocks": [("total += bias[o]", "total += bias[o]\nbias[o] = 0")],
    },
    "your_layer": {
        "does nothing": [("float32(0.1) * values[i]", "values[i]")],
        "ignores input": [
            ("values[i] if factor_of[i] > float32(0) else float32(0.1) * values[i]", "float32(0)")
        ],
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
    "filter_gradient_kernel": {
        "all positions in a row, stored by the last thread": """
            oc, ic = cuda.blockIdx.z, cuda.blockIdx.y
            kh, kw = cuda.blockIdx.x // 3, cuda.blockIdx.x % 3
            height, width = grad_output.shape[2:]
            total = float32(0)
            for i in range(cuda.threadIdx.x, x.shape[0] * height * width, cuda.blockDim.x):
                n, h, w = i // (height * width), i // width % height, i % width
                total += grad_output[n, oc, h, w] * x[n, ic, h + kh, w + kw]
            total = block_sum(total)
            if cuda.threadIdx.x == cuda.blockDim.x - 1:
                grad_weight[oc, ic, kh, kw] = total
        """
    },
    "forward_maps_kernel": {
        "the pixel read in the innermost loop, which the compiler takes out": [
            ("sums[m] += pixel * window[k, m]", "sums[m] += x[n, ic, h + k // 3, w + k % 3] * window[k, m]")
        ],
        "nine threads load, zeros for missing channels": """
            window = cuda.shared.array((9, MAPS), float32)
            t, n, first = cuda.threadIdx.x, cuda.blockIdx.z, cuda.blockIdx.y * MAPS
            h, w = cuda.grid(1) // out.shape[3], cuda.grid(1) % out.shape[3]
            sums = cuda.local.array(MAPS, float32)
            for m in range(MAPS):
                sums[m] = 0
            for ic in range(x.shape[1]):
                if t < 9:
                    for m in range(MAPS):
                        exists = first + m < bias.size
                        window[t, m] = weight[first + m, ic, t // 3, t % 3] if exists else float32(0)
                cuda.syncthreads()
                if h < out.shape[2]:
                    for k in range(9):
                        pixel = x[n, ic, h + k // 3, w + k % 3]
                        for m in range(MAPS):
                            sums[m] += pixel * window[k, m]
                cuda.syncthreads()
            if h >= out.shape[2]:
                return
            for m in range(MAPS):
                if first + m < bias.size:
                    out[n, first + m, h, w] = sums[m] + bias[first + m]
        """,
    },
    "your_layer": {
        "a list of three": [
            (
                "return (lambda shape: shape), forward, backward",
                "return [lambda shape: shape, forward, backward]",
            )
        ],
        "the sign of the output": [
            ("leaky(x, grad_output, grad_input)", "leaky(out, grad_output, grad_input)")
        ],
    },
}


@wrong("filter_gradient_kernel", "not a kernel")
def a_plain_function(grad_output, x, grad_weight):
    grad_weight[:] = 0


@wrong("your_swaps", "package's kernel")
def swaps_of_the_package():
    return {"dense_forward": lambda x, weight, bias, relu, out: linear_forward(x, weight, bias, out, relu)}
