"""`numba.njit` and `numba.jit` where Numba is not installed: functions of the host stay Python."""

import functools
import inspect
import warnings


class HostFunction:
    """A function that runs as Python on the host, and in a kernel is one of its device functions."""

    def __init__(self, function, options):
        functools.update_wrapper(self, function)
        self.py_func, self.targetoptions, self.signatures = function, options, []

    def __call__(self, *arguments, **named):
        """Run it as Python."""
        return self.py_func(*arguments, **named)


class _Slow(HostFunction):
    """One that a compiler would make fast."""

    def __call__(self, *arguments, **named):
        """Run it as Python, and say once that this is slow."""
        _warn()
        return self.py_func(*arguments, **named)


def jit(signature_or_function=None, **options):
    """Return a function that runs as Python on the host, and is a device function in a kernel."""
    given = getattr(signature_or_function, "py_func", signature_or_function)
    return _Slow(given, options) if inspect.isfunction(given) else lambda function: jit(function, **options)


njit = jit


@functools.cache
def _warn():
    """Say once that nothing is compiled."""
    warnings.warn(
        "Numba is not installed, so functions with @njit run as Python, slowly: pip install numba",
        RuntimeWarning,
        stacklevel=3,
    )
