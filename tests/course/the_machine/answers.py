"""The wrong answers that stand beside no mistake of the exercises."""

from numba import cuda, float32
from wrong_answers import wrong

from cnn_course.chapters.the_machine.exercises.waiting import THREADS

WRONG = {
    "bias_relu_kernel": {
        "image by image": [
            (
                "n, c, h, w = place(i, x.shape)",
                "n, rest = i % x.shape[0], i // x.shape[0]\n"
                "c, rest = rest % x.shape[1], rest // x.shape[1]\n"
                "h, w = rest % x.shape[2], rest // x.shape[2]",
            )
        ],
        "channel by channel": [
            (
                "n, c, h, w = place(i, x.shape)",
                "c, rest = i % x.shape[1], i // x.shape[1]\n"
                "w, rest = rest % x.shape[3], rest // x.shape[3]\n"
                "h, n = rest % x.shape[2], rest // x.shape[2]",
            )
        ],
        "row by row": [
            (
                "n, c, h, w = place(i, x.shape)",
                "h, rest = i % x.shape[2], i // x.shape[2]\n"
                "w, rest = rest % x.shape[3], rest // x.shape[3]\n"
                "c, n = rest % x.shape[1], rest // x.shape[1]",
            )
        ],
        "axes exchanged": [
            (
                "n, c, h, w = place(i, x.shape)",
                "w, rest = i % x.shape[3], i // x.shape[3]\n"
                "h, rest = rest % x.shape[2], rest // x.shape[2]\n"
                "n, c = rest % x.shape[0], rest // x.shape[0]",
            )
        ],
        "in chunks": [
            [
                ("i = uint32(cuda.grid(1))", "first = 4 * cuda.grid(1)"),
                ("if i < out.size:", "for i in range(first, min(first + 4, out.size)):"),
            ]
        ],
        "scattered": [
            (
                "n, c, h, w = place(i, x.shape)",
                "n, c, h, w = place(i, x.shape)\n"
                "h, w = x.shape[2] - 1 - h, (w + 3 * h + n) % x.shape[3]\n"
                "c = (c + w) % x.shape[1]",
            )
        ],
        "writes past the edge": [("if i < out.size:", "if True:")],
        "first block only": [("uint32(cuda.grid(1))", "cuda.threadIdx.x")],
        "float64": [
            [("+ bias", "+ 1.0 * bias"), ("float32(0) if value <= float32(0) else value", "max(value, 0.0)")]
        ],
        "reads past the edge": [("bias[c]", "bias[w]")],
    },
    "conv_nhwc_kernel": {
        "image by image": [
            (
                "n, oh, ow, oc = place(i, out.shape)",
                "n, rest = i % out.shape[0], i // out.shape[0]\n"
                "oc, rest = rest % out.shape[3], rest // out.shape[3]\n"
                "ow, oh = rest % out.shape[2], rest // out.shape[2]",
            )
        ],
        "column by column": [
            (
                "n, oh, ow, oc = place(i, out.shape)",
                "ow, rest = i % out.shape[2], i // out.shape[2]\n"
                "oh, rest = rest % out.shape[1], rest // out.shape[1]\n"
                "oc, n = rest % out.shape[3], rest // out.shape[3]",
            )
        ],
        "row by row": [
            (
                "n, oh, ow, oc = place(i, out.shape)",
                "oh, rest = i % out.shape[1], i // out.shape[1]\n"
                "ow, rest = rest % out.shape[2], rest // out.shape[2]\n"
                "oc, n = rest % out.shape[3], rest // out.shape[3]",
            )
        ],
        "axes exchanged": [
            (
                "n, oh, ow, oc = place(i, out.shape)",
                "oc, rest = i % out.shape[3], i // out.shape[3]\n"
                "oh, rest = rest % out.shape[1], rest // out.shape[1]\n"
                "ow, n = rest % out.shape[2], rest // out.shape[2]",
            )
        ],
        "reads past the edge": [
            [
                ("n, oh, ow, oc = ", "n, oc, oh, ow = "),
                ("x[n, oh + kh, ow + kw, ic]", "x[n, ic, oh + kh, ow + kw]"),
                ("out[n, oh, ow, oc]", "out[n, oc, oh, ow]"),
            ],
            ("weight[kh, kw, ic, oc]", "weight[oc, ic, kh, kw]"),
        ],
        "loop over another axis": [
            ("range(weight.shape[2])", "range(weight.shape[3])"),
            ("range(weight.shape[0])", "range(weight.shape[3])"),
        ],
        "overwritten sum": [("total +=", "total =")],
        "writes past the edge": [
            ("out[n, oh, ow, oc]", "out[n, oc, oh, ow]"),
            ("if i >= out.size:\n    return", ""),
        ],
        "float64": [("float32(0)", "0.0")],
        "first block only": [("uint32(cuda.grid(1))", "cuda.threadIdx.x")],
    },
    "choose_launch": {
        "rounded down": [
            [
                ("device.blocks(width, block[0])", "width // block[0]"),
                ("device.blocks(height, block[1])", "height // block[1]"),
            ]
        ],
        "axes exchanged": [
            [
                ("device.blocks(width, block[0])", "0"),
                ("device.blocks(height, block[1])", "device.blocks(width, block[0])"),
                ("0, device", "device.blocks(height, block[1]), device"),
            ],
            [("(width, block[0])", "(height, block[0])"), ("(height, block[1])", "(width, block[1])")],
            [
                ("32, 4", "4, 32"),
                ("(width, block[0])", "(height, block[0])"),
                ("(height, block[1])", "(width, block[1])"),
            ],
        ],
        "needless blocks": [
            ("device.blocks(width, block[0])", "width"),
            ("(height, block[1])", "(width, block[1])"),
        ],
        "block first": [[("return (device", "return block, (device"), ("block[1])), block", "block[1]))")]],
        "not covered": [
            ("(width, block[0])", "(width, 2 * block[0])"),
            [("32, 4", "4, 8"), ("(width, block[0])", "(1, block[0])"), ("(height, block[1])", "(1, 1)")],
        ],
        "too many threads": [("32, 4", "64, 32")],
        "empty launch": [("block[1])), block", "block[1])), (0, 128)")],
        "not a launch": [
            (
                "(device.blocks(width, block[0]), device.blocks(height, block[1])), block",
                "device.blocks(width * height, 128), 128",
            ),
            ("device.blocks(width, block[0])", "(width + block[0] - 1) / block[0]"),
        ],
        "narrow blocks": [("32, 4", "4, 32"), ("32, 4", "1, 256")],
        "too few blocks": [("32, 4", "32, 32")],
        "part of a warp": [("32, 4", "20, 5"), ("32, 4", "1, 1")],
        "threads outside": [("32, 4", "1024, 1")],
    },
    "warps_needed": {
        "type": [("math.ceil(", "float(")],
        "numbers": [("return math.ceil(in_flight / (32 * bytes_per_thread))", "return 12")],
    },
    "warp_sums_kernel": {
        "missing barrier": [
            (
                "for step in (16, 8, 4, 2, 1):\n    cuda.syncwarp()",
                "cuda.syncwarp()\nfor step in (16, 8, 4, 2, 1):",
            ),
            [
                ("cuda.syncwarp()\nif", "if"),
                ("    line[t] += line[t + step]", "    line[t] += line[t + step]\ncuda.syncwarp()"),
            ],
        ],
        "divergent warp": [
            [("cuda.syncwarp()\n", ""), ("    line[t] += line", "    cuda.syncwarp()\n    line[t] += line")]
        ],
        "waits for the block": [("cuda.syncwarp()", "cuda.syncthreads()")],
        "not called": [("cuda.syncwarp()", "cuda.syncwarp")],
        "lanes that return": [
            (
                "    cuda.syncwarp()\n    if t % 32 < step:\n        line[t] += line[t + step]",
                "    if t % 32 >= step:\n        return\n    cuda.syncwarp()\n    line[t] += line[t + step]",
            )
        ],
        "write-write race": [("if t % 32 == 0:", "if t % 32 < 2:")],
        "writes past the edge": [("out[i // 32]", "out[i]")],
        "float64": [("out[i // 32] = line[t]", "out[i // 32] = 0.1 * line[t] * 10")],
    },
}

RIGHT = {
    "choose_launch": {
        "squares, and the grid by hand": """
            return (-(-width // 16), -(-height // 16)), (16, 16)
        """,
        "one warp a block, of two rows": [("32, 4", "np.array([16, 2])")],
    },
    "warps_needed": {
        "in seconds and bytes": """
            return math.ceil((latency * 1e-9 / clock) * (bandwidth * 1e9) / (sms * 32 * bytes_per_thread))
        """,
        "counted up": """
            warps = 0
            while warps * 32 * bytes_per_thread < latency / clock * bandwidth / sms:
                warps += 1
            return warps
        """,
    },
    "warp_sums_kernel": {
        "a guard that keeps nobody out": [
            ("line = cuda.shared", "if cuda.grid(1) >= x.size:\n    return\nline = cuda.shared")
        ],
        "a barrier after each step": """
            line = cuda.shared.array(THREADS, float32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            line[t] = x[i]
            cuda.syncwarp()
            step = 16
            while step > 0:
                if t % 32 < step:
                    line[t] += line[t + step]
                cuda.syncwarp(0xFFFFFFFF)
                step //= 2
            if t % 32 == 0:
                out[i // 32] = line[t]
        """,
    },
    "under_the_roof": {
        "speeds in operations a second": """
            speed = flops / (microseconds * 1e-6)
            memory = flops / bytes_moved * bandwidth
            roof = memory if memory < peak else peak
            return flops / bytes_moved, roof, speed / (roof * 1e9)
        """
    },
    "bias_relu_kernel": {
        "reshaped to rows": """
            i = cuda.grid(1)
            flat, o = x.reshape(x.size), out.reshape(out.size)
            if i < flat.size:
                o[i] = max(flat[i] + bias[i // (x.shape[2] * x.shape[3]) % x.shape[1]], float32(0))
        """,
        "by places in a row": """
            i = cuda.grid(1)
            if i < out.size:
                c = i // (x.shape[2] * x.shape[3]) % x.shape[1]
                out.flat[i] = max(x.flat[i] + bias[c], float32(0))
        """,
        "a stored 0.0": """
            i = uint32(cuda.grid(1))
            if i < out.size:
                n, c, h, w = place(i, x.shape)
                value = x[n, c, h, w] + bias[c]
                if value > 0.0:
                    out[n, c, h, w] = value
                else:
                    out[n, c, h, w] = 0.0
        """,
    },
}


@wrong("warp_sums_kernel", "numbers")
@cuda.jit
def shuffles_nothing(x, out):
    line = cuda.shared.array(THREADS, float32)
    t, i = cuda.threadIdx.x, cuda.grid(1)
    line[t] = x[i]
    cuda.syncwarp()
    if t % 32 == 0:
        out[i // 32] = line[t] + line[t + 1]


@wrong("bias_relu_kernel", "in chunks")
@cuda.jit
def epilogue_of_an_image(x, bias, out):
    n = cuda.grid(1)
    if n < x.shape[0]:
        for c in range(x.shape[1]):
            for h in range(x.shape[2]):
                for w in range(x.shape[3]):
                    out[n, c, h, w] = max(x[n, c, h, w] + bias[c], float32(0))


@wrong("conv_nhwc_kernel", "in chunks")
@cuda.jit
def last_an_image_a_thread(x, weight, out):
    n = cuda.grid(1)
    if n < out.shape[0]:
        for oh in range(out.shape[1]):
            for ow in range(out.shape[2]):
                for oc in range(out.shape[3]):
                    total = float32(0)
                    for kh in range(weight.shape[0]):
                        for kw in range(weight.shape[1]):
                            for ic in range(x.shape[3]):
                                total += x[n, oh + kh, ow + kw, ic] * weight[kh, kw, ic, oc]
                    out[n, oh, ow, oc] = total
