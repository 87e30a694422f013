"""The checks of notebook 10, ``10_the_machine``: the exercises and their files.

1. `warps_needed`: waiting.py
2. `choose_launch`: evidence.py
3. `bias_relu_kernel`: neighbours.py
4. `conv_nhwc_kernel`: neighbours.py
5. `warp_sums_kernel`: waiting.py
6. `under_the_roof`: evidence.py
"""

from cnn_course.chapters.the_machine.exercises.evidence import choose_launch, under_the_roof
from cnn_course.chapters.the_machine.exercises.neighbours import bias_relu_kernel, conv_nhwc_kernel
from cnn_course.chapters.the_machine.exercises.waiting import warp_sums_kernel, warps_needed

__all__ = [
    "bias_relu_kernel",
    "choose_launch",
    "conv_nhwc_kernel",
    "under_the_roof",
    "warp_sums_kernel",
    "warps_needed",
]
