"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

from numba import cuda, float32, uint32
from wrong_answers import wrong

from benchmarks.rungs.conv_naive import place

WRONG = {
    "cross_entropy_kernel": {
        "writes past the edge": [
            ("if row < logits.shape[0]:", "if True:"),
            ("logits.shape[0]:", "logits.size:"),
            [
                ("= logits[row, 0]", "= logits[row, 0]\npowers = cuda.local.array(16, float32)"),
                (
                    "total += math.exp(logits[row, k] - largest)",
                    "powers[k] = math.exp(logits[row, k] - largest)\ntotal += powers[k]",
                ),
                ("math.exp(logits[row, k] - largest) / total", "powers[k] / total"),
            ],
        ],
        "reads past the edge": [("range(1, logits.shape[1])", "range(1, logits.shape[1] + 1)")],
        "float64": [("total = float32(0)", "total = 0.0")],
        "not small enough": [
            ("largest = logits[row, 0]\nfor k in range(1, ", "largest = float32(-1e4)\nfor k in range(")
        ],
    },
    "dense_backward_weight_kernel": {
        "uninitialised read": [[("grad_weight[o, i] = total", ""), ("total +=", "grad_weight[o, i] +=")]],
        "writes past the edge": [
            ("if o < grad_weight.shape[0] and i < grad_weight.shape[1]:", "if True:"),
            ("and i < grad_weight.shape[1]", ""),
        ],
        "x and y exchanged": [("i, o = cuda.grid(2)", "o, i = cuda.grid(2)")],
        "float64": [("float32(0)", "0.0")],
    },
    "dense_backward_input_kernel": {
        "uninitialised read": [[("grad_input[n, i] = total", ""), ("total +=", "grad_input[n, i] +=")]],
        "writes past the edge": [("if n < grad_input.shape[0] and i < grad_input.shape[1]:", "if True:")],
        "x and y exchanged": [("i, n = cuda.grid(2)", "n, i = cuda.grid(2)")],
        "float64": [("float32(0)", "0.0")],
    },
    "bias_gradient_kernel": {
        "one thread": [
            (
                "for i in range(cuda.threadIdx.x, grad_output.shape[0] * positions, cuda.blockDim.x):",
                "for i in range(grad_output.shape[0] * positions if cuda.threadIdx.x == 0 else 0):",
            )
        ],
        "lost update": [
            [
                ("total = block_sum(total)", ""),
                (
                    "if cuda.threadIdx.x == 0:\n    grad_bias[c] = total",
                    "grad_bias[c] = float32(0)\ncuda.syncthreads()\ngrad_bias[c] += total",
                ),
            ]
        ],
        "divergent barrier": [
            [("total = block_sum(total)", ""), ("grad_bias[c] = total", "grad_bias[c] = block_sum(total)")],
            ("total = block_sum(total)", "    total = block_sum(total)"),
        ],
        "reads past the edge": [("i // positions, c, i % positions", "i % positions, c, i // positions")],
        "writes past the edge": [
            ("c, positions = cuda.blockIdx.x, grad_output.", "c, positions = cuda.grid(1), grad_output.")
        ],
        "added by atomics": [
            (
                "total = block_sum(total)\nif cuda.threadIdx.x == 0:\n    grad_bias[c] = total",
                "if cuda.threadIdx.x == 0:\n    grad_bias[c] = 0\n"
                "cuda.syncthreads()\ncuda.atomic.add(grad_bias, c, total)",
            )
        ],
    },
    "relu_backward_kernel": {
        "writes past the edge": [("if i < out.size:", "if True:")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "changes input": [
            (
                "grad_input[i] = grad_output[i] if out[i] > float32(0) else float32(0)",
                "if out[i] <= float32(0):\n    grad_output[i] = float32(0)\ngrad_input[i] = grad_output[i]",
            )
        ],
        "float64": [
            (
                "grad_input[i] = grad_output[i] if out[i] > float32(0) else float32(0)",
                "slope = 1.0 if out[i] > 0 else 0.0\ngrad_input[i] = slope * grad_output[i]",
            )
        ],
    },
    "max_pool_backward_kernel": {
        "lost update": [
            (
                "cuda.atomic.add(grad_input, pixel, grad_output[plane, oh, ow])",
                "grad_input[pixel] += grad_output[plane, oh, ow]",
            )
        ],
        "numbers": [("cuda.atomic.add", "cuda.atomic.max")],
        "one thread": [
            """
            plane = cuda.grid(1)
            if plane < grad_output.shape[0]:
                for oh in range(grad_output.shape[1]):
                    for ow in range(grad_output.shape[2]):
                        where, width = argmax[plane, oh, ow], grad_input.shape[2]
                        grad_input[plane, where // width, where % width] += grad_output[plane, oh, ow]
            """
        ],
        "reads past the edge": [
            ("if i < grad_output.size:", "if True:"),
            ("grad_output.size", "grad_input.size"),
        ],
        "raises": [
            ("grad_input, pixel", "grad_input, where"),
            ("grad_input, pixel", "grad_input, (plane, where)"),
            ("cuda.atomic.add", "np.add.at"),
            (
                "cuda.atomic.add(grad_input, pixel, grad_output[plane, oh, ow])",
                "grad_input[plane, where] += grad_output[plane, oh, ow]",
            ),
        ],
    },
    "conv2d_backward_weight_kernel": {
        "reads past the edge": [
            ("if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:", "if True:"),
            [("oc, ic, kh, kw = place", "ic, oc, kh, kw = place"), ("[oc, ic, kh, kw]", "[ic, oc, kh, kw]")],
        ],
        "negative index": [
            ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "h < x.shape[2] and w < x.shape[3]")
        ],
        "writes past the edge": [("if i < grad_weight.size:", "if True:")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "float64": [("float32(0)", "0.0")],
    },
    "conv2d_backward_input_kernel": {
        "reads past the edge": [
            [
                (" or top // stride_h >= grad_output.shape[2]", ""),
                (" or left // stride_w >= grad_output.shape[3]", ""),
            ],
            ("weight[oc, ic, kh, kw]", "weight[ic, oc, kh, kw]"),
        ],
        "negative index": [
            [("< 0 or top % stride_h", "% stride_h"), ("< 0 or left % stride_w", "% stride_w")]
        ],
        "writes past the edge": [("if i < grad_input.size:", "if True:")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "float64": [("float32(0)", "0.0")],
        "break for continue": [
            ("continue", "break", 2),
        ],
    },
}

RIGHT = {
    "cross_entropy_kernel": {
        "shifted by the logarithm of the sum": [
            (
                "math.exp(logits[row, k] - largest) / total",
                "math.exp(logits[row, k] - largest - math.log(total))",
            )
        ]
    },
    "max_pool_backward_kernel": {
        "a thread for each pixel, in steps of the grid": """
            height, width = grad_input.shape[1:]
            for i in range(cuda.grid(1), grad_input.size, cuda.gridsize(1)):
                plane, pixel = i // (height * width), i % (height * width)
                total = float32(0)
                for oh in range(argmax.shape[1]):
                    for ow in range(argmax.shape[2]):
                        if argmax[plane, oh, ow] == pixel:
                            total += grad_output[plane, oh, ow]
                grad_input[plane, pixel // width, pixel % width] = total
        """
    },
    "relu_backward_kernel": {
        "a zero of no type": [("else float32(0)", "else 0")],
        "a stored 0.0": """
            i = cuda.grid(1)
            if i < out.size:
                if out[i] > 0:
                    grad_input[i] = grad_output[i]
                else:
                    grad_input[i] = 0.0
        """,
    },
}


@wrong("dense_backward_weight_kernel", "done more than once")
@cuda.jit
def weights_all_in_every_thread(grad_output, x, grad_weight):
    for o in range(grad_weight.shape[0]):
        for i in range(grad_weight.shape[1]):
            total = float32(0)
            for n in range(x.shape[0]):
                total += grad_output[n, o] * x[n, i]
            grad_weight[o, i] = total


@wrong("max_pool_backward_kernel", "divergent barrier")
@cuda.jit
def pool_clears_the_array_itself(grad_output, argmax, grad_input):
    i = cuda.grid(1)
    if i < grad_output.size:
        rest, ow = i // grad_output.shape[2], i % grad_output.shape[2]
        plane, oh = rest // grad_output.shape[1], rest % grad_output.shape[1]
        for h in range(grad_input.shape[1]):
            for w in range(grad_input.shape[2]):
                grad_input[plane, h, w] = float32(0)
        cuda.syncthreads()
        where, width = argmax[plane, oh, ow], grad_input.shape[2]
        cuda.atomic.add(grad_input, (plane, where // width, where % width), grad_output[plane, oh, ow])


@wrong("conv2d_backward_weight_kernel", "lost update")
@cuda.jit
def filters_scattered_from_the_outputs(grad_output, x, stride_h, stride_w, padding_h, padding_w, grad_weight):
    i = cuda.grid(1)
    if i < grad_weight.size:
        oc, ic, kh, kw = place(uint32(i), grad_weight.shape)
        grad_weight[oc, ic, kh, kw] = float32(0)
    for o in range(i, grad_output.size, cuda.gridsize(1)):
        n, oc, oh, ow = place(uint32(o), grad_output.shape)
        for ic in range(x.shape[1]):
            for kh in range(grad_weight.shape[2]):
                for kw in range(grad_weight.shape[3]):
                    h, w = oh * stride_h + kh - padding_h, ow * stride_w + kw - padding_w
                    if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:
                        grad_weight[oc, ic, kh, kw] += grad_output[n, oc, oh, ow] * x[n, ic, h, w]


@wrong("conv2d_backward_input_kernel", "lost update")
@cuda.jit
def images_scattered(grad_output, weight, stride_h, stride_w, padding_h, padding_w, grad_input):
    i = cuda.grid(1)
    if i < grad_input.size:
        n, ic, h, w = place(uint32(i), grad_input.shape)
        grad_input[n, ic, h, w] = float32(0)
    for o in range(i, grad_output.size, cuda.gridsize(1)):
        n, oc, oh, ow = place(uint32(o), grad_output.shape)
        for ic in range(weight.shape[1]):
            for kh in range(weight.shape[2]):
                for kw in range(weight.shape[3]):
                    h, w = oh * stride_h + kh - padding_h, ow * stride_w + kw - padding_w
                    if 0 <= h < grad_input.shape[2] and 0 <= w < grad_input.shape[3]:
                        grad_input[n, ic, h, w] += grad_output[n, oc, oh, ow] * weight[oc, ic, kh, kw]
