"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

from numba import cuda, float32
from wrong_answers import wrong

WRONG = {
    "sigmoid_backward_kernel": {
        "writes past the edge": [("if i < out.size:", "if True:")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "float64": [("float32(1) - out[i]", "1.0 - out[i]")],
        "nothing written": [("grad_input[i] = grad_output[i]", "result = grad_output[i]")],
    },
    "squared_error_backward_kernel": {
        "raises": [("k == labels[row]", "labels[row, k]")],
        "writes past the edge": [("if row < y.shape[0] and k < y.shape[1]:", "if row < y.shape[0]:")],
        "x and y exchanged": [("k, row = cuda.grid(2)", "row, k = cuda.grid(2)")],
        "float64": [("float32(2) *", "2.0 *"), ("/ float32(y.shape[0])", "/ y.shape[0]")],
    },
    "channel_statistics_kernel": {
        "float64": [("total = float32(0)", "total = 0.0")],
        "reads past the edge": [
            ("(thread, x.shape[0] * pixels, threads)", "(thread, x.shape[0] * pixels + 1, threads)", 2)
        ],
        "divergent barrier": [
            (
                "    centre = block_sum(total) / count",
                "    if thread < pixels:\n        total = block_sum(total)\n    centre = total / count",
            )
        ],
        "fixed block": [("cuda.threadIdx.x, cuda.blockDim.x", "cuda.threadIdx.x, 64")],
        "divergent warp": [
            """
                c, thread, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
                pixels = x.shape[2]
                count = x.shape[0] * pixels
                total = float32(0)
                for i in range(thread, count, threads):
                    total += x[i // pixels, c, i % pixels]
                if thread == 0:
                    mean[c] = block_sum(total) / float32(count)
                cuda.syncthreads()
                squares = float32(0)
                for i in range(thread, count, threads):
                    squares += (x[i // pixels, c, i % pixels] - mean[c]) ** 2
                if thread == 0:
                    variance[c] = block_sum(squares) / float32(count)
            """
        ],
        "done more than once": [("if thread == 0:", "if True:"), ("if thread == 0:", "if thread < pixels:")],
        "one thread": [
            [
                ("range(thread, x.shape[0] * pixels, threads)", "range(x.shape[0] * pixels)", 2),
                ("block_sum(total)", "total"),
                ("block_sum(squares)", "squares"),
            ]
        ],
    },
    "norm_backward_kernel": {
        "float64": [("total, product = float32(0), float32(0)", "total, product = 0.0, 0.0")],
        "done more than once": [("if thread == 0:", "if True:")],
        "writes past the edge": [("count = x.shape[0] * pixels", "count = x.shape[0] * pixels + 1")],
        "divergent barrier": [
            (
                "total, product = block_sum(total), block_sum(product)",
                "if thread < pixels:\n    total, product = block_sum(total), block_sum(product)",
            )
        ],
        "fixed block": [("cuda.threadIdx.x, cuda.blockDim.x", "cuda.threadIdx.x, 64")],
        "one thread": [
            [
                ("range(thread, count, threads)", "range(count)", 2),
                ("total, product = block_sum(total), block_sum(product)", ""),
            ]
        ],
    },
}

RIGHT = {
    "sigmoid_backward_kernel": {
        "less the square": [("out[i] * (float32(1) - out[i])", "(out[i] - out[i] * out[i])")],
        "in strides": """
            for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
                y = out[i]
                grad_input[i] = y * (float32(1) - y) * grad_output[i]
        """,
    },
    "squared_error_backward_kernel": {
        "added twice": [
            ("float32(2) * (y[row, k] - target)", "((y[row, k] - target) + (y[row, k] - target))")
        ],
        "a branch for the label": """
            k, row = cuda.grid(2)
            if row < y.shape[0] and k < y.shape[1]:
                factor = float32(2) / float32(len(labels))
                if labels[row] == k:
                    grad_y[row, k] = factor * (y[row, k] - float32(1))
                else:
                    grad_y[row, k] = factor * y[row, k]
        """,
    },
    "channel_statistics_kernel": {
        "a piece for each thread, the mean in shared memory": """
            c, thread, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
            centre = cuda.shared.array(1, float32)
            pixels = x.shape[2]
            count = x.shape[0] * pixels
            share = (count + threads - 1) // threads
            total = float32(0)
            for i in range(thread * share, min(thread * share + share, count)):
                total += x[i // pixels, c, i % pixels]
            total = block_sum(total)
            if thread == 0:
                centre[0] = total / float32(count)
                mean[c] = centre[0]
            cuda.syncthreads()
            squares = float32(0)
            for i in range(thread * share, min(thread * share + share, count)):
                squares += (x[i // pixels, c, i % pixels] - centre[0]) ** 2
            squares = block_sum(squares)
            if thread == 0:
                variance[c] = squares / float32(count)
        """,
        "one pass, from the first element": """
            c, thread, threads = cuda.blockIdx.x, cuda.threadIdx.x, cuda.blockDim.x
            pixels = x.shape[2]
            count = float32(x.shape[0] * pixels)
            origin = x[0, c, 0]
            total, squares = float32(0), float32(0)
            for i in range(thread, x.shape[0] * pixels, threads):
                distance = x[i // pixels, c, i % pixels] - origin
                total += distance
                squares += distance * distance
            centre = block_sum(total) / count
            spread = block_sum(squares) / count - centre * centre
            if thread == 0:
                mean[c] = origin + centre
                variance[c] = spread
        """,
        "stored by the last thread": [("if thread == 0:", "if thread == threads - 1:")],
        "sample by sample": """
            c = cuda.blockIdx.x
            count = float32(x.shape[0] * x.shape[2])
            total = float32(0)
            for n in range(x.shape[0]):
                for pixel in range(cuda.threadIdx.x, x.shape[2], cuda.blockDim.x):
                    total += x[n, c, pixel]
            centre = block_sum(total) / count
            squares = float32(0)
            for n in range(x.shape[0]):
                for pixel in range(cuda.threadIdx.x, x.shape[2], cuda.blockDim.x):
                    squares += (x[n, c, pixel] - centre) ** 2
            squares = block_sum(squares)
            if cuda.threadIdx.x == 0:
                mean[c], variance[c] = centre, squares / count
        """,
    },
    "norm_backward_kernel": {
        "sums from the results": [
            ("if thread == 0:\n    grad_gamma[c], grad_beta[c] = product, total", ""),
            (
                "total, product = block_sum(total), block_sum(product)",
                "total, product = block_sum(total), block_sum(product)\nif thread == 0:\n"
                "    grad_gamma[c], grad_beta[c] = product, total\ncuda.syncthreads()",
            ),
            ("(total + x_hat * product)", "(grad_beta[c] + x_hat * grad_gamma[c])"),
        ],
        "multiplied out": """
            c = cuda.blockIdx.x
            share = float32(1) / float32(x.shape[0] * x.shape[2])
            direct = gamma[c] * inv_std[c]
            beta_sum, gamma_sum = float32(0), float32(0)
            for n in range(x.shape[0]):
                for pixel in range(cuda.threadIdx.x, x.shape[2], cuda.blockDim.x):
                    beta_sum += grad_output[n, c, pixel]
                    gamma_sum += grad_output[n, c, pixel] * (x[n, c, pixel] - mean[c])
            beta_sum, gamma_sum = block_sum(beta_sum), block_sum(gamma_sum) * inv_std[c]
            slope = gamma_sum * inv_std[c] * share
            for n in range(x.shape[0]):
                for pixel in range(cuda.threadIdx.x, x.shape[2], cuda.blockDim.x):
                    away = beta_sum * share + (x[n, c, pixel] - mean[c]) * slope
                    grad_input[n, c, pixel] = direct * (grad_output[n, c, pixel] - away)
            if cuda.threadIdx.x == cuda.blockDim.x - 1:
                grad_beta[c] = beta_sum
                grad_gamma[c] = gamma_sum
        """,
    },
}


@wrong("sigmoid_backward_kernel", "done more than once")
@cuda.jit
def sigmoid_by_every_thread(grad_output, out, grad_input):
    for i in range(out.size):
        grad_input[i] = grad_output[i] * out[i] * (float32(1) - out[i])
