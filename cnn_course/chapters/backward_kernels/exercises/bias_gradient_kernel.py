"""The gradient of a bias: each block sums up one channel."""

import numpy as np

from cnn_course.engine.checks.exercise import Wrong
from cnn_course.engine.checks.kernels import KernelExercise, examine, global_updates, launch, normal, output
from gpuless.access import READ

# Threads per block.
CHANNEL_THREADS = 128

WARP = 32


def _channels(rng):
    """Draw gradients around 3: near 0, a sum's relative rounding error would be large."""
    for shape in [(2, 3, 5), (7, 2, 1), (3, 2, 100), (150, 3, 1), (2, 4, 131), (5, 1, 70)]:
        yield launch(shape[1], CHANNEL_THREADS, normal(rng, shape) + np.float32(3), output(shape[1]))


def _bias_gradient(grad_output):
    return grad_output.sum(axis=(0, 2), dtype=np.float64)


def _shares(grad_output):
    """Return each thread's sum in a block-stride loop over a channel."""
    flat = grad_output.transpose(1, 0, 2).reshape(grad_output.shape[1], -1).astype(float)
    padded = np.pad(flat, [(0, 0), (0, -flat.shape[1] % CHANNEL_THREADS)])
    return padded.reshape(len(flat), -1, CHANNEL_THREADS).sum(axis=1)


def _in_single_steps(grad_output):
    """Return the sums if thread `t` adds up all elements from `t` on."""
    flat = grad_output.transpose(1, 0, 2).reshape(grad_output.shape[1], -1).astype(float)
    return flat @ np.minimum(np.arange(flat.shape[1]) + 1, CHANNEL_THREADS)


def _of_the_grid(begins, steps):
    """Return a mistake's function: threads begin at their index in the grid, step by its size, or both."""

    def function(grad_output):
        flat = grad_output.transpose(1, 0, 2).reshape(grad_output.shape[1], -1).astype(float)
        place = np.arange(flat.shape[1]) - begins * CHANNEL_THREADS * np.arange(len(flat))[:, np.newaxis]
        step = CHANNEL_THREADS * (len(flat) if steps else 1)
        return np.where((place >= 0) & (place % step < CHANNEL_THREADS), flat, 0).sum(axis=1)

    return function


def _shares_the_channel(attempt):
    """Demand that the threads of a block share a channel's gradients."""
    case = launch(1, CHANNEL_THREADS, normal(np.random.default_rng(0), (4, 1, 96)), output(1))
    trace = examine(attempt, case).report.trace
    (given,) = (i for i, info in enumerate(trace.arrays) if info.shape == (4, 1, 96))
    most = int(np.bincount(trace.thread[(trace.kind == READ) & (trace.array == given)]).max())
    if most > 96:
        raise Wrong(
            "one thread",
            f"The numbers are right, but one thread reads {most} of 384 gradients, and {CHANNEL_THREADS} "
            "threads could share them. Let thread `t` take the elements `t`, `t + 128`, and so on, and let "
            "`block_sum` add up the threads' sums.",
        )


def _adds_no_other_way(attempt):
    """Demand that only one thread stores a channel's sum: several would need atomics."""
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
            "You divide by the number of gradients of the channel. Add them up instead.",
            lambda grad_output: grad_output.mean(axis=(0, 2), dtype=float),
            ("grad_bias[c] = total", "grad_bias[c] = total / float32(grad_output.shape[0] * positions)"),
        ),
        "mean over the batch": (
            "You divide by the number of samples. The loss has done that already: just add up here.",
            lambda grad_output: _bias_gradient(grad_output) / len(grad_output),
            ("grad_bias[c] = total", "grad_bias[c] = total / float32(grad_output.shape[0])"),
        ),
        "one element per thread": (
            f"Only the first {CHANNEL_THREADS} gradients of a channel count: go on in steps of "
            "`cuda.blockDim.x`.",
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
        "no steps": (
            "A thread takes every element from its first one on, so most are added several times: give "
            "`range` the step `cuda.blockDim.x`.",
            _in_single_steps,
            ("positions, cuda.blockDim.x)", "positions)"),
        ),
        "shared with the grid": (
            "`cuda.grid(1)` and `cuda.gridsize(1)` count the threads of all blocks, but each channel has its "
            "own block: begin at `cuda.threadIdx.x`, and go on in steps of `cuda.blockDim.x`.",
            *(_of_the_grid(*which) for which in ((True, True), (True, False), (False, True))),
            [("range(cuda.threadIdx.x,", "range(cuda.grid(1),"), ("cuda.blockDim.x)", "cuda.gridsize(1))")],
            ("range(cuda.threadIdx.x,", "range(cuda.grid(1),"),
            ("cuda.blockDim.x)", "cuda.gridsize(1))"),
        ),
        "first thread only": (
            "Only thread 0 counts. `block_sum` *returns* the block's sum, and every thread has to call it.",
            lambda grad_output: _shares(grad_output)[:, 0],
            ("total = block_sum(total)", ""),
            ("total = block_sum(total)", "block_sum(total)"),
        ),
        "first warp only": (
            f"Only the first warp counts. A block of {CHANNEL_THREADS} has four: `block_sum` adds up all of "
            "them.",
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
