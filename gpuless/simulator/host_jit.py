"""`numba.njit` and `numba.jit` where Numba is not installed: functions of the host stay Python."""

import functools
import inspect
import warnings


def jit(signature_or_function=None, **options):
    """Return a function that runs as Python on the host, and is a device function in a kernel."""
    given = getattr(signature_or_function, "py_func", signature_or_function)
    if not inspect.isfunction(given):
        return jit

    @functools.wraps(given)
    def as_python(*arguments, **named):
        _warn()
        return given(*arguments, **named)

    as_python.py_func, as_python.targetoptions, as_python.signatures = given, options, []
    return as_python


njit = jit


@functools.cache
def _warn():
    """Say once that nothing is compiled."""
    warnings.warn(
        "Numba is not installed, so functions with @njit run as Python, slowly: pip install numba",
        RuntimeWarning,
        stacklevel=3,
    )
