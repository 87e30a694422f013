"""The checks of notebook 23, ``23_attention``: the exercises and their files.

1. `causal_softmax_kernel`: causal_softmax_kernel.py
2. `online_step`: online_step.py
3. `tiled_attention_kernel`: tiled_attention_kernel.py
4. `softmax_backward_kernel`: softmax_backward_kernel.py
"""

from cnn_course.chapters.attention.exercises.causal_softmax_kernel import causal_softmax_kernel
from cnn_course.chapters.attention.exercises.online_step import online_step
from cnn_course.chapters.attention.exercises.softmax_backward_kernel import softmax_backward_kernel
from cnn_course.chapters.attention.exercises.tiled_attention_kernel import tiled_attention_kernel

__all__ = ["causal_softmax_kernel", "online_step", "softmax_backward_kernel", "tiled_attention_kernel"]
