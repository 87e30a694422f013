"""The checks of notebook 02, ``02_first_cuda_kernels``."""

import warnings
from types import FunctionType

import numpy as np

from cnn_course.engine.checks import errors
from cnn_course.engine.checks.exercise import Exercise, Wrong, avoids
from cnn_course.engine.checks.kernels import KernelExercise, examine, launch, normal, output
from cnn_numba.ops.conv.reference import correlate_cpu
from gpuless.access import WRITE
from gpuless.simulator import foreign


def _two_vectors(rng):
    """Draw vectors for one block and for several, with more threads than elements."""
    return [
        launch(grid, block, np.float32(a), normal(rng, n), normal(rng, n), output(n))
        for grid, block, n, a in [
            (1, 4, 1, 2),
            (1, 32, 23, -0.5),
            (3, 8, 19, 3),
            (2, 32, 47, 1.5),
            (5, 16, 65, 0.1),
        ]
    ]


axpy_kernel = KernelExercise(
    "axpy_kernel",
    reference=lambda a, x, y: a * x + y,
    cases=_two_vectors,
    large=lambda rng: [
        launch(1100, 64, np.float32(2), normal(rng, 70_001), normal(rng, 70_001), output(70_001))
    ],
    float32=True,
    once=True,
    mistakes={
        "y left out": (
            "The product is right, but you don't add `{y}`.",
            lambda a, x, y: a * x,
            ("a * x[i] + y[i]", "a * x[i]"),
        ),
        "a left out": (
            "You add `{x}` and `{y}`, but `{a}` is missing.",
            lambda a, x, y: x + y,
            ("a * x[i]", "x[i]"),
        ),
        "sum scaled": (
            "You multiply the sum by `{a}`. Multiply only `{x}`, then add `{y}`.",
            lambda a, x, y: a * (x + y),
            ("a * x[i] + y[i]", "a * (x[i] + y[i])"),
        ),
        "exchanged": (
            "You have exchanged `{x}` and `{y}`: multiply `{x}` by `{a}`.",
            lambda a, x, y: a * y + x,
            ("a * x[i] + y[i]", "a * y[i] + x[i]"),
        ),
        "multiplied": (
            "You multiply by `{y}`. Add it instead.",
            lambda a, x, y: a * x * y,
            ("a * x[i] + y[i]", "a * x[i] * y[i]"),
        ),
    },
)


def _on_gpu(attempt, x):
    """Call a function that launches a kernel, and report mistakes in the launch."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            out = attempt(x)
        except TypeError as error:
            _refuse_fractions(error)
            raise
    if any(foreign.is_about_host_arrays(warning.message) for warning in caught):
        raise Wrong(
            "host array",
            "The numbers are right, but you pass a host array to the kernel. Numba then copies it to the "
            "device and back at every launch, and warns about it. Make the copy yourself with "
            "`cuda.to_device`, and create the output on the device with `cuda.device_array`.",
        )
    if hasattr(out, "copy_to_host"):
        raise Wrong(
            "left on the device",
            "You return an array in device memory, which NumPy can't use. Copy it back with "
            "`.copy_to_host()`.",
        )
    if isinstance(out, np.ndarray) and out.shape == x.shape and out.dtype.kind == "f":
        missing = np.isnan(out)
        done = x.size - int(missing.sum())
        if missing.all():
            raise Wrong(
                "nothing computed",
                "The result was never written: do you launch the kernel, and with this output array?",
            )
        if missing[done:].all() and missing.any():
            raise Wrong(
                "tail missing",
                f"Only the first {done} of {x.size} elements are computed: the grid is too small. Round the "
                "number of blocks up; the kernel's guard stops the extra threads.",
            )
    return out


def _refuse_fractions(error):
    """Raise `Wrong` if an exception says that the sizes of a launch aren't integers."""
    cause = foreign.cause_of(error)
    if cause and cause.kind == "launch sizes":
        raise Wrong(
            "fraction of a block",
            "The numbers of blocks and threads must be integers, but `/` gives a float even without a "
            "remainder. Divide with `//`, and round up.",
            f"{errors.text(error)}.",
        ) from error


class _Launches:
    """A stand-in for a kernel that only records the blocks and threads of its launches."""

    def __init__(self):
        self.sizes = []

    def __getitem__(self, sizes):
        self.sizes.append(tuple(int(np.prod(size)) for size in sizes[:2]))
        return lambda x, out: None


def _launches(attempt, n):
    """Return the number of blocks and of threads in each launch for `n` elements."""
    launches = _Launches()
    names = attempt.__globals__ | {"relu_forward_naive_kernel": launches}
    FunctionType(attempt.__code__, names, closure=attempt.__closure__)(np.ones(n, np.float32))
    return launches.sizes


def _in_blocks_of_128(attempt):
    """Demand the right block size, and more blocks for more elements."""
    sizes = _launches(attempt, 300)
    if not sizes:
        raise Wrong(
            "nothing launched",
            "The numbers are right, but the host computed them: you never launch "
            "`relu_forward_naive_kernel`. Let the device do the work.",
        )
    for blocks, threads in sizes:
        if threads != 128:
            exchanged = " The number of blocks comes first: `kernel[blocks, threads]`." * (blocks == 128)
            raise Wrong(
                "other blocks",
                f"The numbers are right, but your launch is `[{blocks}, {threads}]` for 300 elements. The "
                f"exercise asks for blocks of 128 threads.{exchanged}",
            )
    many = 1_000_003
    blocks, threads = np.max(_launches(attempt, many), axis=0)
    if blocks * threads < many:
        raise Wrong(
            "fixed grid",
            f"Right for small arrays. For {many} elements you still launch {blocks} blocks, so the elements "
            "past the last thread are never computed. Compute the number of blocks from `x.size`.",
        )


relu_on_gpu = Exercise(
    "relu_on_gpu",
    reference=lambda x: np.maximum(x, np.float32(0)),
    cases=lambda rng: [(normal(rng, n),) for n in (1, 70, 128, 129, 300, 1000)],
    run=_on_gpu,
    dtype=np.float32,
    properties=(avoids("maximum", "where", "clip", "relu_forward_naive"), _in_blocks_of_128),
    mistakes={
        "input returned": (
            "You return the input: the kernel wrote its result into another array.",
            lambda x: x,
            ("d_out.copy_to_host()", "d_x.copy_to_host()"),
        ),
        "zeros": (
            "You return zeros: that isn't the array that the kernel wrote to.",
            np.zeros_like,
            [
                (
                    "d_out = cuda.device_array(x.shape, x.dtype)",
                    "out = np.zeros_like(x)\nd_out = cuda.to_device(out)",
                ),
                ("d_out.copy_to_host()", "out"),
            ],
        ),
        "absolute value": (
            "You return the absolute value. Negative numbers must become 0.",
            np.abs,
            ("d_out.copy_to_host()", "np.abs(d_x.copy_to_host())"),
        ),
    },
)


def _signals(rng):
    sizes = [(5, 0), (13, 1), (20, 7), (33, 32), (41, 2), (30, 0)]
    return [
        launch(-(-(n - delay) // block) + extra, block, normal(rng, n), np.int32(delay), output(n - delay))
        for (n, delay), block, extra in zip(sizes, (8, 8, 4, 4, 16, 8), (0, 0, 1, 0, 0, 1), strict=True)
    ]


def _lags(signal, delay):
    return range(int(delay), len(signal))


def _convolved(signal, delay):
    return np.convolve(signal, signal)[len(signal) - 1 + delay :]


autocorrelation_kernel = KernelExercise(
    "autocorrelation_kernel",
    reference=lambda signal, delay: correlate_cpu(signal, delay),
    cases=_signals,
    float32=True,
    once=True,
    mistakes={
        "delay ignored": (
            "Your first output is lag 0, whatever the delay: thread `i` computes lag `{delay} + i`.",
            lambda signal, delay: correlate_cpu(signal)[: len(signal) - delay],
            [("range(signal.size - lag)", "range(signal.size - i)"), ("k + lag", "k + i")],
        ),
        "lag as index": (
            "You store lag `d` in `out[d]`. `out[0]` holds lag `{delay}`: store lag `{delay} + i` in "
            "`out[i]`.",
            lambda signal, delay: np.where(
                np.arange(len(signal) - delay) < delay, np.nan, correlate_cpu(signal)[: len(signal) - delay]
            ),
            ("if i < out.size:\n    lag = delay + i", "lag = i\nif delay <= lag < out.size:"),
        ),
        "one lag only": (
            "All your outputs are for lag `{delay}`: add the thread's index to it.",
            lambda signal, delay: np.full(len(signal) - delay, correlate_cpu(signal, delay)[0]),
            [("range(signal.size - lag)", "range(signal.size - delay)"), ("k + lag", "k + delay")],
        ),
        "last product only": (
            "Each output is its last product: do you use `=` instead of `+=`, or reset the sum to zero?",
            lambda signal, delay: np.array(
                [signal[len(signal) - 1 - d] * signal[-1] for d in _lags(signal, delay)]
            ),
            [("out[i] = total", ""), ("total +=", "out[i] =")],
        ),
        "reversed": (
            "`{signal}[d - k]` gives the convolution x * x. You need `{signal}[k + d]`.",
            _convolved,
            [("(signal.size - lag)", "(lag, signal.size)"), ("k + lag", "signal.size - 1 - k + lag")],
        ),
        "circular": (
            "Your signal wraps around. Stop where `k + d` reaches the end.",
            lambda signal, delay: np.array([signal @ np.roll(signal, -d) for d in _lags(signal, delay)]),
            [("range(signal.size - lag)", "range(signal.size)"), ("k + lag", "(k + lag) % signal.size")],
        ),
        "one short": (
            "The last product of each sum is missing: `k + d` goes up to `n - 1`, so `k` goes up to `n - 1 - "
            "d`.",
            lambda signal, delay: np.array(
                [signal[: len(signal) - d - 1] @ signal[d:-1] for d in _lags(signal, delay)]
            ),
            ("range(signal.size - lag)", "range(signal.size - 1 - lag)"),
        ),
        "averaged": (
            "You divide by the number of products. Just sum them here.",
            lambda signal, delay: (
                correlate_cpu(signal, delay) / (len(signal) - np.array(_lags(signal, delay)))
            ),
            ("out[i] = total", "out[i] = total / float32(signal.size - lag)"),
        ),
    },
)


def _work_is_shared(attempt):
    """Demand that each element is computed once, and neighbouring threads compute neighbouring elements."""
    case = launch(2, 4, normal(np.random.default_rng(0), 19), output(19))
    trace = examine(attempt, case).report.trace
    rows = np.flatnonzero(trace.kind == WRITE)
    counts = np.bincount(trace.element[rows], minlength=19)
    seen = "Seen with 19 elements, launched as `[2, 4]`."
    if counts.max() > 1:
        raise Wrong(
            "done more than once",
            f"The numbers are right, but element {counts.argmax()} is computed {counts.max()} times. Start "
            "at the thread's index in the whole grid, `cuda.grid(1)`, and go on in steps of the number of "
            "threads in the grid, `cuda.gridsize(1)`.",
            seen,
        )
    threads = trace.block[rows] * 4 + trace.thread[rows]
    if (threads != trace.element[rows] % 8).any():
        raise Wrong(
            "in chunks",
            "The numbers are right, but each thread computes elements that lie side by side. Let "
            "neighbouring threads compute neighbouring elements: thread `i` computes `i`, `i + threads`, `i "
            "+ 2 * threads`, and so on. Notebook 10 shows why memory prefers that.",
            seen,
        )


relu_stride_kernel = KernelExercise(
    "relu_stride_kernel",
    reference=lambda x: np.maximum(x, 0),
    cases=lambda rng: [
        launch(grid, block, normal(rng, n), output(n))
        for grid, block, n in [(1, 4, 3), (2, 4, 11), (2, 8, 45), (3, 4, 24), (2, 16, 20), (1, 32, 100)]
    ],
    large=lambda rng: [launch(2, 32, normal(rng, 70_001), output(70_001))],
    properties=(_work_is_shared,),
    mistakes={
        "not rectified": (
            "You copy `{x}`. Negative numbers must become 0.",
            lambda x: x,
            ("float32(0) if x[i] <= float32(0) else x[i]", "x[i]"),
        ),
        "absolute value": (
            "You store the absolute value. Negative numbers must become 0.",
            lambda x: np.abs(x),
            ("float32(0) if x[i] <= float32(0) else x[i]", "abs(x[i])"),
        ),
    },
)


mirror_kernel = KernelExercise(
    "mirror_kernel",
    reference=lambda image: image[:, ::-1],
    cases=lambda rng: [
        launch(grid, block, normal(rng, (h, w)), output((h, w)))
        for grid, block, (h, w) in [
            ((1, 1), (4, 4), (2, 3)),
            ((2, 3), (4, 2), (5, 7)),
            ((3, 1), (4, 8), (6, 9)),
            ((1, 4), (8, 2), (7, 5)),
            ((2, 2), (4, 4), (5, 5)),
        ]
    ],
    large=lambda rng: [launch((20, 18), (16, 16), normal(rng, (281, 313)), output((281, 313)))],
    once=True,
    from_the_end=True,
    mistakes={
        "upside down": (
            "You turn the image upside down. Keep the rows, and reverse the columns.",
            lambda image: image[::-1],
            ("image[row, width - 1 - column]", "image[height - 1 - row, column]"),
        ),
        "turned round": (
            "You reverse rows and columns, which turns the image by 180 degrees. Keep the rows.",
            lambda image: image[::-1, ::-1],
            ("image[row, width - 1 - column]", "image[height - 1 - row, width - 1 - column]"),
        ),
        "copied": ("You copy the image unchanged.", lambda image: image, ("width - 1 - column", "column")),
        "one column off": (
            "You're one column off: the last column, `width - 1`, goes to column 0.",
            lambda image: np.where(np.arange(image.shape[1]) > 0, np.roll(image[:, ::-1], 1, axis=1), np.nan),
            ("width - 1 - column", "width - column"),
            [("column < width", "0 < column < width"), ("width - 1 - column", "width - column")],
        ),
    },
)
