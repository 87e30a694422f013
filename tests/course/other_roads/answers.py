"""The wrong answers that stand beside no mistake of the exercises, and unusual right ones."""

_BARRIER = "barrier(CLK_LOCAL_MEM_FENCE);"
_ROUND = "if (t < step) partial[t] += partial[t + step];"

WRONG = {
    "block_sums_source": {
        "missing barrier": [(f"{_ROUND}\n{_BARRIER}", _ROUND), (f"0.0f;\n{_BARRIER}", "0.0f;")],
        "divergent barrier": [
            (f"{_ROUND}\n{_BARRIER}", f"if (t < step) {{ partial[t] += partial[t + step]; {_BARRIER} }}")
        ],
        "writes past the edge": [("if (t == 0) out[get_group_id(0)] = partial[0];", "out[i] = partial[0];")],
        "no local memory": [("__local", "")],
        "another name": [("void block_sums", "void sums")],
        "does not compile": [("int step", "int step step")],
        "past the local array": [
            ("partial[64]", "partial[16]"),
            ("int step = 32", "int step = 64"),
            ("t < step", "t <= step"),
            (_ROUND, "partial[t] += partial[t + step];"),
        ],
        "race": [("t < step", "t < 32")],
        "another fence": [(_BARRIER, "barrier(CLK_GLOBAL_MEM_FENCE);", 2)],
        "leaves early": [("partial[t] = i < n ? x[i] : 0.0f;", "if (i >= n) return;\npartial[t] = x[i];")],
        "a word of CUDA": [
            ("__local float", "__shared__ float"),
            ("get_local_id(0)", "threadIdx.x"),
            ("__kernel", "__global__"),
            (_BARRIER, "__syncthreads();", 2),
        ],
        "no global memory": [("__global float *out", "float *out")],
        "other parameters": [
            ("int n)", "int n, int m)"),
            (
                "__global const float *x, __global float *out, int n",
                "int n, __global float *x, __global float *out",
            ),
            ("int n)", "long n)"),
        ],
        "// for /": [("step /= 2", "step //= 2")],
        "one item adds": [
            (
                f"for (int step = 32; step > 0; step /= 2) {{\n    {_ROUND}\n    {_BARRIER}\n}}",
                "if (t == 0) for (int k = 1; k < 64; k++) partial[0] += partial[k];",
            )
        ],
        "half": [("int step = 32; step > 0; step /= 2", "int half = 32; half > 0; half /= 2")],
    },
    "standardise_rows": {
        "writes past the edge": [("+ 1e-5), mask=there)", "+ 1e-5))")],
        "raises": [("tl.sqrt", "tl.norm")],
        "mask on the address": [
            [("there, place = k < columns,", "place ="), ("values =", "there = place < columns\nvalues =")]
        ],
        "row begins elsewhere": [
            ("program_id(0) * columns", "program_id(0) * BLOCK"),
            ("program_id(0) * columns", "program_id(0) * columns * 4"),
            ("program_id(0) * columns", "program_id(0) * columns * BLOCK * 100000"),
        ],
        "out of bounds": [
            ("tl.store(out + place", "tl.store(out + place + k * 1000000"),
            ("tl.store(out + place", "tl.atomic_add(out + place + k * 1000000"),
        ],
        "nothing stored": [
            ("tl.store(out + place, distance / tl.sqrt(variance + 1e-5), mask=there)", ""),
            ("tl.store(out", "tl.store(x"),
        ],
        "NumPy": [("tl.sqrt", "np.sqrt")],
        "number by number": [
            (
                "tl.store(out + place, distance / tl.sqrt(variance + 1e-5), mask=there)",
                "for j in range(columns):\n"
                "    number = tl.load(x + tl.program_id(0) * columns + j)\n"
                "    place = tl.program_id(0) * columns + j\n"
                "    tl.store(out + place, (number - mean) / tl.sqrt(variance + 1e-5))",
            )
        ],
    },
    "pooling_program": {
        "out of bounds": [
            ("    if (i >= channels * h * w) return;\n", ""),
            [
                ("    if (i >= channels * h * w) return;\n", ""),
                ("out[i] = fmaxf(above, below);", "if (i < channels * h * w) out[i] = fmaxf(above, below);"),
            ],
        ],
        "not a program": [
            ("return source, -(-places // 256), 256", "return source"),
            ("return source, -(-places // 256), 256", "return [source, -(-places // 256), 256]"),
        ],
        "threads of a block": [
            ("return source, -(-places // 256), 256", "return source, 256, -(-places // 256)")
        ],
        "not whole": [
            ("-(-places // 256)", "places / 256 + 1"),
            ("-(-places // 256)", "(-(-places // 256),)"),
        ],
        "no extern": [('extern "C" ', "")],
        "not small enough": [
            ("fmaxf(above, below)", "fmaxf(-1e9f, fmaxf(above, below))"),
            ("fmaxf(above, below)", "fmaxf(-10, fmaxf(above, below))"),
        ],
        "numbers": [("return source, -(-places // 256), 256", "return source, 1, 1024")],
        "other parameters": [("int channels, int height", "int channels, float height")],
        "// for /": [("int h = height / 2", "int h = height // 2")],
        "does not compile": [("four[1]);", "four[1])")],
    },
    "tune": {
        "all are checked": [
            [
                ("ranking = []", "right = [is_right(one) for one in candidates]\nranking = []"),
                ("if is_right(candidates[place]):", "if right[place]:"),
            ]
        ]
    },
}

RIGHT = {
    "block_sums_source": {
        "one barrier, at the head of the loop": [
            (
                "    barrier(CLK_LOCAL_MEM_FENCE);\n    for (int step = 32; step > 0; step /= 2) {",
                "    for (int step = 32; step > 0; step /= 2) {\n    barrier(CLK_LOCAL_MEM_FENCE);",
            ),
            ("partial[t + step];\nbarrier(CLK_LOCAL_MEM_FENCE);", "partial[t + step];"),
        ],
        "do, and a function and a type of OpenCL": [
            ("i < n ? x[i] : 0.0f;", "number(x, i, n);"),
            (
                "__kernel void",
                "float number(__global const float *x, int i, int n) { return i < n ? x[i] : 0.0f; }\n\n"
                "__kernel void",
            ),
            (
                "int t = get_local_id(0), i = get_global_id(0);",
                "uint t = get_local_id(0), i = get_global_id(0);",
            ),
            ("for (int step = 32; step > 0; step /= 2) {", "uint step = 64;\ndo {\n    step /= 2;"),
            (
                "    barrier(CLK_LOCAL_MEM_FENCE);\n}",
                "    barrier(CLK_LOCAL_MEM_FENCE);\n} while (step > 1);",
            ),
        ],
        "words without underscores": [
            ("__kernel", "kernel"),
            ("__global", "global", 2),
            ("__local", "local"),
        ],
        "the other way up, sizes asked for": [
            ("int step = 32; step > 0; step /= 2", "int step = 1; step < 64; step *= 2"),
            ("if (t < step)", "if (t % (2 * step) == 0)"),
            ("get_global_id(0);", "get_group_id(0) * get_local_size(0) + t;"),
        ],
    },
    "standardise_rows": {
        "the mask as numbers": [
            ("tl.where(there, values - mean, 0.0)", "(values - mean) * there.to(tl.float32)")
        ],
        "the mean, number by number": [
            (
                "mean = tl.sum(values, axis=0) / columns",
                "mean = 0.0\n"
                "for j in range(columns):\n"
                "    mean += tl.load(x + tl.program_id(0) * columns + j) / columns",
            )
        ],
    },
    "pooling_program": {
        "from minus infinity": [("= fmaxf(four[0], four[1])", "= fmaxf(fmaxf(-INFINITY, four[0]), four[1])")],
        "a block a channel and row": [
            ("-(-places // 256), 256", "channels * (height // 2), 64"),
            ("if (i >= channels * h * w) return;\n", "for (i = threadIdx.x; i < w; i += blockDim.x) {\n"),
            ("i / (h * w), row = i / w % h,", "blockIdx.x / h, row = blockIdx.x % h,"),
            ("column = i % w", "column = i"),
            ("out[i] = fmaxf(above, below);", "out[blockIdx.x * w + i] = fmaxf(above, below); }"),
        ],
    },
    "tune": {
        "by the best so far": """
            best = None
            order = []
            for place, one in enumerate(candidates):
                fits = one.threads <= 1024 and occupancy(gpu.cc, one.threads, one.registers, one.shared).warps
                if fits:
                    tiles = int(np.ceil(m / one.tile_m) * np.ceil(n / one.tile_n))
                    moved = 4 * (tiles * depth * (one.tile_m + one.tile_n) + m * n)
                    work = 2 * one.tile_m * one.tile_n * depth * np.ceil(tiles / gpu.sms) * gpu.sms
                    slowed = max(1, 16 / fits)
                    order.append((max(moved / gpu.bandwidth, work / gpu.flops * slowed), place))
            while order and best is None:
                seconds, place = min(order)
                order.remove((seconds, place))
                if is_right(candidates[place]):
                    best = place, seconds
            if best is None:
                raise ValueError("none")
            return best
        """
    },
}
