"""The course's table of contents: its notebooks, and the exercises in each."""

from types import ModuleType
from typing import NamedTuple

from cnn_numba.course.checks.exercise import Exercise
from cnn_numba.course.exercises import (
    attention,
    backprop_by_hand,
    backward_kernels,
    cifar10_convnet,
    convolution_as_matmul,
    convolution_on_the_cpu,
    convolution_on_the_gpu,
    debugging_gpu_code,
    dense_is_matmul,
    first_cuda_kernels,
    frameworks_and_engines,
    make_it_fast,
    many_gpus,
    mixed_precision,
    mnist_cnn,
    other_parts,
    other_roads,
    pooling_and_reductions,
    repairing_a_program,
    sequences,
    shared_memory_and_tiling,
    start_here,
    tensor_cores,
    the_machine,
)


class Notebook(NamedTuple):
    """A notebook: its number, the module of its checks, which has its topic's name, and its title."""

    number: str
    checks: ModuleType
    title: str

    @property
    def topic(self) -> str:
        """What its file is named after: the file is ``NUMBER_TOPIC.ipynb``."""
        return self.checks.__name__.rpartition(".")[2]

    @property
    def stem(self) -> str:
        """The name of its file, without the ending."""
        return f"{self.number}_{self.topic}"

    def exercises(self) -> dict[str, Exercise]:
        """Return its exercises by name, in the order in which it has them."""
        return {name: value for name, value in vars(self.checks).items() if isinstance(value, Exercise)}


NOTEBOOKS = (
    Notebook("00", start_here, "Start here"),
    Notebook("01", convolution_on_the_cpu, "Convolution on the CPU"),
    Notebook("02", first_cuda_kernels, "First CUDA kernels"),
    Notebook("02b", the_machine, "The machine"),
    Notebook("03", convolution_on_the_gpu, "Convolution on the GPU"),
    Notebook("04", shared_memory_and_tiling, "Shared memory and tiling"),
    Notebook("05", pooling_and_reductions, "Pooling and reductions"),
    Notebook("06", dense_is_matmul, "Dense is matmul"),
    Notebook("06b", convolution_as_matmul, "Convolution as matmul"),
    Notebook("07", backprop_by_hand, "Backprop by hand"),
    Notebook("07b", backward_kernels, "Backward kernels"),
    Notebook("08", mnist_cnn, "The MNIST CNN"),
    Notebook("08b", other_parts, "Other parts"),
    Notebook("09", make_it_fast, "Make it fast"),
    Notebook("10", mixed_precision, "Mixed precision"),
    Notebook("10b", tensor_cores, "Tensor Cores"),
    Notebook("11", debugging_gpu_code, "Debugging GPU code"),
    Notebook("11b", repairing_a_program, "Repairing a program"),
    Notebook("12", cifar10_convnet, "A ConvNet for colour images"),
    Notebook("13", sequences, "Sequences"),
    Notebook("13b", attention, "Attention"),
    Notebook("14", many_gpus, "Many GPUs"),
    Notebook("15", other_roads, "Other roads"),
    Notebook("15b", frameworks_and_engines, "Frameworks and engines"),
)


def notebook_on(topic: str) -> Notebook:
    """Return the notebook with this topic."""
    return next(notebook for notebook in NOTEBOOKS if notebook.topic == topic)


def place_of(exercise: Exercise) -> Notebook | None:
    """Return the notebook that an exercise stands in; None for one that belongs to no notebook."""
    holders = (notebook for notebook in NOTEBOOKS if vars(notebook.checks).get(exercise.name) is exercise)
    return next(holders, None)
