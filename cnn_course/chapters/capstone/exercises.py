"""The checks of notebook 18, ``18_capstone``."""

import numpy as np

from cnn_course.chapters.capstone.faster_kernels import MAPS, launch_filter_gradient, launch_forward_maps
from cnn_course.chapters.capstone.judging import KernelSwap, OwnSwaps, small_cases
from cnn_course.chapters.capstone.layer import SHAPES, OwnLayer
from cnn_course.chapters.capstone.parts import PARTS
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.launches import examine, launch, normal, output
from gpuless.access import READ

_THREADS = 128  # of a block


def _of_some(images=None, positions=None):
    """Return a mistake's function: the filter gradient of some images only, or some positions only."""

    def gradient(grad_output, x):
        grad_output = np.array(grad_output[:images])
        flat = grad_output.reshape(*grad_output.shape[:2], -1)
        if positions is not None:
            flat[..., np.arange(flat.shape[2]) % _THREADS >= positions] = 0
        return _filter_gradient(grad_output, x[:images])

    return gradient


def _filter_gradient(grad_output, x):
    return PARTS["conv_weight"].reference(grad_output, x)


def _forward(x, weight, bias):
    return PARTS["conv_forward"].reference(x, weight, bias)


def _loads_weights_once(attempt):
    """Demand that a block loads each weight once, not once per thread."""
    rng = np.random.default_rng(0)
    x, weight, bias = normal(rng, (1, 2, 9, 9)), normal(rng, (MAPS, 2, 3, 3)), normal(rng, MAPS)
    case = launch((1, 1, 1), _THREADS, x, weight, bias, output((1, MAPS, 7, 7)))
    trace = examine(attempt, case).report.trace
    number = next(k for k, info in enumerate(trace.arrays) if info.shape == weight.shape)
    loads = int(((trace.kind == READ) & (trace.array == number)).sum())
    if loads > 2 * weight.size:
        raise Wrong(
            "weights loaded again",
            f"The numbers are right, but a block loads {loads:,} weights from global memory, and there are "
            f"only {weight.size}. Copy the weights of one input channel into `window`, and let all threads "
            "read them there.",
        )


filter_gradient_kernel = KernelSwap(
    "filter_gradient_kernel",
    reference=PARTS["conv_weight"].reference,
    cases=small_cases("conv_weight"),
    part="conv_weight",
    launch=launch_filter_gradient,
    slips_in={
        "first image only": (
            "Your sum has only the first image. Add up over all images.",
            _of_some(images=1),
        ),
        "mean over the images": (
            "You divide by the number of images. Here the gradient is the sum.",
            lambda grad_output, x: _filter_gradient(grad_output, x) / len(x),
        ),
        "first thread only": (
            "You store only the sum of thread 0. `block_sum` *returns* the sum of the whole block.",
            _of_some(positions=1),
        ),
        "first warp only": (
            "You store only the sum of the first warp: `warp_sum` adds up 32 threads. A block has four "
            "warps.",
            _of_some(positions=32),
        ),
        "added by every thread": (
            f"Each of the {_THREADS} threads adds up all products, and then the block adds up all threads. "
            "Let the threads share the positions.",
            lambda grad_output, x: _THREADS * _filter_gradient(grad_output, x),
        ),
        "window exchanged": (
            "You exchange the window's row and column. `blockIdx.x` counts its nine elements row by row.",
            lambda grad_output, x: _filter_gradient(grad_output, x).swapaxes(2, 3),
        ),
    },
)

forward_maps_kernel = KernelSwap(
    "forward_maps_kernel",
    reference=PARTS["conv_forward"].reference,
    cases=small_cases("conv_forward"),
    part="conv_forward",
    launch=launch_forward_maps,
    properties=(_loads_weights_once,),
    slips_in={
        "bias left out": (
            "The bias is missing: add it to each sum, or begin the sums with it.",
            lambda x, weight, bias: _forward(x, weight, 0 * bias),
        ),
        "bias of the first group": (
            "Every group gets the bias of the first. Channel `m` of the group is channel `first + m`.",
            lambda x, weight, bias: _forward(x, weight, bias[np.arange(len(bias)) % MAPS]),
        ),
        "weights of the first group": (
            "Every group gets the weights of the first. Channel `m` of the group is channel `first + m`.",
            lambda x, weight, bias: _forward(x, weight[np.arange(len(bias)) % MAPS], bias),
        ),
        "bias in every round": (
            "You add the bias for every input channel. Add it once per sum.",
            lambda x, weight, bias: _forward(x, weight, x.shape[1] * bias),
        ),
        "filters turned": (
            "Your filters are turned by 180 degrees. Element `k` of the window meets the pixel at row `h + k "
            "// 3`, column `w + k % 3`.",
            lambda x, weight, bias: _forward(x, weight[:, :, ::-1, ::-1], bias),
        ),
        "filters transposed": (
            "You exchange the window's row and column: element `k` is row `k // 3`, column `k % 3`.",
            lambda x, weight, bias: _forward(x, weight.swapaxes(2, 3), bias),
        ),
        "last input channel only": (
            "Your sums have only the last input channel: start them once, before the loop over the channels.",
            lambda x, weight, bias: _forward(x[:, -1:], weight[:, -1:], bias),
        ),
        "first input channel only": (
            "Your sums have only the first input channel. Add up over all of them.",
            lambda x, weight, bias: _forward(x[:, :1], weight[:, :1], bias),
        ),
    },
)

# The reader chooses the part: these inputs are only an example.
your_swaps = OwnSwaps(
    "your_swaps", reference=PARTS["dense_forward"].reference, cases=small_cases("dense_forward")
)

your_layer = OwnLayer(
    "your_layer",
    reference=lambda x: x,
    cases=lambda rng: [(rng.normal(size=shape).astype(np.float32),) for shape in SHAPES],
)
