"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

import numpy as np
from numba import cuda, float32
from wrong_answers import wrong

from benchmarks.rungs.conv_naive import conv2d_forward_naive
from cnn_numba import device

WRONG = {
    "conv_valid_kernel": {
        "writes past the edge": [
            ("if row < out.shape[0] and column < out.shape[1]:", "if True:"),
            ("< out.shape[0] and column < out.shape[1]", "< image.shape[0] and column < image.shape[1]"),
            ("row < out.shape[0] and column < out.shape[1]", "row < out.shape[0]"),
        ],
        "guard exchanges axes": [
            ("row < out.shape[0] and column < out.shape[1]", "row < out.shape[1] and column < out.shape[0]")
        ],
        "x and y exchanged": [("column, row = cuda.grid(2)", "row, column = cuda.grid(2)")],
        "first block only": [("cuda.grid(2)", "cuda.threadIdx.x, cuda.threadIdx.y")],
        "loop over another axis": [
            [
                ("for i in range(weight.shape[0])", "for i in range(weight.shape[1])"),
                ("for j in range(weight.shape[1])", "for j in range(weight.shape[0])"),
            ]
        ],
        "reads past the edge": [("range(weight.shape[0])", "range(weight.shape[0] + 1)")],
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
        "guard exchanges axes": [
            ("oh < out.shape[1] and ow < out.shape[2]", "oh < out.shape[2] and ow < out.shape[1]")
        ],
        "fixed loop": [
            [("range(weight.shape[2])", "range(3)"), ("range(weight.shape[3])", "range(3)")],
            [
                ("range(weight.shape[2])", "range(3)"),
                ("range(weight.shape[3])", "range(3)"),
                ("total +=", "if kh < weight.shape[2] and kw < weight.shape[3]:\n    total +="),
            ],
        ],
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
            ("x[n, ic, h, w]", "x[n, oc, h, w]"),
        ],
        "negative index": [
            ("0 <= h < x.shape[2] and 0 <= w < x.shape[3]", "h < x.shape[2] and w < x.shape[3]")
        ],
        "writes past the edge": [("if i >= out.size:\n    return", "")],
        "float64": [
            [("bias[oc]", "0.0"), ("out[n, oc, oh, ow] = total", "out[n, oc, oh, ow] = total + bias[oc]")]
        ],
        "first block only": [("uint32(cuda.grid(1))", "cuda.threadIdx.x")],
        "one too few": [("i >= out.size", "i >= out.size - 1")],
        "overwritten sum": [("total +=", "total =")],
        "other sign": [("kh - padding_h", "kh + padding_h")],
        "sum set back": [
            ("for ic in range(x.shape[1]):", "for ic in range(x.shape[1]):\n    total = bias[oc]")
        ],
    },
    "shrink": {
        "writes past the edge": [("if i >= out.size:\n    return", "")],
        "reads past the edge": [("min(max(2 * row + dy, 0), images.shape[1] - 1)", "max(2 * row + dy, 0)")],
        "negative index": [("max(2 * column + dx, 0)", "2 * column + dx")],
        "uninitialised read": [
            [("total = float32(0)", ""), ("total +=", "out[n, row, column] +="), ("= total /", "/=")]
        ],
        "never written": [
            ("device.blocks(d_out.size, THREADS)", "max(1, d_out.size // THREADS)"),
            ("device.blocks(d_out.size, THREADS)", "3"),
            ("i >= out.size", "i >= out.size - 1 and i > 0"),
        ],
        "nothing computed": [
            ("shrink_kernel[device.blocks(d_out.size, THREADS), THREADS](d_images, d_out)", "")
        ],
        "host array": [("cuda.to_device(images)", "images")],
        "left on the device": [("d_out.copy_to_host()", "d_out")],
        "returns None": [("return d_out.copy_to_host()", "d_out.copy_to_host()")],
        "type": [("(width + 1) // 2), np.float32)", "(width + 1) // 2))")],
        "computes on the host": [
            [
                ("total / float32(16)", "total"),
                ("d_out.copy_to_host()", "d_out.copy_to_host() / np.float32(16)"),
            ],
            ("cuda.to_device(images)", "cuda.to_device(images.clip(0, 1))"),
        ],
        "raises": [
            ("device.blocks(d_out.size, THREADS)", "d_out.size / THREADS"),
            ("[device.blocks(d_out.size, THREADS), THREADS]", ""),
            ("images[n, y, x]", "images[n, y]"),
        ],
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
    "shrink": {
        "one direction, used twice": '''
            @cuda.jit
            def halve_columns(x, out):
                i = cuda.grid(1)
                if i < out.size:
                    row, column = i // out.shape[1], i % out.shape[1]
                    left, right = max(2 * column - 1, 0), min(2 * column + 1, x.shape[1] - 1)
                    middle = x[row, 2 * column]
                    out[row, column] = (x[row, left] + middle + middle + x[row, right]) / float32(4)


            def halved(x):
                d_x = cuda.to_device(np.ascontiguousarray(x).reshape(-1, x.shape[-1]))
                d_out = cuda.device_array((d_x.shape[0], (d_x.shape[1] + 1) // 2), np.float32)
                halve_columns[device.blocks(d_out.size, 96), 96](d_x, d_out)
                return d_out.copy_to_host().reshape(*x.shape[:-1], -1)


            def shrink(images):
                """Halve the columns, then the rows, which are columns once the axes have changed places."""
                return halved(halved(images).transpose(0, 2, 1)).transpose(0, 2, 1)
        ''',
        "a border by NumPy, three kernels, cut by NumPy": '''
            @cuda.jit
            def rows_kernel(x, out):
                column, n = cuda.grid(2)
                if column < out.shape[2] and n < x.shape[0]:
                    for row in range(x.shape[1]):
                        ends = x[n, row, column] + x[n, row, column + 2]
                        out[n, row, column] = float32(0.25) * ends + float32(0.5) * x[n, row, column + 1]


            @cuda.jit
            def columns_kernel(x, out):
                row, n = cuda.grid(2)
                if row < out.shape[1] and n < x.shape[0]:
                    for column in range(x.shape[2]):
                        ends = x[n, row, column] + x[n, row + 2, column]
                        out[n, row, column] = float32(0.25) * ends + float32(0.5) * x[n, row + 1, column]


            def shrink(images):
                """Blur every pixel, in two launches for a part of the batch, then drop three of four."""
                padded = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")
                n, height, width = images.shape
                d_out = cuda.device_array((n, height, width), np.float32)
                for first in range(0, n, 60_000):
                    d_x = cuda.to_device(padded[first : first + 60_000])
                    d_rows = cuda.device_array((len(d_x), height + 2, width), np.float32)
                    rows_kernel[(device.blocks(width, 32), len(d_x)), (32, 1)](d_x, d_rows)
                    columns_kernel[(device.blocks(height, 32), len(d_x)), (32, 1)](
                        d_rows, d_out[first : first + 60_000]
                    )
                return d_out.copy_to_host()[:, ::2, ::2]
        ''',
        "a kernel inside, any grid, weights from the host": """
            @cuda.jit
            def kernel(x, weights, out):
                for n in range(cuda.blockIdx.x, out.shape[0], cuda.gridDim.x):
                    for i in range(cuda.threadIdx.x, out.shape[1] * out.shape[2], cuda.blockDim.x):
                        row, column = i // out.shape[2], i % out.shape[2]
                        out[n, row, column] = 0
                        for k in range(9):
                            y = min(max(2 * row + k // 3 - 1, 0), x.shape[1] - 1)
                            x_ = min(max(2 * column + k % 3 - 1, 0), x.shape[2] - 1)
                            out[n, row, column] += weights[k] * x[n, y, x_]

            n, height, width = images.shape
            out = np.empty((n, (height + 1) // 2, (width + 1) // 2), np.float32)
            d_out = device.to_device(out)
            weights = device.to_device(np.outer([1, 2, 1], [1, 2, 1]).ravel() / np.float64(16))
            device.launch(kernel, min(n, 50), 64, device.to_device(images), weights, d_out)
            return device.to_host(d_out)
        """,
        "in float64": [("total = float32(0)", "total = 0.0")],
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


@cuda.jit
def _blurred_pixels(images, out):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        rest, column = i // out.shape[2], i % out.shape[2]
        n, row = rest // out.shape[1], rest % out.shape[1]
        total = float32(0)
        for dy in range(-1, 2):
            y = min(max(2 * row + dy, 0), images.shape[1] - 1)
            for dx in range(-1, 2):
                x = min(max(2 * column + dx, 0), images.shape[2] - 1)
                total += float32((2 - abs(dy)) * (2 - abs(dx))) * images[n, y, x]
        out[n, row, column] = total / float32(16)


def _half(images):
    n, height, width = images.shape
    return cuda.device_array((n, (height + 1) // 2, (width + 1) // 2), np.float32)


@wrong("shrink", "one block")
def shrink_in_one_block(images):
    out = _half(images)
    _blurred_pixels[1, 256](cuda.to_device(images), out)
    return out.copy_to_host()


@wrong("shrink", "too many launches")
def shrink_image_by_image(images):
    images, out = cuda.to_device(images), _half(images)
    for n in range(len(images)):
        _blurred_pixels[4, 64](images[n : n + 1], out[n : n + 1])
    return out.copy_to_host()


@wrong("shrink", "nothing launched")
def shrink_in_loops(images):
    out = np.zeros(_half(images).shape, np.float32)
    for n, row, column in np.ndindex(out.shape):
        for dy in (-1, 0, 1):
            for dx in (-1, 0, 1):
                y = min(max(2 * row + dy, 0), images.shape[1] - 1)
                x = min(max(2 * column + dx, 0), images.shape[2] - 1)
                out[n, row, column] += (2 - abs(dy)) * (2 - abs(dx)) * images[n, y, x] / 16
    return out


@wrong("shrink", "package's kernel")
def shrink_by_the_package(images):
    weight = np.outer([1, 2, 1], [1, 2, 1])[None, None].astype(np.float32)
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)), mode="edge")[:, None]
    out = conv2d_forward_naive(device.to_device(padded), device.to_device(weight), stride=2)
    return out.copy_to_host()[:, 0]


@cuda.jit
def _blurred_in_place(images):
    column, row, n = cuda.grid(3)
    if column < images.shape[2] and row < images.shape[1] and n < images.shape[0]:
        left, right = max(column - 1, 0), min(column + 1, images.shape[2] - 1)
        ends = images[n, row, left] + images[n, row, right]
        images[n, row, column] = float32(0.25) * ends + float32(0.5) * images[n, row, column]


@wrong("shrink", "missing barrier")
def shrink_in_place(images):
    images, out = cuda.to_device(images), _half(images)
    _blurred_in_place[(1, 1, len(images)), (32, 16, 1)](images)
    _blurred_pixels[4, 64](images, out)
    return out.copy_to_host()


@wrong("shrink", "wrong when large")
def shrink_with_an_image_for_each_z(images):
    images, out = cuda.to_device(images), _half(images)
    grid = device.blocks(images.shape[2], 32), device.blocks(images.shape[1], 16), len(images)
    _one_pixel[grid, (32, 16, 1)](images, out)
    return out.copy_to_host()


@cuda.jit
def _one_pixel(images, out):
    column, row, n = cuda.grid(3)
    if column < out.shape[2] and row < out.shape[1]:
        total = float32(0)
        for dy in range(-1, 2):
            y = min(max(2 * row + dy, 0), images.shape[1] - 1)
            for dx in range(-1, 2):
                x = min(max(2 * column + dx, 0), images.shape[2] - 1)
                total += float32((2 - abs(dy)) * (2 - abs(dx))) * images[n, y, x]
        out[n, row, column] = total / float32(16)
