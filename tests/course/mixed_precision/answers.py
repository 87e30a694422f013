"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

from numba import cuda, float32
from wrong_answers import wrong

WRONG = {
    "sum_rows_kernel": {
        "writes past the edge": [("if row < x.shape[0]:", "if True:")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "reads past the edge": [("range(x.shape[1])", "range(x.shape[1] + 1)")],
        "float64": [("total = float32(0)", "total = 0.0")],
        "nothing written": [("out[row] = total", "")],
    },
    "stochastic_kernel": {
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "writes past the edge": [("if i < x.size:", "if True:")],
    },
    "unscale_kernel": {"race between blocks": [("cuda.grid(1)", "cuda.threadIdx.x")]},
}

RIGHT = {
    "decode_float16": {
        "by whole numbers": """
            sign, exponent, mantissa = bits // 32768, bits // 1024 % 32, bits % 1024
            if exponent == 31:
                value = math.inf
            else:
                value = ((exponent > 0) * 1024 + mantissa) * 2.0 ** (max(exponent, 1) - 25)
            return -value if sign else value
        """
    },
    "sum_rows_kernel": {
        "widened by the sum": [("float32(x[row, k])", "x[row, k]")],
        "summed in the output": """
            row = cuda.grid(1)
            if row < out.size:
                out[row] = 0
                for k in range(x.shape[1] - 1, -1, -1):
                    out[row] += x[row, k]
        """,
    },
    "stochastic_kernel": {
        "shifted to and fro": [("uint32(0xFFFF)", "0xFFFF"), ("& uint32(0xFFFF0000)", ">> 16 << 16")],
        "with a remainder": """
            i = cuda.grid(1)
            if i < x.size:
                total = x[i] + random[i] % 65536
                out[i] = total - total % 65536
        """,
    },
    "unscale_kernel": {
        "isfinite": [("not abs(gradient) < float32(np.inf)", "not math.isfinite(gradient)")],
        "two questions": [
            ("not abs(gradient) < float32(np.inf)", "math.isnan(gradient) or math.isinf(gradient)")
        ],
        "looked at before": [
            ("not abs(gradient) < float32(np.inf)", "not gradients[i] - gradients[i] == float32(0)")
        ],
        "by the inverse": [("gradients[i] / scale[0]", "gradients[i] * (float32(1) / scale[0])")],
        "all write the same": [("cuda.atomic.max(found_inf, 0, 1)", "found_inf[0] = 1")],
    },
    "next_scale": {
        "in one expression": """
            good_steps = 0 if found_inf else good_steps + 1
            grown = good_steps >= interval
            return scale * (0.5 if found_inf else 1 + grown), good_steps % interval
        """
    },
}


@wrong("decode_float16", "shortcut")
def float16_by_numpy(bits):
    import numpy

    return float(numpy.uint16(bits).view("float16"))


@wrong("sum_rows_kernel", "done more than once")
@cuda.jit
def rows_by_every_thread(x, out):
    for row in range(x.shape[0]):
        total = float32(0)
        for k in range(x.shape[1]):
            total += float32(x[row, k])
        out[row] = total
