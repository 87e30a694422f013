"""The checks of notebook 07, ``07_backprop_by_hand``: the exercises and their files.

1. `linear_backward`: linear_backward.py
2. `conv_backward_weight`: conv_backward_weight.py
3. `cross_entropy_gradient`: cross_entropy_gradient.py
4. `name_the_bug`: name_the_bug.py
"""

from cnn_course.chapters.backprop_by_hand.exercises.conv_backward_weight import conv_backward_weight
from cnn_course.chapters.backprop_by_hand.exercises.cross_entropy_gradient import cross_entropy_gradient
from cnn_course.chapters.backprop_by_hand.exercises.linear_backward import linear_backward
from cnn_course.chapters.backprop_by_hand.exercises.name_the_bug import name_the_bug

__all__ = ["conv_backward_weight", "cross_entropy_gradient", "linear_backward", "name_the_bug"]
