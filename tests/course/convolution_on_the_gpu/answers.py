"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

from numba import cuda, float32
from wrong_answers import wrong

WRONG = {
    "conv_valid_kernel": {
        "writes past the edge": [
            ("if row < out.shape[0] and column < out.shape[1]:", "if True:"),
            ("< out.shape[0] and column < out.shape[1]", "< image.shape[0] and column < image.shape[1]"),
            ("row < out.shape[0] and column < out.shape[1]", "row < out.shape[0]"),
        ],
        "x and y exchanged": [("column, row = cuda.grid(2)", "row, column = cuda.grid(2)")],
        "first block only": [("cuda.grid(2)", "cuda.threadIdx.x, cuda.threadIdx.y")],
        "reads past the edge": [
            [
                ("for i in range(weight.shape[0])", "for i in range(weight.shape[1])"),
                ("for j in range(weight.shape[1])", "for j in range(weight.shape[0])"),
            ],
            ("range(weight.shape[0])", "range(weight.shape[0] + 1)"),
        ],
        "negative index": [("image[row + i, column + j]", "image[row + i - 1, column + j - 1]")],
        "float64": [("float32(0)", "0.0")],
        "uninitialised read": [
            [("total +=", "out[row, column] +="), ("out[row, column] = total", "total += out[row, column]")]
        ],
    },
    "conv_channels_kernel": {
        "reads past the edge": [
            ("weight[oc, ic, kh, kw]", "weight[ic, oc, kh, kw]"),
            ("x[ic, oh + kh, ow + kw]", "x[oc, oh + kh, ow + kw]"),
        ],
        "writes past the edge": [
            ("oc < out.shape[0] and oh < out.shape[1] and ow < out.", "oh < out.shape[1] and ow < out.")
        ],
        "never written": [("oc < out.shape[0]", "oc < x.shape[0]")],
        "x and z exchanged": [("ow, oh, oc = cuda.grid(3)", "oc, oh, ow = cuda.grid(3)")],
        "x and y exchanged": [("ow, oh, oc = cuda.grid(3)", "oh, ow, oc = cuda.grid(3)")],
        "float64": [[("bias[oc]", "0.0"), ("out[oc, oh, ow] = total", "out[oc, oh, ow] = total + bias[oc]")]],
        "z not used": [("ow, oh, oc = cuda.grid(3)", "ow, oh = cuda.grid(2)\noc = 0")],
    },
    "conv2d_kernel": {
        "reads past the edge": [
            ("if 0 <= h < x.shape[2] and 0 <= w < x.shape[3]:", "if True:"),
            ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "h >= 0 and w >= 0"),
            ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "0 <= h <= x.shape[2] and 0 <= w <= x.shape[3]"),
            ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "0 <= h < x.shape[2] or 0 <= w < x.shape[3]"),
        ],
        "negative index": [
            ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "h < x.shape[2] and w < x.shape[3]")
        ],
        "writes past the edge": [("if i >= out.size:\n    return", "")],
        "float64": [
            [("bias[oc]", "0.0"), ("out[n, oc, oh, ow] = total", "out[n, oc, oh, ow] = total + bias[oc]")]
        ],
        "first block only": [("uint32(cuda.grid(1))", "cuda.threadIdx.x")],
    },
}

RIGHT = {
    "conv_valid_kernel": {
        "by np.ndenumerate": """
            x, y = cuda.grid(2)
            if y < out.shape[0] and x < out.shape[1]:
                total = float32(0)
                for (i, j), w in np.ndenumerate(weight):
                    total += image[y + i, x + j] * w
                out[y, x] = total
        """,
        "guarded by the image, in one loop": """
            x, y = cuda.grid(2)
            height, width = weight.shape
            if y + height <= image.shape[0] and x + width <= image.shape[1]:
                total = float32(0)
                for k in range(height * width):
                    total += image[y + k // width, x + k % width] * weight[k // width, k % width]
                out[y, x] = total
        """,
    },
    "conv2d_kernel": {
        "ranges clipped": """
            i = uint32(cuda.grid(1))
            if i >= out.size:
                return
            n, oc, oh, ow = place(i, out.shape)
            top, left = oh * stride_h - padding_h, ow * stride_w - padding_w
            total = bias[oc]
            for ic in range(x.shape[1]):
                for h in range(max(top, 0), min(top + weight.shape[2], x.shape[2])):
                    for w in range(max(left, 0), min(left + weight.shape[3], x.shape[3])):
                        total += weight[oc, ic, h - top, w - left] * x[n, ic, h, w]
            out[n, oc, oh, ow] = total
        """
    },
}


@wrong("conv_valid_kernel", "not a kernel")
def valid_in_numpy(image, weight, out):
    out[:] = image.sum() * weight.sum()


@wrong("conv_valid_kernel", "done more than once")
@cuda.jit
def valid_with_all_four_loops(image, weight, out):
    for row in range(out.shape[0]):
        for column in range(out.shape[1]):
            total = float32(0)
            for i in range(weight.shape[0]):
                for j in range(weight.shape[1]):
                    total += image[row + i, column + j] * weight[i, j]
            out[row, column] = total


@wrong("conv_valid_kernel", "one thread for all")
@cuda.jit
def valid_with_all_four_loops_in_one_thread(image, weight, out):
    if cuda.grid(1) == 0 and cuda.threadIdx.y == 0 and cuda.blockIdx.y == 0:
        for row in range(out.shape[0]):
            for column in range(out.shape[1]):
                total = float32(0)
                for i in range(weight.shape[0]):
                    for j in range(weight.shape[1]):
                        total += image[row + i, column + j] * weight[i, j]
                out[row, column] = total


@wrong("conv_channels_kernel", "done more than once")
@cuda.jit
def channels_all_in_a_thread(x, weight, bias, out):
    ow, oh = cuda.grid(2)
    if oh < out.shape[1] and ow < out.shape[2]:
        for oc in range(out.shape[0]):
            total = bias[oc]
            for ic in range(x.shape[0]):
                for kh in range(weight.shape[2]):
                    for kw in range(weight.shape[3]):
                        total += weight[oc, ic, kh, kw] * x[ic, oh + kh, ow + kw]
            out[oc, oh, ow] = total
