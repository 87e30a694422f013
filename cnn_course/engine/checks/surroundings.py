"""The environment of a learner's program during a check: guarded arrays, and intercepted launches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import cuda

import cnn_numba
from benchmarks import rungs
from cnn_course.engine.checks.evidence import Wrong
from cnn_course.engine.checks.launches import short_launches
from cnn_course.engine.launch_lists import replaced
from cnn_numba import device
from gpuless import check_launch, sanitize

#: The folders of kernels that no answer may launch.
_OURS = {Path(cnn_numba.__file__).parent, Path(rungs.__file__).parent}


class Launched(NamedTuple):
    """A launch, with the sanitizer's report, or the exception that ended it."""

    launch: device.Launch
    report: Any = None
    error: Exception | None = None

    @property
    def blocks(self):
        """The number of its blocks."""
        return int(np.prod(self.launch.grid))

    def __str__(self):
        return f"`{self.launch.kernel.py_func.__name__}[{self.launch.grid}, {self.launch.block}]`"


class _Guarded(np.ndarray):
    """A host array that refuses arithmetic, but can be read, copied and sliced."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        result = getattr(ufunc, method)(*map(_bare, inputs), **{k: _bare(v) for k, v in kwargs.items()})
        if np.asarray(result).dtype.kind == "b":  # a comparison
            return result
        raise _on_the_host(ufunc.__name__)

    def __str__(self):
        return str(self.view(np.ndarray))

    def __array_function__(self, function, types, arguments, keywords):
        if function.__name__ in _ARITHMETIC:
            raise _on_the_host(function.__name__)
        return _guarded(super().__array_function__(function, types, arguments, keywords))


_ARITHMETIC = {"average", "convolve", "correlate", "dot", "einsum", "inner", "interp", "tensordot"}


def _on_the_host(name):
    return Wrong(
        "computes on the host",
        f"NumPy computes here, on the host: `np.{name}`. Leave the arithmetic to kernels: NumPy may make "
        "arrays, copy them and cut them.",
    )


def _bare(value):
    if isinstance(value, tuple):  # of `out=`
        return tuple(map(_bare, value))
    return value.view(np.ndarray) if isinstance(value, _Guarded) else value


def _guarded(value):
    return value.view(_Guarded) if isinstance(value, np.ndarray) else value


def run_guarded(attempt, *args, **kwargs):
    """Call an attempt with guarded arrays; return its result as a plain array."""
    array_type, to_device = type(device.empty(1)), cuda.to_device
    plainly, filled = array_type.copy_to_host, []

    def copy(array, ary=None, stream=0):
        result = plainly(array, ary, stream)
        if ary is not None:  # the attempt's array cannot be guarded: keep its contents
            if stream:
                stream.synchronize()
            filled.append(np.array(ary))
        return _guarded(result)

    with (
        replaced(array_type, "copy_to_host", copy),
        replaced(
            cuda, "to_device", lambda array, *others, **keywords: to_device(_bare(array), *others, **keywords)
        ),
    ):
        result = attempt(*map(_guarded, args), **kwargs)
        _only_moved(result, filled)
        return _bare(result)


def _only_moved(result, filled):
    """Raise `Wrong` if a result has numbers that were not copied from the device."""
    if not filled or not isinstance(result, np.ndarray) or isinstance(result, _Guarded):
        return
    known = np.concatenate([array.astype(result.dtype).ravel() for array in filled])
    if not (np.isin(result, known) | np.isnan(result)).all():
        raise Wrong(
            "computes on the host",
            "The array that you return has numbers that were not copied into it from the device. Leave the "
            "arithmetic to kernels: NumPy may make arrays, copy them and cut them.",
        )


_TOO_MANY = (
    "Right for small arrays. For a large one your function launches kernels more than {most} times: is "
    "there a launch in a loop? Each takes microseconds, however little it does. Let one launch do more."
)


@contextmanager
def launches_taken_over(take: Callable, most: int | None = None) -> Iterator[list]:
    """Let `take` make all launches within the block; yield the list of them."""
    kind = type(cuda.jit(lambda: None))
    plainly, noted = kind.__getitem__, []

    def made(launch):
        if len(noted) == most:
            raise Wrong("too many launches", _TOO_MANY.format(most=most))
        check_launch(launch.grid, launch.block, launch.shared)
        _admit(launch)
        try:
            report = take(launch, plainly)
        except Exception as error:
            noted.append(Launched(launch, error=error))
            raise
        noted.append(Launched(launch, report))

    def configured(kernel, configuration):
        grid, block, *others = configuration
        shared = others[1] if len(others) > 1 else 0
        return lambda *arguments: made(device.Launch(kernel, grid, block, arguments, shared))

    with replaced(kind, "__getitem__", configured), device.observe_launches(made):
        yield noted


def is_ours(function):
    """Return whether a kernel is the package's, or a rung of its ladders."""
    return not _OURS.isdisjoint(Path(function.__code__.co_filename).parents)


def _admit(launch):
    """Raise `Wrong` for a launch that no design should make."""
    function = launch.kernel.py_func
    if is_ours(function):
        name = function.__name__
        raise Wrong("package's kernel", f"`{name}` is a kernel of the package. Write your own.")
    names = function.__code__.co_varnames
    for name, value in zip(names, launch.arguments, strict=False):
        if isinstance(value, np.ndarray) and not device.is_device_array(value):
            raise Wrong(
                "host array",
                f"You pass an array on the host to the kernel `{function.__name__}`, as `{name}`. Numba "
                "copies it to the device and back at every launch. Copy it yourself with `cuda.to_device`, "
                "and make an output on the device with `cuda.device_array`.",
            )


# --- Ways to make a launch ---------------------------------------------------------------------------------


def sanitized(launch, plainly):
    """Run a launch under the sanitizer; return the report."""
    with short_launches():
        report = launch.examine(sanitize)
    if report.stop is not None:
        raise report.stop
    return report


def compiled(launch, plainly):
    """Run a launch unchanged."""
    plainly(launch.kernel, (launch.grid, launch.block, 0, launch.shared))(*launch.arguments)


def left_out(launch, plainly):
    """Skip a launch."""
