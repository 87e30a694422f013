"""The decorators of the `cpu` backends where Numba is not installed: see `jit`."""

import functools

EXACT = FASTMATH = frozenset()


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


exact_jit = inline_jit = inner_jit = parallel_jit = serial_jit = _refused
