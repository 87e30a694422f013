"""The checks of notebook 18, ``18_capstone``."""

import numpy as np

from cnn_course.chapters.capstone.faster_kernels import launch_filter_gradient, launch_forward_maps
from cnn_course.chapters.capstone.judging import KernelSwap, OwnSwaps, small_cases
from cnn_course.chapters.capstone.layer import SHAPES, OwnLayer
from cnn_course.chapters.capstone.parts import PARTS

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
)

# Which part it will be is open: these inputs are those of one that suits every reader.
your_swaps = OwnSwaps(
    "your_swaps", reference=PARTS["dense_forward"].reference, cases=small_cases("dense_forward")
)

your_layer = OwnLayer(
    "your_layer",
    reference=lambda x: x,
    cases=lambda rng: [(rng.normal(size=shape).astype(np.float32),) for shape in SHAPES],
)
