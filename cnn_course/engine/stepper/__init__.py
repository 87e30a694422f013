"""`step` shows a launch line by line."""

from cnn_course.engine.stepper.stepper import Stepper, step

__all__ = ["Stepper", "step"]
