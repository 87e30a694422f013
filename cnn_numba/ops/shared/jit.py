"""The decorators that the `cpu` backends share; without Numba what they make says so when it is called."""

import functools

from gpuless import nvidia


class NoNumba(RuntimeError):
    """The CPU backend was used, which Numba compiles, and Numba is not installed."""


def _refused(function):
    """Return a function that says why it cannot be called, and what to do."""

    @functools.wraps(function)
    def refuse(*arguments, **named):
        raise NoNumba(
            f"{function.__name__} is compiled by Numba, which is not installed: pip install numba, or run "
            "this in a container, WSL or Colab"
        )

    refuse.py_func = function
    return refuse


if nvidia.installed("numba"):
    from cnn_numba.ops.shared.compiling import (
        EXACT as EXACT,
        FASTMATH as FASTMATH,
        exact_jit,
        inline_jit,
        inner_jit,
        parallel_jit,
        serial_jit,
    )
else:
    EXACT = FASTMATH = frozenset()
    exact_jit = inline_jit = inner_jit = parallel_jit = serial_jit = _refused


def cores_by_size(parallel_from):
    """Return a decorator that compiles a loop for one core and for all, each when it is first needed.

    The size of the first array says which of them runs: all cores from `parallel_from` elements on. For less,
    waking the others takes longer than the work itself.
    """

    def decorate(loop):
        one_core, all_cores = serial_jit(loop), parallel_jit(loop)

        def run(first, *others):
            return (one_core if first.size < parallel_from else all_cores)(first, *others)

        return run

    return decorate
