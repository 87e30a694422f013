"""The checks of notebook 18, ``18_capstone``."""

import numpy as np

from cnn_course.chapters.capstone.faster_kernels import MAPS, launch_filter_gradient, launch_forward_maps
from cnn_course.chapters.capstone.judging import KernelSwap, OwnSwaps, small_cases
from cnn_course.chapters.capstone.layer import SHAPES, OwnLayer
from cnn_course.chapters.capstone.parts import PARTS
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.launches import examine, launch, normal, output
from gpuless.access import READ


def _loads_weights_once(attempt):
    """Demand that a block loads each weight once, not once per thread."""
    rng = np.random.default_rng(0)
    x, weight, bias = normal(rng, (1, 2, 9, 9)), normal(rng, (MAPS, 2, 3, 3)), normal(rng, MAPS)
    case = launch((1, 1, 1), 128, x, weight, bias, output((1, MAPS, 7, 7)))
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
)

forward_maps_kernel = KernelSwap(
    "forward_maps_kernel",
    reference=PARTS["conv_forward"].reference,
    cases=small_cases("conv_forward"),
    part="conv_forward",
    launch=launch_forward_maps,
    properties=(_loads_weights_once,),
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
