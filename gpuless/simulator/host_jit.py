"""`numba.njit` and `numba.jit` if Numba isn't installed: the host runs the functions as Python."""

import functools
import inspect
import warnings


class HostFunction:
    """A function that runs as Python on the host, and is a device function in kernels."""

    def __init__(self, function, options):
        functools.update_wrapper(self, function)
        self.py_func, self.targetoptions, self.signatures = function, options, []

    def __call__(self, *arguments, **named):
        """Run it as Python."""
        return self.py_func(*arguments, **named)


class _Slow(HostFunction):
    """A host function, which a compiler would make fast."""

    def __call__(self, *arguments, **named):
        """Run it as Python, and warn once that this is slow."""
        _warn()
        return self.py_func(*arguments, **named)


def jit(signature_or_function=None, **options):
    """Return a function that runs as Python on the host, and is a device function in kernels."""
    given = getattr(signature_or_function, "py_func", signature_or_function)
    return _Slow(given, options) if inspect.isfunction(given) else lambda function: jit(function, **options)


njit = jit


@functools.cache
def _warn():
    """Warn once that nothing is compiled."""
    warnings.warn(
        "Numba is not installed, so functions with @njit run as Python, slowly: pip install numba",
        RuntimeWarning,
        stacklevel=3,
    )
