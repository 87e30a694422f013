"""A launch, line by line: `step`."""

from cnn_course.engine.stepper.stepper import Stepper, step

__all__ = ["Stepper", "step"]
