"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import numpy as np
from numba import cuda, float32
from wrong_answers import wrong

WRONG = {
    "axpy_kernel": {
        "writes past the edge": [("if i < out.size:", "if True:"), ("i < out.size", "i <= out.size")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "never written": [("cuda.grid(1)", "cuda.blockIdx.x + cuda.threadIdx.x")],
        "changes input": [("out[i] =", "y[i] =")],
        "nothing written": [("out[i] =", "out =")],
        "one too few": [("i < out.size", "i < out.size - 1")],
        "uninitialised read": [("out[i] =", "out[i] +=")],
        "float64": [
            ("out[i] = a * x[i] + y[i]", "total = 0.0\ntotal += a * x[i]\ntotal += y[i]\nout[i] = total")
        ],
        "done more than once": [("i = cuda.grid(1)\nif i < out.size:", "for i in range(out.size):")],
        "one thread for all": [
            ("i = cuda.grid(1)\nif i < out.size:", "for i in range(out.size if cuda.grid(1) == 0 else 0):")
        ],
    },
    "relu_on_gpu": {
        "tail missing": [
            ("device.blocks(x.size, 128)", "max(1, x.size // 128)"),
            ("device.blocks(x.size, 128)", "1"),
            ("device.blocks(x.size, 128)", "3"),
        ],
        "other blocks": [
            ("[device.blocks(x.size, 128), 128]", "[128, device.blocks(x.size, 128)]"),
            ("[device.blocks(x.size, 128), 128]", "[1, x.size]"),
        ],
        "left on the device": [("d_out.copy_to_host()", "d_out")],
        "host array": [
            [
                ("cuda.to_device(x)", "x"),
                ("cuda.device_array(x.shape, x.dtype)", "np.empty_like(x)"),
                ("d_out.copy_to_host()", "d_out"),
            ],
            [("cuda.device_array(x.shape, x.dtype)", "np.zeros_like(x)"), ("d_out.copy_to_host()", "d_out")],
        ],
        "nothing computed": [("relu_forward_naive_kernel[device.blocks(x.size, 128), 128](d_x, d_out)", "")],
        "type": [("cuda.device_array(x.shape, x.dtype)", "cuda.device_array(x.shape)")],
        "returns None": [("return d_out.copy_to_host()", "d_out.copy_to_host()")],
        "raises": [
            ("[device.blocks(x.size, 128), 128]", ""),
            ("def relu_on_gpu", "@cuda.jit\ndef relu_on_gpu"),
        ],
        "fraction of a block": [("device.blocks(x.size, 128)", "x.size / 128 + 1")],
        "launch assigned": [("relu_forward_naive_kernel[", "d_out = relu_forward_naive_kernel[")],
        "fixed grid": [("device.blocks(x.size, 128)", "8")],
    },
    "autocorrelation_kernel": {
        "reads past the edge": [("range(signal.size - lag)", "range(signal.size)")],
        "float64": [("float32(0)", "0.0")],
        "uninitialised read": [[("out[i] = total", ""), ("total +=", "out[i] +=")]],
        "writes past the edge": [("if i < out.size:", "if True:"), ("i < out.size", "i < signal.size")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
    },
    "relu_stride_kernel": {
        "one element per thread": [
            ("for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):", "i = cuda.grid(1)\nif i < x.size:")
        ],
        "done more than once": [
            ("cuda.gridsize(1)", "cuda.blockDim.x"),
            ("(cuda.grid(1), x.size, cuda.gridsize(1))", "(cuda.threadIdx.x, x.size, cuda.blockDim.x)"),
            ("range(cuda.grid(1), x.size, cuda.gridsize(1))", "range(cuda.grid(1), x.size)"),
        ],
        "in chunks": [
            (
                "for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):",
                "threads = cuda.gridsize(1)\n"
                "chunk = (x.size + threads - 1) // threads\n"
                "start = cuda.grid(1) * chunk\n"
                "for i in range(start, min(start + chunk, x.size)):",
            )
        ],
        "writes past the edge": [
            [
                (
                    "for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):",
                    "i = cuda.grid(1)\nwhile i <= x.size:",
                ),
                ("if x[i] <= float32(0) else x[i]", "if x[i] <= float32(0) else x[i]\ni += cuda.gridsize(1)"),
            ]
        ],
        "does not end": [
            ("for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):", "i = cuda.grid(1)\nwhile i < x.size:")
        ],
        "never written": [
            ("out[i] = float32(0) if x[i] <= float32(0) else x[i]", "if x[i] > 0:\n    out[i] = x[i]"),
            ("cuda.gridsize(1)", "cuda.gridsize(1) + 1"),
        ],
        "first block only": [
            ("for i in range(cuda.grid(1), x.size, cuda.gridsize(1))", "i = cuda.threadIdx.x\nif i < x.size")
        ],
        "changes input": [("out[i] =", "x[i] =")],
    },
    "mirror_kernel": {
        "x and y exchanged": [
            ("column, row = cuda.grid(2)", "row, column = cuda.grid(2)"),
            ("out[row, column]", "out[column, row]"),
        ],
        "writes past the edge": [
            ("if row < height and column < width:", "if True:"),
            ("row < height and column < width", "column < width"),
            ("row < height and column < width", "row < height or column < width"),
        ],
        "first block only": [("cuda.grid(2)", "cuda.threadIdx.x, cuda.threadIdx.y")],
        "guard exchanges axes": [("row < height and column < width", "row < width and column < height")],
        "changes input": [
            (
                "if row < height and column < width:\n    out[row, column] = image[row, width - 1 - column]",
                "if column < width // 2 and row < height:\n"
                "    other = width - 1 - column\n"
                "    image[row, column], image[row, other] = image[row, other], image[row, column]",
            )
        ],
        "done more than once": [
            (
                "out[row, column] = image[row, width - 1 - column]",
                "for c in range(width):\n    out[row, c] = image[row, width - 1 - c]",
            )
        ],
    },
}

RIGHT = {
    "axpy_kernel": {
        "a print left in": [("out[i] =", "print(i, x[i])\nout[i] =")],
        "a signature": [("@cuda.jit", '@cuda.jit("void(float32, float32[:], float32[:], float32[:])")')],
        "in two steps from a bare zero": """
            i = cuda.grid(1)
            if i < out.size:
                out[i] = 0.0
                out[i] += a * x[i] + y[i]
        """,
        "from the last thread": """
            i = out.size - 1 - cuda.grid(1)
            if i >= 0:
                out[i] = cuda.fma(a, x[i], y[i])
        """,
    },
    "relu_on_gpu": {
        "one block too many": [("device.blocks(x.size, 128)", "x.size // 128 + 1")],
        "in place": [
            ("d_out = cuda.device_array(x.shape, x.dtype)", ""),
            ("(d_x, d_out)", "(d_x, d_x)"),
            ("d_out.copy_to_host", "d_x.copy_to_host"),
        ],
    },
    "autocorrelation_kernel": {
        "summed in the output": """
            i = cuda.grid(1)
            if i < out.size:
                out[i] = 0
                for k in range(signal.size - 1, delay + i - 1, -1):
                    out[i] += signal[k] * signal[k - delay - i]
        """
    },
    "relu_stride_kernel": {
        "a product with a truth": """
            i = cuda.grid(1)
            while i < x.size:
                out[i] = x[i] * (x[i] > 0)
                i += cuda.gridsize(1)
        """
    },
    "mirror_kernel": {
        "counted from the end": [("width - 1 - column", "-1 - column")],
        "written from the end": [("row, column] = image[row, width - 1 -", "row, ~column] = image[row,")],
        "half the threads change two pixels": """
            x, y = cuda.grid(2)
            height, width = image.shape
            if y < height and x < (width + 1) // 2:
                left, right = image[y, x], image[y, width - 1 - x]
                out[y, x] = right
                if width - 1 - x != x:
                    out[y, width - 1 - x] = left
        """,
    },
}


@wrong("axpy_kernel", "float64")
@cuda.jit("void(float64, float32[::1], float32[::1], float32[::1])")
def axpy_of_a_float64(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@wrong("axpy_kernel", "raises")
@cuda.jit
def axpy_returns(a, x, y, out):
    return a * x + y


@wrong("axpy_kernel", "not a kernel")
def axpy_in_numpy(a, x, y, out):
    out[:] = a * x + y


@wrong("relu_on_gpu", "nothing launched")
def relu_on_the_host(x):
    return x * (x > 0)


@wrong("relu_on_gpu", "shortcut")
def relu_by_numpy(x):
    return np.maximum(x, np.float32(0))


@wrong("autocorrelation_kernel", "lost update")
@cuda.jit
def auto_shares_one_output(signal, delay, out):
    k = cuda.grid(1)
    for i in range(out.size):
        if k == 0:
            out[i] = float32(0)
        if k + delay + i < signal.size:
            out[i] += signal[k] * signal[k + delay + i]


@wrong("mirror_kernel", "missing barrier")
@cuda.jit
def mirror_in_the_output(image, out):
    column, row = cuda.grid(2)
    inside = column < image.shape[1] and row < image.shape[0]
    if inside:
        out[row, column] = image[row, column]
    cuda.syncthreads()
    if inside:
        out[row, column] = out[row, image.shape[1] - 1 - column]
