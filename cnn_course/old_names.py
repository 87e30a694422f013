"""The names that the course had inside the package: they work for one release, by `cnn_numba.course`."""

import importlib
import sys
import warnings
from importlib.machinery import ModuleSpec

OLD_PLACE = "cnn_numba.course"
_ENGINE = "workbook notebooks export glossary standalone ladders ledger launch_lists".split()
_PICTURES_OF_ALL = "plots explorer access progress".split()
# What had another name, and what belongs to one chapter.
_TOPICS = {
    "dense_is_matmul": "matrix_product",
    "make_it_fast": "launches_and_graphs",
    "debugging_gpu_code": "debugging",
    "cifar10_convnet": "colour_images",
    "pooling_and_reductions": "reductions",
}
_CHAPTERS = {
    "attention": "text_training",
    "backprop_by_hand": "gradient_bugs",
    "backward_kernels": "backward_step",
    "colour_images": "improvements",
    "frameworks_and_engines": "frameworks",
    "launches_and_graphs": "streams tape",
    "many_gpus": "ring ring_worker scaling workers",
    "mnist_cnn": "gradient_check network own_backend pad",
    "other_parts": "stuck_training",
    "other_roads": "roads",
}
_PICTURES = {
    "backward": "backward_kernels",
    "colour": "colour_images",
    "convolution": "convolution_on_the_cpu",
    "frameworks": "frameworks_and_engines",
    "gradients": "backprop_by_hand",
    "machine": "the_machine",
    "matmul": "matrix_product",
    "parts": "other_parts",
    "roads": "other_roads",
    "speed": "launches_and_graphs",
    "start": "start_here",
    "threads": "first_cuda_kernels",
    "tiles": "shared_memory_and_tiling",
    "training": "mnist_cnn",
}
_OTHERS = {
    "contents": "engine.outline",
    "mixed_precision": "chapters.mixed_precision.trainings",
    "own_room": "chapters.mnist_cnn.own_backend",
    "pictures.films": "chapters.shared_memory_and_tiling.films",
    "pictures.pooling": "chapters.pooling_and_softmax.pictures",
    "pictures.reductions": "chapters.reductions.pictures",
    **{name: f"engine.{name}" for name in _ENGINE},
    **{f"pictures.{name}": f"engine.{name}" for name in _PICTURES_OF_ALL},
    **{f"pictures.{name}": f"chapters.{topic}.pictures" for name, topic in _PICTURES.items()},
    **{name: f"chapters.{topic}.{name}" for topic, names in _CHAPTERS.items() for name in names.split()},
}


def new_place(name: str) -> str:
    """Return where a module of the course is now; empty for a folder that has no successor.

    Examples
    --------
    >>> new_place("exercises.cifar10_convnet")
    'cnn_course.chapters.colour_images.exercises'
    >>> new_place("checks.exercise")
    'cnn_course.engine.checks.exercise'
    """
    folder, _, rest = name.partition(".")
    if name in ("exercises", "pictures"):
        return ""
    if name in _OTHERS:
        return f"cnn_course.{_OTHERS[name]}"
    if folder in ("exercises", "pictures"):
        return f"cnn_course.chapters.{_TOPICS.get(rest, rest)}.{folder}"
    return f"cnn_course.chapters.other_roads.{name}" if folder == "roads" else f"cnn_course.engine.{name}"


class _Finder:
    """Finds the modules of the course under their old names."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """Return how to load a module of `cnn_numba.course`, None for any other."""
        if not name.startswith(f"{OLD_PLACE}."):
            return None
        return ModuleSpec(name, _Finder, is_package=name.count(".") == 2)

    @staticmethod
    def create_module(spec):
        """Leave it to Python."""

    @staticmethod
    def exec_module(module):
        """Put the module of the new place in the place of the old one."""
        old = module.__spec__.name
        if new := new_place(old.removeprefix(f"{OLD_PLACE}.")):
            _warn(old, new)
            sys.modules[old] = importlib.import_module(new)


def _warn(old, new):
    warnings.warn(f"{old} is {new} now; the old name goes with the next release", FutureWarning, stacklevel=2)


def attribute(name):
    """Return what the old place itself had of this name."""
    if name != "progress":
        raise AttributeError(f"module {OLD_PLACE} has no attribute {name}")
    _warn(f"{OLD_PLACE}.{name}", f"cnn_course.{name}")
    return importlib.import_module("cnn_course").progress


# First: below a folder of the new place Python would find its files itself, and make a second module of each.
sys.meta_path.insert(0, _Finder)
