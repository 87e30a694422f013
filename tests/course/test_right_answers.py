"""Right answers that are not the solution: unusual ones, which a check must not refuse."""

import textwrap

import pytest
from test_exercises import FOUND
from wrong_answers import replaced

# Without a compiler a check judges by what the simulator stores, and refuses a stored 0.0.
pytestmark = pytest.mark.gpu

# By exercise and name: the lines behind the docstring, or what is replaced in the solution. Where two
# notebooks have an exercise of the same name, the notebook's number stands before it.
ANSWERS = {
    "axpy_kernel": {
        "a print left in": [("out[i] =", "print(i, x[i])\nout[i] =")],
        "a signature": [
            ("@cuda.jit", '@cuda.jit("void(float32, float32[:], float32[:], float32[:])")'),
        ],
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
        """,
    },
    "lstm_cell_kernel": {
        "read back from the outputs": """
            j, n = cuda.grid(2)
            samples, hidden = h.shape
            if j < hidden and n < samples:
                for gate in range(4):
                    value = sums[n, gate * hidden + j]
                    gates[n, gate * hidden + j] = math.tanh(value) if gate == 2 else sigmoid(value)
                cell[n, j] = gates[n, j] * gates[n, 2 * hidden + j] + gates[n, hidden + j] * c[n, j]
                h[n, j] = math.tanh(cell[n, j]) * gates[n, 3 * hidden + j]
        """,
    },
    "block_sums_source": {
        "one barrier, at the head of the loop": [
            (
                "    barrier(CLK_LOCAL_MEM_FENCE);\n    for (int step = 32; step > 0; step /= 2) {",
                "    for (int step = 32; step > 0; step /= 2) {\n    barrier(CLK_LOCAL_MEM_FENCE);",
            ),
            ("partial[t + step];\nbarrier(CLK_LOCAL_MEM_FENCE);", "partial[t + step];"),
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
            ("tl.where(there, values - mean, 0.0)", "(values - mean) * there.to(tl.float32)"),
        ],
        "the mean, number by number": [
            (
                "mean = tl.sum(values, axis=0) / columns",
                "mean = 0.0\n"
                "for j in range(columns):\n"
                "    mean += tl.load(x + tl.program_id(0) * columns + j) / columns",
            ),
        ],
    },
    "pooling_program": {
        "from minus infinity": [
            (
                "float above = fmaxf(four[0], four[1]);",
                "float above = fmaxf(fmaxf(-INFINITY, four[0]), four[1]);",
            ),
        ],
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
        """,
    },
    "last_states": {
        "the last of all states": [
            ("_, h_n, _, _, _ =", "out, *_ ="),
            ("x.transpose(1, 0, 2)", "np.ascontiguousarray(np.moveaxis(x, 0, 1))"),
            ("return h_n", "return out[:, -1]"),
        ],
        "sample by sample": """
            samples = range(x.shape[1])
            return np.stack([lstm_forward(x[:, n][None], weight_ih, weight_hh)[1][0] for n in samples])
        """,
    },
    "lstm_cell_backward_kernel": {
        "a slope from the hyperbolic cosine": [
            ("(one - squashed * squashed)", "(one / (math.cosh(cell[n, j]) * math.cosh(cell[n, j])))")
        ],
    },
    "backward_through_time": {
        "collected in a list": """
            samples, steps, size = gates.shape
            before = np.concatenate([np.zeros((samples, 1, size // 4)), cells[:, :-1]], axis=1)
            grad_h, grad_c, collected = grad_h_n, 0.0, []
            for t in range(steps)[::-1]:
                grad_sums, grad_c = cell_backward(gates[:, t], before[:, t], cells[:, t], grad_h, grad_c)
                collected.insert(0, grad_sums)
                grad_h = np.dot(grad_sums, weight_hh)
            return np.stack(collected, axis=1)
        """,
    },
    "relu_stride_kernel": {
        "a product with a truth": """
            i = cuda.grid(1)
            while i < x.size:
                out[i] = x[i] * (x[i] > 0)
                i += cuda.gridsize(1)
        """,
    },
    "mirror_kernel": {
        "counted from the end": [("width - 1 - column", "-1 - column")],
        "written from the end": [
            ("out[row, column] = image[row, width - 1 - column]", "out[row, ~column] = image[row, column]")
        ],
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
        """,
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
    "smooth_kernel": {
        "a stored 0.0": """
            tile = cuda.shared.array(SPAN, float32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            for k in range(t, SPAN, BLOCK):
                j = cuda.blockIdx.x * BLOCK - RADIUS + k
                if 0 <= j < signal.size:
                    tile[k] = signal[j]
                else:
                    tile[k] = 0.0
            cuda.syncthreads()
            if i < out.size:
                total = float32(0)
                for k in range(weights.size):
                    total += tile[t + k] * weights[k]
                out[i] = total
        """,
    },
    "04 conv_channels_kernel": {
        "two tiles and one barrier": """
            patch = cuda.shared.array((2, PATCH_H, PATCH_W), float32)
            tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
            top, left = cuda.blockIdx.y * TILE_H, cuda.blockIdx.x * TILE_W
            row, column = top + ty, left + tx
            total = float32(0)
            for c in range(x.shape[0]):
                for k in range(ty * TILE_W + tx, PATCH_H * PATCH_W, TILE_H * TILE_W):
                    h, w = k // PATCH_W, k % PATCH_W
                    if top + h < x.shape[1] and left + w < x.shape[2]:
                        patch[c % 2, h, w] = x[c, top + h, left + w]
                cuda.syncthreads()
                if row < out.shape[0] and column < out.shape[1]:
                    for i in range(TAPS):
                        for j in range(TAPS):
                            total += patch[c % 2, ty + i, tx + j] * weight[c, i, j]
            if row < out.shape[0] and column < out.shape[1]:
                out[row, column] = total
        """,
    },
    "turn_kernel": {
        "counted from the end": [("out[width - 1 - left - r, top + tx]", "out[-1 - left - r, top + tx]")],
    },
    "max_pool_kernel": {
        "backwards, with >=": """
            i = cuda.grid(1)
            if i < out.size:
                rows, ow = divmod(i, out.shape[2])
                plane, oh = divmod(rows, out.shape[1])
                best, where = float32(-math.inf), -1
                for k in range(kernel * kernel - 1, -1, -1):
                    h, w = oh * stride + k // kernel, ow * stride + k % kernel
                    if x[plane, h, w] >= best:
                        best, where = x[plane, h, w], h * x.shape[2] + w
                out[plane, oh, ow], argmax[plane, oh, ow] = best, where
        """,
    },
    "block_sums_kernel": {
        "a tail of bare zeros": [("float32(0)", "0.0")],
        "the sum in a register": """
            partial = cuda.shared.array(THREADS, float32)
            t, i = cuda.threadIdx.x, cuda.grid(1)
            own = x[i] if i < x.size else float32(0)
            partial[t] = own
            cuda.syncthreads()
            half = THREADS // 2
            while half > 0:
                if t < half:
                    own += partial[t + half]
                    partial[t] = own
                cuda.syncthreads()
                half //= 2
            if t == 0:
                out[cuda.blockIdx.x] = own
        """,
    },
    "11b softmax_kernel": {
        "shifted by the logarithm of the sum": [
            ("- largest) / total", "- (largest + math.log(total)))"),
        ],
    },
    "cross_entropy_kernel": {
        "shifted by the logarithm of the sum": [
            (
                "math.exp(logits[row, k] - largest) / total",
                "math.exp(logits[row, k] - largest - math.log(total))",
            ),
        ],
    },
    "causal_softmax_kernel": {
        "shifted by the logarithm of the sum": [
            ("- largest) / total", "- (largest + math.log(total)))"),
        ],
    },
    "row_max_kernel": {
        "shuffled down": [("cuda.shfl_xor_sync", "cuda.shfl_down_sync")],
    },
    "05 histogram_kernel": {
        "shifted, thread 0 adds": [
            ("x[i] // 16", "x[i] >> 4"),
            (
                "if t < BINS:\n    cuda.atomic.add(counts, t, own[t])",
                "if t == 0:\n    for b in range(BINS):\n        cuda.atomic.add(counts, b, own[b])",
            ),
        ],
    },
    "05 softmax_kernel": {
        "shifted by the logarithm of the sum": [
            ("total = warp_sum(total)", "shift = largest + math.log(warp_sum(total))"),
            ("math.exp(logits[row, k] - largest) / total", "math.exp(logits[row, k] - shift)"),
        ],
        "by the logarithm of the sum": [
            ("total = warp_sum(total)", "total = math.log(warp_sum(total))"),
            (
                "math.exp(logits[row, k] - largest) / total",
                "math.exp(logits[row, k] - largest - total)",
            ),
        ],
    },
    "matmul_tiled_kernel": {
        "stale numbers are not summed": """
            a_tile = cuda.shared.array((TILE, TILE), float32)
            b_tile = cuda.shared.array((TILE, TILE), float32)
            x, y = cuda.threadIdx.x, cuda.threadIdx.y
            column, row = cuda.grid(2)
            total = float32(0)
            for start in range(0, a.shape[1], TILE):
                if row < a.shape[0] and start + x < a.shape[1]:
                    a_tile[y, x] = a[row, start + x]
                if start + y < b.shape[0] and column < b.shape[1]:
                    b_tile[y, x] = b[start + y, column]
                cuda.syncthreads()
                if row < out.shape[0] and column < out.shape[1]:
                    for k in range(min(TILE, a.shape[1] - start)):
                        total += a_tile[y, k] * b_tile[k, x]
                cuda.syncthreads()
            if row < out.shape[0] and column < out.shape[1]:
                out[row, column] = total
        """,
    },
    "dense_kernel": {
        "a product with a truth": [("float32(0) if total <= float32(0) else total", "total * (total > 0)")],
    },
    "im2col_kernel": {
        "by divmod": """
            column, row = cuda.grid(2)
            if row < columns.shape[0] and column < columns.shape[1]:
                channel, tap = divmod(row, kernel_size * kernel_size)
                kh, kw = divmod(tap, kernel_size)
                oh, ow = divmod(column, image.shape[2] - kernel_size + 1)
                columns[row, column] = image[channel, oh + kh, ow + kw]
        """,
    },
    "relu_backward_kernel": {
        "a stored 0.0": """
            i = cuda.grid(1)
            if i < out.size:
                if out[i] > 0:
                    grad_input[i] = grad_output[i]
                else:
                    grad_input[i] = 0.0
        """,
    },
    "momentum_kernel": {
        "in place": """
            i = cuda.grid(1)
            if i < parameters.size:
                velocity[i] *= momentum
                velocity[i] += gradients[i]
                parameters[i] -= lr * velocity[i]
        """,
    },
    "edges_kernel": {
        "halved by a literal": [("float32(0.5)", "0.5")],
    },
    "block_max_kernel": {
        "the last element again": [("x[i] if i < x.size else float32(-math.inf)", "x[min(i, x.size - 1)]")],
    },
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
    "decode_float16": {
        "by whole numbers": """
            sign, exponent, mantissa = bits // 32768, bits // 1024 % 32, bits % 1024
            if exponent == 31:
                value = math.inf
            else:
                value = ((exponent > 0) * 1024 + mantissa) * 2.0 ** (max(exponent, 1) - 25)
            return -value if sign else value
        """,
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
        "shifted to and fro": [
            ("uint32(0xFFFF)", "0xFFFF"),
            ("(x[i] + noise) & uint32(0xFFFF0000)", "(x[i] + noise) >> 16 << 16"),
        ],
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
    "combined_gradient": {
        "with zeros for nobody's": """
            weights = np.asarray(counts)[:, None] / np.sum(counts)
            return np.where(weights > 0, gradients * weights, 0).sum(axis=0)
        """,
    },
    "ring_all_reduce": {
        "only the last receives first": [("if rank % 2 == 0:", "if rank < size - 1:")],
        "cut by NumPy": [
            (
                "[array[k * n // size : (k + 1) * n // size] for k in range(size)]",
                "np.array_split(array, size)",
            ),
            ("n = len(array)", ""),
        ],
        "begun with the next chunk": [
            ("chunks[(rank - step - 1) % size] +=", "chunks[(rank - step) % size] +="),
            ("exchange(chunks[(rank - step) % size])", "exchange(chunks[(rank + 1 - step) % size])"),
            (
                "chunks[(rank - step) % size][:] = exchange(chunks[(rank + 1 - step) % size])",
                "chunks[(rank + 1 - step) % size][:] = exchange(chunks[(rank + 2 - step) % size])",
            ),
        ],
    },
    "next_scale": {
        "in one expression": """
            good_steps = 0 if found_inf else good_steps + 1
            grown = good_steps >= interval
            return scale * (0.5 if found_inf else 1 + grown), good_steps % interval
        """,
    },
}
EACH = [(exercise, name, answer) for exercise, answers in ANSWERS.items() for name, answer in answers.items()]


def source_of(solution, answer):
    """Return an answer's source: the solution's, with replacements or another body."""
    if isinstance(answer, str):
        head, docstring, _ = solution.split('"""')
        return f'{head}"""{docstring}"""\n{textwrap.indent(textwrap.dedent(answer), "    ")}'
    for replacement in answer:
        solution = replaced(solution, *replacement)
    return solution


@pytest.mark.exhaustive_unless(
    lambda exercise, answer: answer is next(iter(ANSWERS[exercise].values())),
    "the first unusual answer of each exercise",
)
@pytest.mark.parametrize(
    ("exercise", "answer"),
    [(exercise, answer) for exercise, _, answer in EACH],
    ids=[f"{exercise}-{name}" for exercise, name, _ in EACH],
)
def test_an_unusual_answer_is_right(exercise, answer):
    number, _, name = exercise.rpartition(" ")
    (found,) = (f for f in FOUND if f.cells.name == name and f.path.stem.startswith(number))
    verdict = found.check(found.run(source_of(found.cells.solution, answer)))
    assert verdict.status == "solved", verdict
