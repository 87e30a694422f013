"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

from wrong_answers import wrong

WRONG = {
    "decode_float16": {"^ for **": [("2.0 ** (exponent - 15)", "2.0 ^ (exponent - 15)")]},
    "conv_half_kernel": {
        "writes past the edge": [("if i < out.size:", "if True:")],
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "reads past the edge": [("range(weight.shape[2])", "range(weight.shape[2] + 1)")],
        "float64": [("total = bias[k]", "total = 0.0 + bias[k]")],
        "nothing written": [("out[n, k, oh, ow] = total", "")],
        "loop over another axis": [
            ("range(weight.shape[3])", "range(weight.shape[2])"),
            ("range(weight.shape[1])", "range(weight.shape[0])"),
            [(f"range(weight.shape[{axis}])", f"range(x.shape[{axis}])") for axis in (2, 3)],
        ],
    },
    "stochastic_kernel": {
        "first block only": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "writes past the edge": [("if i < x.size:", "if True:")],
    },
    "unscale_kernel": {
        "race between blocks": [("cuda.grid(1)", "cuda.threadIdx.x")],
        "too much for a thread": [
            """
            if cuda.grid(1) == 0:
                for k in range(gradients.size):
                    gradients[k] /= scale[0]
                    if not math.isfinite(gradients[k]):
                        found_inf[0] = 1
            """
        ],
    },
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
    "conv_half_kernel": {
        "widened by the product": [("float32(x[n, c, oh + h, ow + w])", "x[n, c, oh + h, ow + w]")],
        "rounded by hand": [("out[n, k, oh, ow] = total", "out[n, k, oh, ow] = float16(total)")],
        "bias at the end": [("total = bias[k]", "total = float32(0)"), ("= total", "= total + bias[k]")],
    },
    "stochastic_kernel": {
        "by the carry": """
            for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
                rest = x[i] & 0xFFFF
                out[i] = x[i] - rest
                if rest + (random[i] & 0xFFFF) > 0xFFFF:
                    out[i] += 0x10000
        """,
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
        "only finite ones divided": [
            ("gradients[i] = gradient", ""),
            (
                "    cuda.atomic.max(found_inf, 0, 1)",
                "    cuda.atomic.max(found_inf, 0, 1)\nelse:\n    gradients[i] = gradient",
            ),
        ],
        "all write the same": [("cuda.atomic.max(found_inf, 0, 1)", "found_inf[0] = 1")],
    },
}


@wrong("decode_float16", "shortcut")
def float16_by_numpy(bits):
    import numpy

    return float(numpy.uint16(bits).view("float16"))
