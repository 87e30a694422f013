"""The course's table of contents: its notebooks, and the exercises in each."""

import importlib
import sys
from typing import NamedTuple

from cnn_numba.course.checks.exercise import Exercise


class Notebook(NamedTuple):
    """A notebook: its file is ``NUMBER_TOPIC.ipynb``, its checks are `cnn_numba.course.exercises.TOPIC`."""

    number: str
    topic: str
    title: str

    @property
    def stem(self):
        """The name of its file, without the ending."""
        return f"{self.number}_{self.topic}"

    def exercises(self) -> dict[str, Exercise]:
        """Return its exercises by name, in the order in which it has them."""
        module = importlib.import_module(f"cnn_numba.course.exercises.{self.topic}")
        return {name: value for name, value in vars(module).items() if isinstance(value, Exercise)}


NOTEBOOKS = (
    Notebook("00", "start_here", "Start here"),
    Notebook("01", "convolution_on_the_cpu", "Convolution on the CPU"),
    Notebook("02", "first_cuda_kernels", "First CUDA kernels"),
    Notebook("02b", "the_machine", "The machine"),
    Notebook("03", "convolution_on_the_gpu", "Convolution on the GPU"),
    Notebook("04", "shared_memory_and_tiling", "Shared memory and tiling"),
    Notebook("05", "pooling_and_reductions", "Pooling and reductions"),
    Notebook("06", "dense_is_matmul", "Dense is matmul"),
    Notebook("06b", "convolution_as_matmul", "Convolution as matmul"),
    Notebook("07", "backprop_by_hand", "Backprop by hand"),
    Notebook("07b", "backward_kernels", "Backward kernels"),
    Notebook("08", "mnist_cnn", "The MNIST CNN"),
    Notebook("08b", "other_parts", "Other parts"),
    Notebook("09", "make_it_fast", "Make it fast"),
    Notebook("11", "debugging_gpu_code", "Debugging GPU code"),
)


def exercises_of(topic: str) -> dict[str, Exercise]:
    """Return the exercises of a notebook, named by its topic."""
    return next(notebook for notebook in NOTEBOOKS if notebook.topic == topic).exercises()


def place_of(exercise: Exercise) -> Notebook | None:
    """Return the notebook that an exercise stands in; None for one that belongs to no notebook."""
    for notebook in NOTEBOOKS:
        # Whoever checks an exercise has imported its module.
        module = sys.modules.get(f"cnn_numba.course.exercises.{notebook.topic}")
        if getattr(module, exercise.name, None) is exercise:
            return notebook
    return None
