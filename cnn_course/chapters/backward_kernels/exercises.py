"""The checks of notebook 07b, ``07b_backward_kernels``."""

import numpy as np

from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import (
    KernelExercise,
    examine,
    global_updates,
    inout,
    launch,
    normal,
    output,
)
from cnn_course.engine.checks.mimics import first_block, looked_up, one_hot, places, turned, within
from cnn_numba import device
from cnn_numba.ops.activation.reference import relu_backward
from cnn_numba.ops.conv.reference import conv2d_backward_input, conv2d_backward_weight
from cnn_numba.ops.loss.reference import cross_entropy_forward_backward
from cnn_numba.ops.pool.reference import max_pool2d_backward, max_pool2d_forward
from cnn_numba.ops.shapes import output_size
from gpuless.access import READ

# Threads of a block where a launch has one axis, and of the block that sums up a channel.
THREADS = 16
CHANNEL_THREADS = 128
WARP = 32

_ADDED_TO_GARBAGE = (
    "You add to what the array held before, and nothing has cleared it: sum up in a variable that starts as "
    "`float32(0)`, and store that."
)


def _blocks(size):
    """Return how many blocks of THREADS cover so many elements."""
    return device.blocks(size, THREADS)


# --- cross_entropy_kernel ----------------------------------------------------------------------------------


def _scored(logits, rng):
    """Return a launch for some scores, with labels drawn."""
    rows, classes = logits.shape
    labels = rng.integers(0, classes, rows).astype(np.int32)
    return launch(_blocks(rows), THREADS, logits, labels, output(rows), output((rows, classes)))


def _scores(rng):
    """Draw scores as they come, some so large that their exponentials overflow, some far below 0."""
    for rows, classes, scale, offset in [
        (1, 3, 1, 0),
        (5, 4, 2, 0),
        (THREADS + 3, 7, 1, 0),
        (6, 10, 1, -1000),
        (2 * THREADS + 5, 2, 3, 0),
        (7, 5, 900, 0),
        (3, 70, 1, 0),
    ]:
        logits = (scale * rng.normal(size=(rows, classes)) + offset).astype(np.float32)
        yield _scored(logits, rng)


def _shifted_cross_entropy(shift):
    """Return a mistake's function: cross-entropy in float32, so that it overflows where a kernel does."""

    def function(logits, labels):
        shifted = logits - np.asarray(shift(logits), np.float32)
        exponentials = np.exp(shifted)
        total = exponentials.sum(axis=1, keepdims=True)
        losses = np.log(total[:, 0]) - shifted[np.arange(len(labels)), labels]
        return losses, (exponentials / total - one_hot(logits, labels)) / len(labels)

    return function


def _changed(change):
    """Return a mistake's function: the right losses and gradient, changed, given those and the inputs."""
    return lambda logits, labels: change(logits, labels, *cross_entropy_forward_backward(logits, labels))


def _log_of_the_probability(logits, labels, losses, gradient):
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    return -np.log(probabilities[np.arange(len(labels)), labels]), gradient


cross_entropy_kernel = KernelExercise(
    "cross_entropy_kernel",
    reference=cross_entropy_forward_backward,
    cases=_scores,
    large=lambda rng: [_scored(normal(rng, (37, 1000)), rng)],
    float32=True,
    mistakes={
        "no maximum": (
            "Right, until a score is large: `exp(800)` is infinite, and infinite divided by infinite is NaN; "
            "far below 0 every exponential is 0. Take the row's largest score away from all of them first.",
            _shifted_cross_entropy(lambda logits: 0),
            [("[row, k] - largest", "[row, k]", 2), (".log(total) + largest", ".log(total)")],
        ),
        "maximum starts from 0": (
            "Right, until all scores of a row are far below 0: you subtract more than any of them, every "
            "exponential is 0, and 0 / 0 is NaN. Start the search for the maximum from the row's first "
            "score.",
            _shifted_cross_entropy(lambda logits: np.maximum(logits.max(axis=1, keepdims=True), 0)),
            [("= logits[row, 0]", "= float32(0)"), ("(1, logits.shape[1])", "(logits.shape[1])")],
        ),
        "sum over the batch": (
            "The losses are right. The gradient is that of their sum, not their mean: divide by the rows.",
            _changed(lambda x, y, losses, gradient: (losses, len(y) * gradient)),
            ("/ float32(logits.shape[0])", ""),
        ),
        "divided by the classes": (
            "You divide the gradient by the number of classes; the mean is over the rows.",
            _changed(lambda x, y, losses, gradient: (losses, gradient * len(y) / x.shape[1])),
            ("float32(logits.shape[0])", "float32(logits.shape[1])"),
        ),
        "loss divided too": (
            "The gradient is right. Do not divide the losses: each row keeps its own.",
            _changed(lambda x, y, losses, gradient: (losses / len(y), gradient)),
            (
                "math.log(total) + largest - logits[row, labels[row]]",
                "(math.log(total) + largest - logits[row, labels[row]]) / float32(logits.shape[0])",
            ),
        ),
        "label left out": (
            "Your gradient is the softmax of every class. For the right class a 1 is taken away.",
            _changed(lambda x, y, losses, gradient: (losses, gradient + one_hot(x, y) / len(y))),
            ("(probability - target)", "probability"),
        ),
        "taken from every class": (
            "You take the 1 away from every class; it belongs to the right one alone.",
            _changed(lambda x, y, losses, gradient: (losses, gradient - (1 - one_hot(x, y)) / len(y))),
            ("float32(1) if k == labels[row] else float32(0)", "float32(1)"),
        ),
        "gradient negated": (
            "The losses are right. The gradient has the wrong sign: it is the probability minus the target.",
            _changed(lambda x, y, losses, gradient: (losses, -gradient)),
            ("probability - target", "target - probability"),
        ),
        "loss negated": (
            "The gradient is right. The loss has the wrong sign: it is *minus* the logarithm, at least 0.",
            _changed(lambda x, y, losses, gradient: (-losses, gradient)),
            (
                "math.log(total) + largest - logits[row, labels[row]]",
                "logits[row, labels[row]] - largest - math.log(total)",
            ),
        ),
        "maximum missing in the loss": (
            "The gradient is right. In the loss the exponentials are shifted by the largest score, and the "
            "score of the label is not: `log(total) + largest - {logits}[row, label]`.",
            _changed(lambda x, y, losses, gradient: (losses - x.max(axis=1), gradient)),
            ("math.log(total) + largest", "math.log(total)"),
        ),
        "logarithm of 0": (
            "Right, until the probability of the label is so small that float32 has only 0 for it: its "
            "logarithm is infinite. Take the logarithm first, by hand: `log(total) + largest - {logits}[row, "
            "label]`.",
            _changed(_log_of_the_probability),
            (
                "losses[row] = math.log(total) + largest - logits[row, labels[row]]",
                "p = math.exp(logits[row, labels[row]] - largest) / total\nlosses[row] = -math.log(p)",
            ),
        ),
        "first block only": (
            f"Rows from {THREADS} on stay empty: all blocks compute the first rows. Use `cuda.grid(1)`.",
            _changed(
                lambda x, y, losses, gradient: (first_block(losses, THREADS), first_block(gradient, THREADS))
            ),
            ("cuda.grid(1)", "cuda.threadIdx.x"),
        ),
    },
)


# --- dense_backward_weight_kernel and dense_backward_input_kernel ------------------------------------------

BLOCK = 4, 2


def _cover(shape):
    """Return a grid of blocks that covers a matrix, x along its columns."""
    return device.blocks(shape[1], BLOCK[0]), device.blocks(shape[0], BLOCK[1])


# Samples, outputs, inputs.
_LAYERS = [(2, 3, 4), (1, 5, 2), (5, 2, 7), (7, 3, 1), (4, 6, 9), (3, 11, 5)]


def _weight_gradients(rng):
    for n, outputs, inputs in _LAYERS:
        arrays = normal(rng, (n, outputs)), normal(rng, (n, inputs))
        yield launch(_cover((outputs, inputs)), BLOCK, *arrays, output((outputs, inputs)))


def _weight_gradient(grad_output, x):
    return np.float64(grad_output).T @ x


dense_backward_weight_kernel = KernelExercise(
    "dense_backward_weight_kernel",
    reference=_weight_gradient,
    cases=_weight_gradients,
    float32=True,
    once=True,
    mistakes={
        "mean over the batch": (
            "You divide by the number of samples. The loss has done so already: here they are added up.",
            lambda grad_output, x: _weight_gradient(grad_output, x) / len(x),
            ("grad_weight[o, i] = total", "grad_weight[o, i] = total / float32(x.shape[0])"),
        ),
        "last sample only": (
            "Each gradient is that of the last sample alone: `=` overwrites the sum where `+=` adds to it.",
            lambda grad_output, x: _weight_gradient(grad_output[-1:], x[-1:]),
            [("grad_weight[o, i] = total", ""), ("total +=", "grad_weight[o, i] =")],
        ),
        "first sample only": (
            "Each gradient is that of sample 0 alone. A weight acts on every sample: sum over `n`.",
            lambda grad_output, x: _weight_gradient(grad_output[:1], x[:1]),
            (
                "for n in range(x.shape[0]):\n    total += grad_output[n, o] * x[n, i]",
                "total += grad_output[0, o] * x[0, i]",
            ),
        ),
        "one short": (
            "The last sample is missing: `range(n)` ends at `n - 1` by itself.",
            lambda grad_output, x: _weight_gradient(grad_output[:-1], x[:-1]),
            ("range(x.shape[0])", "range(x.shape[0] - 1)"),
        ),
        "slope only": (
            "You add up the inputs alone: multiply each by its gradient, `{grad_output}[n, o]`.",
            lambda grad_output, x: _weight_gradient(np.ones_like(grad_output), x),
            ("grad_output[n, o] * x[n, i]", "x[n, i]"),
        ),
        "gradient only": (
            "You add up `{grad_output}` alone, the gradient of the bias. Multiply by the input, `{x}[n, i]`.",
            lambda grad_output, x: _weight_gradient(grad_output, np.ones_like(x)),
            ("grad_output[n, o] * x[n, i]", "grad_output[n, o]"),
        ),
        "product of the sums": (
            "You multiply two sums; the products of each sample are to be added up.",
            lambda grad_output, x: _weight_gradient(
                grad_output.sum(axis=0, keepdims=True, dtype=float), x.sum(axis=0, keepdims=True, dtype=float)
            ),
            [
                ("total = float32(0)", "total = float32(0)\nother = float32(0)"),
                ("total += grad_output[n, o] * x[n, i]", "total += grad_output[n, o]\nother += x[n, i]"),
                ("grad_weight[o, i] = total", "grad_weight[o, i] = total * other"),
            ],
        ),
        "gradient transposed": (
            "`{grad_output}[o, n]` has its indices exchanged: the sample comes first.",
            lambda grad_output, x: turned(grad_output).T @ x,
            ("grad_output[n, o]", "grad_output[o, n]"),
        ),
        "input transposed": (
            "`{x}[i, n]` has its indices exchanged: the sample comes first.",
            lambda grad_output, x: np.float64(grad_output).T @ turned(x),
            ("x[n, i]", "x[i, n]"),
        ),
    },
)


def _input_gradients(rng):
    for n, outputs, inputs in _LAYERS:
        arrays = normal(rng, (n, outputs)), normal(rng, (outputs, inputs))
        yield launch(_cover((n, inputs)), BLOCK, *arrays, output((n, inputs)))


def _input_gradient(grad_output, weight):
    return np.float64(grad_output) @ weight


def _sum_over_the_inputs(grad_output, weight):
    outputs, inputs = weight.shape
    longer = max(outputs, inputs)
    return within(grad_output, len(grad_output), longer)[:, :inputs] @ within(weight, longer, inputs)[:inputs]


dense_backward_input_kernel = KernelExercise(
    "dense_backward_input_kernel",
    reference=_input_gradient,
    cases=_input_gradients,
    float32=True,
    once=True,
    mistakes={
        "weight transposed": (
            "`{weight}[i, o]` has its indices exchanged: the output comes first, `{weight}[o, i]`.",
            lambda grad_output, weight: grad_output @ turned(weight),
            ("weight[o, i]", "weight[i, o]"),
        ),
        "gradient transposed": (
            "`{grad_output}[o, n]` has its indices exchanged: the sample comes first.",
            lambda grad_output, weight: turned(grad_output) @ weight,
            ("grad_output[n, o]", "grad_output[o, n]"),
        ),
        "sum over the inputs": (
            "Your sum runs over the inputs. An input acts on all *outputs* of its sample: sum over `o`.",
            _sum_over_the_inputs,
            ("range(weight.shape[0])", "range(weight.shape[1])"),
        ),
        "last output only": (
            "Each gradient is that of the last output alone: `=` overwrites the sum where `+=` adds to it.",
            lambda grad_output, weight: _input_gradient(grad_output[:, -1:], weight[-1:]),
            [("grad_input[n, i] = total", ""), ("total +=", "grad_input[n, i] =")],
        ),
        "first output only": (
            "Only output 0 sends its gradient back. An input acts on all outputs: sum over `o`.",
            lambda grad_output, weight: _input_gradient(grad_output[:, :1], weight[:1]),
            (
                "for o in range(weight.shape[0]):\n    total += grad_output[n, o] * weight[o, i]",
                "total += grad_output[n, 0] * weight[0, i]",
            ),
        ),
        "one short": (
            "The last output is missing: `range(n)` ends at `n - 1` by itself.",
            lambda grad_output, weight: _input_gradient(grad_output[:, :-1], weight[:-1]),
            ("range(weight.shape[0])", "range(weight.shape[0] - 1)"),
        ),
        "mean over the outputs": (
            "You divide by the number of outputs; their gradients are added up.",
            lambda grad_output, weight: _input_gradient(grad_output, weight) / len(weight),
            ("grad_input[n, i] = total", "grad_input[n, i] = total / float32(weight.shape[0])"),
        ),
        "slope only": (
            "You add up the weights alone: multiply each by its gradient, `{grad_output}[n, o]`.",
            lambda grad_output, weight: _input_gradient(np.ones_like(grad_output), weight),
            ("grad_output[n, o] * weight[o, i]", "weight[o, i]"),
        ),
        "first sample for all": (
            "Every sample gets the gradients of sample 0: it is `{grad_output}[n, o]`.",
            lambda grad_output, weight: np.repeat(
                _input_gradient(grad_output[:1], weight), len(grad_output), axis=0
            ),
            ("grad_output[n, o]", "grad_output[0, o]"),
        ),
    },
)


# --- bias_gradient_kernel ----------------------------------------------------------------------------------


def _channels(rng):
    """Draw gradients around 3: the rounding of a sum near 0 would be large, seen from the sum."""
    for shape in [(2, 3, 5), (7, 2, 1), (3, 2, 100), (150, 3, 1), (2, 4, 131), (5, 1, 70)]:
        yield launch(shape[1], CHANNEL_THREADS, normal(rng, shape) + np.float32(3), output(shape[1]))


def _bias_gradient(grad_output):
    return grad_output.sum(axis=(0, 2), dtype=np.float64)


def _shares(grad_output):
    """Return the sum of each thread of a channel's block that goes on in steps of the block."""
    flat = grad_output.transpose(1, 0, 2).reshape(grad_output.shape[1], -1).astype(float)
    padded = np.pad(flat, [(0, 0), (0, -flat.shape[1] % CHANNEL_THREADS)])
    return padded.reshape(len(flat), -1, CHANNEL_THREADS).sum(axis=1)


def _shares_the_channel(attempt):
    """Demand that the threads of a block share a channel's gradients."""
    case = launch(1, CHANNEL_THREADS, normal(np.random.default_rng(0), (4, 1, 96)), output(1))
    trace = examine(attempt, case).report.trace
    (given,) = (i for i, info in enumerate(trace.arrays) if info.shape == (4, 1, 96))
    most = int(np.bincount(trace.thread[(trace.kind == READ) & (trace.array == given)]).max())
    if most > 96:
        raise Wrong(
            "one thread",
            f"The numbers are right, but of 384 gradients one thread reads {most}, while {CHANNEL_THREADS} "
            "threads are there to share them: thread `t` takes the elements `t`, `t + 128`, and so on, and "
            "`block_sum` adds up what they have found.",
        )


def _adds_no_other_way(attempt):
    """Demand that no thread but one stores a channel's sum: several would have to add by atomics."""
    updates = global_updates(attempt, launch(1, CHANNEL_THREADS, np.ones((2, 1, 70), np.float32), output(1)))
    if updates:
        raise Wrong(
            "added by atomics",
            f"The numbers are right, but {updates} atomic updates of `grad_bias` add them up, and each waits "
            "for those before it. `block_sum` adds up the threads' sums; then one thread stores.",
        )


bias_gradient_kernel = KernelExercise(
    "bias_gradient_kernel",
    reference=_bias_gradient,
    cases=_channels,
    other_blocks=False,
    float32=True,
    properties=(_shares_the_channel, _adds_no_other_way),
    mistakes={
        "mean": (
            "You divide by the number of gradients of the channel; they are added up.",
            lambda grad_output: grad_output.mean(axis=(0, 2), dtype=float),
            ("grad_bias[c] = total", "grad_bias[c] = total / float32(grad_output.shape[0] * positions)"),
        ),
        "mean over the batch": (
            "You divide by the number of samples. The loss has done so already: here they are added up.",
            lambda grad_output: _bias_gradient(grad_output) / len(grad_output),
            ("grad_bias[c] = total", "grad_bias[c] = total / float32(grad_output.shape[0])"),
        ),
        "one element a thread": (
            f"Only the first {CHANNEL_THREADS} gradients of a channel count: a thread has to go on, in steps "
            "of `cuda.blockDim.x`, until the channel is done.",
            lambda grad_output: _bias_gradient(
                grad_output.transpose(1, 0, 2).reshape(1, grad_output.shape[1], -1)[..., :CHANNEL_THREADS]
            ),
            (
                "for i in range(cuda.threadIdx.x, grad_output.shape[0] * positions, cuda.blockDim.x):\n"
                "    total += grad_output[i // positions, c, i % positions]",
                "i = cuda.threadIdx.x\n"
                "if i < grad_output.shape[0] * positions:\n"
                "    total += grad_output[i // positions, c, i % positions]",
            ),
        ),
        "first thread only": (
            "Each channel gets the sum of thread 0 alone. `block_sum` *returns* the sum of the block, and "
            "every thread has to call it.",
            lambda grad_output: _shares(grad_output)[:, 0],
            ("total = block_sum(total)", ""),
            ("total = block_sum(total)", "block_sum(total)"),
        ),
        "first warp only": (
            "Each channel gets the sum of the first warp: `warp_sum` ends at its edge. A block of "
            f"{CHANNEL_THREADS} has four, and `block_sum` adds up all of them.",
            lambda grad_output: _shares(grad_output)[:, :WARP].sum(axis=1),
            (
                "total = block_sum(total)",
                "for step in (16, 8, 4, 2, 1):\n    total += cuda.shfl_down_sync(0xFFFFFFFF, total, step)",
            ),
        ),
        "added by every thread": (
            f"Your sums are {CHANNEL_THREADS} times too large: every thread adds up the whole channel. Let "
            "each begin at its own element and go on in steps of `cuda.blockDim.x`.",
            lambda grad_output: CHANNEL_THREADS * _bias_gradient(grad_output),
            (
                "range(cuda.threadIdx.x, grad_output.shape[0] * positions, cuda.blockDim.x)",
                "range(grad_output.shape[0] * positions)",
            ),
        ),
        "first sample only": (
            "Only sample 0 counts: a bias acts on every position of every sample.",
            lambda grad_output: _bias_gradient(grad_output[:1]),
            [("i // positions", "0"), ("grad_output.shape[0] * positions", "positions")],
        ),
        "first position only": (
            "Only position 0 of each sample counts: a bias acts on every position of every sample.",
            lambda grad_output: _bias_gradient(grad_output[:, :, :1]),
            [(".shape[0] * positions", ".shape[0]"), ("[i // positions, c, i % positions]", "[i, c, 0]")],
        ),
    },
)


# --- relu_backward_kernel ----------------------------------------------------------------------------------


def _rectified(rng):
    """Draw outputs of a ReLU, about half of them 0, always with threads to spare."""
    return [
        launch(grid, block, normal(rng, n), np.maximum(normal(rng, n), 0), output(n))
        for grid, block, n in [(1, 8, 5), (1, 32, 23), (3, 8, 19), (2, 32, 47), (5, 16, 65)]
    ]


relu_backward_kernel = KernelExercise(
    "relu_backward_kernel",
    reference=relu_backward,
    cases=_rectified,
    float32=True,
    mistakes={
        "open at zero": (
            "You let the gradient through where the output is 0 as well, `>=` for `>`. Every input that was "
            "cut off has the output 0, so this lets all of them through.",
            lambda grad_output, out: np.where(out >= 0, grad_output, 0),
            ("out[i] > float32(0)", "out[i] >= float32(0)"),
        ),
        "slope only": (
            "You store the slope, 1 or 0. The chain rule multiplies it by `{grad_output}`.",
            lambda grad_output, out: (out > 0).astype(float),
            ("grad_output[i]", "float32(1)"),
        ),
        "gradient rectified": (
            "You cut off negative gradients. The sign of the *output* decides: any gradient may pass.",
            lambda grad_output, out: np.maximum(grad_output, 0),
            ("grad_output[i] if out[i] > float32(0) else float32(0)", "max(grad_output[i], float32(0))"),
        ),
        "times the output": (
            "You multiply by the output. The slope is 1 wherever the output is positive, however large.",
            lambda grad_output, out: grad_output * out,
            ("grad_output[i] if out[i] > float32(0) else float32(0)", "grad_output[i] * out[i]"),
        ),
        "inverted": (
            "The other way round: the gradient goes through where the output is positive.",
            lambda grad_output, out: np.where(out > 0, 0, grad_output),
            (
                "grad_output[i] if out[i] > float32(0) else float32(0)",
                "float32(0) if out[i] > float32(0) else grad_output[i]",
            ),
        ),
        "forward again": (
            "You store the output itself, and no gradient.",
            lambda grad_output, out: out,
            ("grad_output[i] if out[i] > float32(0) else float32(0)", "max(out[i], float32(0))"),
        ),
        "nothing where it is cut off": (
            "Where the output is 0 you write nothing, so the old memory stays. Write a 0 there.",
            lambda grad_output, out: np.where(out > 0, grad_output, np.nan),
            [("size", "size and out[i] > float32(0)"), ("[i] if out[i] > float32(0) else float32(0)", "[i]")],
        ),
    },
)


# --- max_pool_backward_kernel ------------------------------------------------------------------------------


def _pooled(rng):
    """Draw planes, pool them, apart first and then with windows that overlap; never anything square."""
    for planes, (h, w), kernel, stride in [
        (1, (4, 6), 2, 2),
        (2, (5, 4), 3, 1),
        (3, (6, 5), 2, 2),
        (2, (5, 8), 3, 2),
        (3, (9, 7), 3, 2),
    ]:
        out, argmax = max_pool2d_forward(rng.normal(size=(1, planes, h, w)), kernel, stride)
        grad_output, zeros = normal(rng, out.shape[1:]), np.zeros((planes, h, w), np.float32)
        arrays = grad_output, argmax[0].astype(np.int32), inout(zeros)
        yield launch(_blocks(grad_output.size), THREADS, *arrays)


def _pool_gradient(grad_output, argmax, grad_input):
    shape = 1, *grad_input.shape
    return max_pool2d_backward(np.float64(grad_output)[None], argmax[None], shape)[0]


def _sent(grad_output, planes, rows, columns, grad_input, add=True):
    """Send each gradient to a pixel; those whose pixel does not exist arrive nowhere."""
    result = np.zeros(grad_input.shape)
    planes, rows, columns = np.broadcast_arrays(planes, rows, columns)
    inside = (rows < result.shape[1]) & (columns < result.shape[2])
    place = planes[inside], rows[inside], columns[inside]
    if add:
        np.add.at(result, place, grad_output[inside])
    else:
        result[place] = grad_output[inside]
    return result


def _sent_elsewhere(where):
    """Return a mistake's function: the gradients go where ``where(argmax, grad_input)`` says."""

    def function(grad_output, argmax, grad_input):
        planes = np.arange(len(argmax))[:, None, None]
        return _sent(grad_output, planes, *where(argmax, grad_input), grad_input)

    return function


def _of_the_first_block(grad_output, argmax, grad_input):
    first = np.arange(grad_output.size).reshape(grad_output.shape) < THREADS
    once = _pool_gradient(np.where(first, grad_output, 0), argmax, grad_input)
    return _blocks(grad_output.size) * once


max_pool_backward_kernel = KernelExercise(
    "max_pool_backward_kernel",
    reference=_pool_gradient,
    cases=_pooled,
    mistakes={
        "overwrites": (
            "Right where windows do not overlap. Where they do, a pixel may win several windows and must get "
            "all of their gradients: add them with `cuda.atomic.add`.",
            lambda grad_output, argmax, grad_input: _sent(
                grad_output,
                np.arange(len(argmax))[:, None, None],
                *np.divmod(argmax, grad_input.shape[2]),
                grad_input,
                add=False,
            ),
            (
                "cuda.atomic.add(grad_input, pixel, grad_output[plane, oh, ow])",
                "grad_input[pixel] = grad_output[plane, oh, ow]",
            ),
        ),
        "width of the output": (
            "Positions count along rows of the *input* plane: divide by its width, `{grad_input}.shape[2]`.",
            _sent_elsewhere(lambda argmax, grad_input: np.divmod(argmax, argmax.shape[2])),
            ("grad_input.shape[2]", "grad_output.shape[2]"),
        ),
        "height for width": (
            "You divide the position by the plane's height. A row has as many pixels as the plane is wide.",
            _sent_elsewhere(lambda argmax, grad_input: np.divmod(argmax, grad_input.shape[1])),
            ("grad_input.shape[2]", "grad_input.shape[1]"),
        ),
        "row and column exchanged": (
            "Row and column are exchanged: `{argmax} // width` is the row, `{argmax} % width` the column.",
            _sent_elsewhere(lambda argmax, grad_input: np.divmod(argmax, grad_input.shape[2])[::-1]),
            ("where // width, where % width", "where % width, where // width"),
        ),
        "place of the output": (
            "The gradients stay at the place of the output. `{argmax}` says which pixel has won.",
            _sent_elsewhere(lambda argmax, grad_input: np.indices(argmax.shape)[1:]),
            ("where // width, where % width", "oh, ow"),
        ),
        "first plane only": (
            "All gradients go to plane 0. Use the plane of the output as first index of `{grad_input}`.",
            lambda grad_output, argmax, grad_input: _sent(
                grad_output, 0, *np.divmod(argmax, grad_input.shape[2]), grad_input
            ),
            ("pixel = plane, where", "pixel = 0, where"),
        ),
        "winners counted": (
            "You add 1 for each window won. What is added is its gradient.",
            lambda grad_output, argmax, grad_input: _pool_gradient(
                np.ones_like(grad_output), argmax, grad_input
            ),
            ("pixel, grad_output[plane, oh, ow]", "pixel, float32(1)"),
        ),
        "first block only": (
            "All blocks send the gradients of the first one. `cuda.grid(1)` counts over all blocks.",
            _of_the_first_block,
            ("cuda.grid(1)", "cuda.threadIdx.x"),
        ),
    },
)


# --- conv2d_backward_weight_kernel and conv2d_backward_input_kernel ----------------------------------------


def _convolutions(rng):
    """Draw stride 1 without padding first, then one of the two, then both; never anything square.

    Yields images, filters and gradients of the outputs, and the steps in the kernels' order.
    """
    for x, filters, stride, padding in [
        ((1, 1, 4, 6), (1, 2, 3), (1, 1), (0, 0)),
        ((2, 2, 4, 5), (3, 3, 2), (1, 1), (1, 1)),
        ((2, 1, 8, 9), (2, 3, 2), (2, 2), (0, 0)),
        ((1, 3, 6, 8), (2, 2, 3), (1, 3), (1, 2)),
        ((2, 2, 7, 6), (3, 3, 2), (2, 1), (0, 1)),
        ((3, 1, 5, 8), (2, 2, 3), (3, 2), (2, 1)),
    ]:
        count, *size = filters
        out = x[0], count, *map(output_size, x[2:], size, stride, padding)
        weight = normal(rng, (count, x[1], *size))
        yield normal(rng, x), weight, normal(rng, out), tuple(map(np.int32, (*stride, *padding)))


def _filter_gradients(rng):
    for x, weight, grad_output, steps in _convolutions(rng):
        grad_weight = inout(normal(rng, weight.shape))  # its shape says what is to be computed
        yield launch(_blocks(weight.size), THREADS, grad_output, x, *steps, grad_weight)


def _filter_gradient(grad_output, x, stride_h, stride_w, padding_h, padding_w, grad_weight):
    stride, padding = (int(stride_h), int(stride_w)), (int(padding_h), int(padding_w))
    return conv2d_backward_weight(np.float64(grad_output), x, grad_weight.shape, stride, padding)


def _right_place(o, k, stride, padding):
    return o * stride + k - padding


def _met_elsewhere(at=_right_place, order=(0, 1, 2, 3)):
    """Return a mistake's function: the weights meet the pixels at other `places`; outside of the image 0."""

    def function(grad_output, x, *rest):
        *steps, grad_weight = rest
        where = places(at, grad_output.shape[2:], grad_weight.shape[2:], steps, order)
        return np.einsum("nopq,nipkqj->oikj", grad_output, looked_up(x, where))

    return function


_STRIDES = "The strides are exchanged: `{stride_h}` is that of rows, `{stride_w}` that of columns."
_PADDINGS = "The paddings are exchanged: `{padding_h}` is that of rows, `{padding_w}` that of columns."
_STEPS = "Rows and columns are exchanged: `{stride_h}` and `{padding_h}` are those of the rows."

conv2d_backward_weight_kernel = KernelExercise(
    "conv2d_backward_weight_kernel",
    reference=_filter_gradient,
    cases=_filter_gradients,
    float32=True,
    once=True,
    mistakes={
        "stride ignored": (
            "Right for stride 1 alone. Output `oh` looks at row `oh * {stride_h} + kh - {padding_h}`.",
            _met_elsewhere(lambda o, k, stride, padding: o + k - padding),
            [("oh * stride_h", "oh"), ("ow * stride_w", "ow")],
        ),
        "padding left out": (
            "Right without padding alone: with it, the first window begins `{padding_h}` rows above the "
            "image and `{padding_w}` columns to its left.",
            _met_elsewhere(lambda o, k, stride, padding: o * stride + k),
            [("kh - padding_h", "kh"), ("kw - padding_w", "kw")],
        ),
        "padding added": (
            "You add the padding where it is to be subtracted: the first window begins outside of the image.",
            _met_elsewhere(lambda o, k, stride, padding: o * stride + k + padding),
            [("- padding_h", "+ padding_h"), ("- padding_w", "+ padding_w")],
        ),
        "strides exchanged": (
            _STRIDES,
            _met_elsewhere(order=(1, 0, 2, 3)),
            [("oh * stride_h", "oh * stride_w"), ("ow * stride_w", "ow * stride_h")],
        ),
        "paddings exchanged": (
            _PADDINGS,
            _met_elsewhere(order=(0, 1, 3, 2)),
            [("kh - padding_h", "kh - padding_w"), ("kw - padding_w", "kw - padding_h")],
        ),
        "h and w exchanged": (
            _STEPS,
            _met_elsewhere(order=(1, 0, 3, 2)),
            [
                ("oh * stride_h + kh - padding_h", "oh * stride_w + kh - padding_w"),
                ("ow * stride_w + kw - padding_w", "ow * stride_h + kw - padding_h"),
            ],
        ),
        "flipped": (
            "Your gradient is turned by 180 degrees: weight `(kh, kw)` meets the pixel that lies `kh` rows "
            "below and `kw` columns right of the window's corner. There is no flip in this one.",
            lambda *args: _filter_gradient(*args)[:, :, ::-1, ::-1],
            ("[oc, ic, kh, kw]", "[oc, ic, grad_weight.shape[2] - 1 - kh, grad_weight.shape[3] - 1 - kw]"),
        ),
        "mean over the batch": (
            "You divide by the number of images. The loss has done so already: here they are added up.",
            lambda grad_output, *rest: _filter_gradient(grad_output, *rest) / len(grad_output),
            ("[oc, ic, kh, kw] = total", "[oc, ic, kh, kw] = total / float32(x.shape[0])"),
        ),
        "averaged": (
            "You divide by the number of outputs of an image; their gradients are added up.",
            lambda grad_output, *rest: (
                _filter_gradient(grad_output, *rest) / (grad_output.shape[2] * grad_output.shape[3])
            ),
            (
                "grad_weight[oc, ic, kh, kw] = total",
                "outputs = float32(grad_output.shape[2] * grad_output.shape[3])\n"
                "grad_weight[oc, ic, kh, kw] = total / outputs",
            ),
        ),
        "first image only": (
            "Only image 0 counts. A weight acts on every image: sum over `n`, too.",
            lambda grad_output, x, *rest: _filter_gradient(grad_output[:1], x[:1], *rest),
            ("range(x.shape[0])", "range(1)"),
        ),
        "last image only": (
            "Only the last image counts: is the sum set back to zero for each of them?",
            lambda grad_output, x, *rest: _filter_gradient(grad_output[-1:], x[-1:], *rest),
            ("for n in range(x.shape[0]):", "for n in range(x.shape[0]):\n    total = float32(0)"),
        ),
        "first input channel for all": (
            "All input channels get the gradients of channel 0: the pixel is `{x}[n, ic, h, w]`.",
            lambda grad_output, x, *rest: _filter_gradient(
                grad_output, np.repeat(x[:, :1], x.shape[1], axis=1), *rest
            ),
            ("x[n, ic, h, w]", "x[n, 0, h, w]"),
        ),
        "first output channel for all": (
            "All filters get the gradients of filter 0: it is `{grad_output}[n, oc, oh, ow]`.",
            lambda grad_output, *rest: _filter_gradient(
                np.repeat(grad_output[:, :1], grad_output.shape[1], axis=1), *rest
            ),
            ("grad_output[n, oc, oh, ow]", "grad_output[n, 0, oh, ow]"),
        ),
        "gradient left out": (
            "You add up the pixels alone: multiply each by its `{grad_output}`.",
            lambda grad_output, *rest: _filter_gradient(np.ones_like(grad_output), *rest),
            ("grad_output[n, oc, oh, ow] * x[n, ic, h, w]", "x[n, ic, h, w]"),
        ),
        "adds to what was there": (
            _ADDED_TO_GARBAGE,
            lambda *args: _filter_gradient(*args) + args[-1],
            ("grad_weight[oc, ic, kh, kw] = total", "grad_weight[oc, ic, kh, kw] += total"),
            [("grad_weight[oc, ic, kh, kw] = total", ""), ("total +=", "grad_weight[oc, ic, kh, kw] +=")],
        ),
    },
)


def _image_gradients(rng):
    for x, weight, grad_output, steps in _convolutions(rng):
        grad_input = inout(normal(rng, x.shape))
        yield launch(_blocks(x.size), THREADS, grad_output, weight, *steps, grad_input)


def _image_gradient(grad_output, weight, stride_h, stride_w, padding_h, padding_w, grad_input):
    stride, padding = (int(stride_h), int(stride_w)), (int(padding_h), int(padding_w))
    return conv2d_backward_input(np.float64(grad_output), weight, grad_input.shape, stride, padding)


def _right_output(p, k, stride, padding):
    """Return the output whose weight `k` meets pixel `p`, -1 if there is none."""
    start = p + padding - k
    return np.where(start % stride == 0, start // stride, -1)


def _from_elsewhere(at=_right_output, order=(0, 1, 2, 3)):
    """Return a mistake's function: pixels gather from outputs at other `places`, if these exist."""

    def function(grad_output, weight, *rest):
        *steps, grad_input = rest
        where = places(at, grad_input.shape[2:], weight.shape[2:], steps, order)
        return np.einsum("nopkqj,oikj->nipq", looked_up(grad_output, where), weight)

    return function


conv2d_backward_input_kernel = KernelExercise(
    "conv2d_backward_input_kernel",
    reference=_image_gradient,
    cases=_image_gradients,
    float32=True,
    once=True,
    from_the_end=True,
    mistakes={
        "not divisible": (
            "Right for stride 1 only. With a stride, windows begin only in every `{stride_h}`-th row, and "
            "`//` rounds down to one of them: skip the weight unless `top % {stride_h} == 0`. Do the same "
            "for the columns.",
            _from_elsewhere(
                lambda p, k, stride, padding: np.where(p + padding - k < 0, -1, (p + padding - k) // stride)
            ),
            [("< 0 or top % stride_h != 0 or", "< 0 or"), ("< 0 or left % stride_w != 0 or", "< 0 or")],
        ),
        "stride ignored": (
            "Right for stride 1 only. The window at row `top` belongs to output `top // {stride_h}`.",
            _from_elsewhere(lambda p, k, stride, padding: p + padding - k),
            [
                ("top % stride_h != 0 or top // stride_h", "top"),
                ("left % stride_w != 0 or left // stride_w", "left"),
                ("oh, ow = top // stride_h, left // stride_w", "oh, ow = top, left"),
            ],
        ),
        "padding left out": (
            "Right without padding alone: a window that begins `{padding_h}` rows above the image is that of "
            "output 0, so it is `h + {padding_h} - kh`.",
            _from_elsewhere(lambda p, k, stride, padding: _right_output(p, k, stride, 0)),
            [("h + padding_h", "h"), ("w + padding_w", "w")],
        ),
        "padding subtracted": (
            "You subtract the padding, as in the forward pass. Here add it: `h + {padding_h} - kh`.",
            _from_elsewhere(lambda p, k, stride, padding: _right_output(p, k, stride, -padding)),
            [("h + padding_h", "h - padding_h"), ("w + padding_w", "w - padding_w")],
        ),
        "looks forward": (
            "You look from the pixel in the direction of the forward pass, `h + kh`. A pixel that meets row "
            "`kh` of a window lies `kh` rows *below* its corner: `h + {padding_h} - kh`.",
            _from_elsewhere(lambda p, k, stride, padding: _right_output(p, -k, stride, -padding)),
            _from_elsewhere(lambda p, k, stride, padding: _right_output(p, -k, stride, padding)),
            [("h + padding_h - kh", "h - padding_h + kh"), ("w + padding_w - kw", "w - padding_w + kw")],
            [("padding_h - kh", "padding_h + kh"), ("padding_w - kw", "padding_w + kw")],
        ),
        "flipped filter": (
            "Your filter is turned once too often. `h + {padding_h} - kh` runs backwards already, and that "
            "is the flip: the weight is `{weight}[oc, ic, kh, kw]`.",
            lambda grad_output, weight, *rest: _image_gradient(grad_output, weight[:, :, ::-1, ::-1], *rest),
            ("weight[oc, ic, kh, kw]", "weight[oc, ic, weight.shape[2] - 1 - kh, weight.shape[3] - 1 - kw]"),
        ),
        "strides exchanged": (
            _STRIDES,
            _from_elsewhere(order=(1, 0, 2, 3)),
            ("stride_h, stride_w, padding_h, padding_w", "stride_w, stride_h, padding_h, padding_w"),
        ),
        "paddings exchanged": (
            _PADDINGS,
            _from_elsewhere(order=(0, 1, 3, 2)),
            [("h + padding_h", "h + padding_w"), ("w + padding_w", "w + padding_h")],
        ),
        "h and w exchanged": (
            _STEPS,
            _from_elsewhere(order=(1, 0, 3, 2)),
            ("stride_h, stride_w, padding_h, padding_w", "stride_w, stride_h, padding_w, padding_h"),
        ),
        "first filter only": (
            "Only output channel 0 sends its gradient back. A pixel acts on all of them: sum over `oc`.",
            lambda grad_output, weight, *rest: _image_gradient(grad_output[:, :1], weight[:1], *rest),
            ("range(grad_output.shape[1])", "range(1)"),
        ),
        "last filter only": (
            "Only the last output channel counts: is the sum set back to zero for each of them?",
            lambda grad_output, weight, *rest: _image_gradient(grad_output[:, -1:], weight[-1:], *rest),
            ("range(grad_output.shape[1])", "range(grad_output.shape[1] - 1, grad_output.shape[1])"),
        ),
        "first image for all": (
            "Every image gets the gradients of image 0: it is `{grad_output}[n, oc, ...]`.",
            lambda grad_output, *rest: _image_gradient(
                np.repeat(grad_output[:1], len(grad_output), axis=0), *rest
            ),
            ("grad_output[n, oc,", "grad_output[0, oc,"),
        ),
        "adds to what was there": (
            _ADDED_TO_GARBAGE,
            lambda *args: _image_gradient(*args) + args[-1],
            ("grad_input[n, ic, h, w] = total", "grad_input[n, ic, h, w] += total"),
        ),
    },
)
