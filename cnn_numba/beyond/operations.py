"""The modules of the operations beyond the core, by backend; imported when a model first needs one."""

from functools import partial
from importlib import import_module


def _modules(backend):
    """Return a backend's modules, by operation."""
    operations = "attention", "embedding", "norm", "recurrent"
    return {name: import_module(f"cnn_numba.beyond.{name}.{backend}") for name in operations}


cpu, gpu, reference = (partial(_modules, backend) for backend in ("cpu", "gpu", "reference"))
