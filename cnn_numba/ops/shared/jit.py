"""The decorators that the `cpu` backends share; without Numba, a decorated function raises `NoNumba`."""

import functools

from gpuless import nvidia


class NoNumba(RuntimeError):
    """A function that Numba compiles was called, and Numba is not installed."""


def _refused(function):
    """Return a function that raises `NoNumba` instead."""

    @functools.wraps(function)
    def refuse(*arguments, **named):
        raise NoNumba(
            f"{function.__name__} is compiled by Numba, which is not installed: pip install numba, or run "
            "this in a container, WSL or Colab"
        )

    refuse.py_func = function
    return refuse


if nvidia.installed("numba"):
    from cnn_numba.ops.shared.compiling import exact_jit, inline_jit, inner_jit, parallel_jit, serial_jit
else:
    exact_jit = inline_jit = inner_jit = parallel_jit = serial_jit = _refused


def cores_by_size(parallel_from):
    """Return a decorator that compiles a loop for one core and for all cores, each when first needed.

    It runs on all cores if the first array has at least `parallel_from` elements. With fewer, waking the
    other cores takes longer than the work itself.
    """

    def decorate(loop):
        one_core, all_cores = serial_jit(loop), parallel_jit(loop)

        def run(first, *others):
            return (one_core if first.size < parallel_from else all_cores)(first, *others)

        return run

    return decorate
