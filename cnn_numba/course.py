"""The old place of the course, for one release: `cnn_course` under its old names, with a warning."""

import importlib
from importlib.util import find_spec

from cnn_numba.extras import REPOSITORY
from cnn_numba.pretrained import MNIST_CNN as TRAINED_MNIST_CNN  # noqa: F401

if find_spec("cnn_course") is None:
    raise ModuleNotFoundError(
        f"the course is not in the installed package; it is in the repository: {REPOSITORY}",
        name="cnn_course",
    )

__path__ = []
__getattr__ = importlib.import_module("cnn_course.old_names").attribute
