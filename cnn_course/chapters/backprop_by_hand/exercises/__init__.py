"""The checks of notebook 07, ``07_backprop_by_hand``: a file for each exercise."""

from cnn_course.chapters.backprop_by_hand.exercises.conv_backward_weight import conv_backward_weight
from cnn_course.chapters.backprop_by_hand.exercises.cross_entropy_gradient import cross_entropy_gradient
from cnn_course.chapters.backprop_by_hand.exercises.linear_backward import linear_backward
from cnn_course.chapters.backprop_by_hand.exercises.name_the_bug import name_the_bug

__all__ = ["conv_backward_weight", "cross_entropy_gradient", "linear_backward", "name_the_bug"]
