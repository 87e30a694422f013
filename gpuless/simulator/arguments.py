"""Prepare the arguments of a launch.

Arrays on the simulated device are used in place. Host arrays are copied there and back, as Numba does.
Arguments that no GPU could take are refused.
"""

import sys
import warnings
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

from gpuless.limits import LaunchError
from gpuless.simulator.arithmetic import typed
from gpuless.simulator.compilers import cuda_modules, of_cuda, performance_warning, warns_of_copies
from gpuless.simulator.errors import UnsupportedPython
from gpuless.simulator.far_memory import Copies
from gpuless.simulator.memory import poison


def argument_names(function, count):
    """Return the names of a kernel's `count` arguments; TypeError if it takes more or fewer."""
    code = function.__code__
    names = list(code.co_varnames[: code.co_argcount])
    takes_rest = bool(code.co_flags & 0x04)
    fewest = len(names) - len(function.__defaults__ or ())
    if count < fewest or (count > len(names) and not takes_rest):
        raise TypeError(
            f"kernel {function.__name__} takes {len(names)} arguments ({', '.join(names)}), got {count}"
        )
    rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount] if takes_rest else ""
    return (names + [f"{rest}[{i}]" for i in range(count - len(names))])[:count]


def argument_types(arguments):
    """Return the types of a launch's arguments as a key: for new types, Numba compiles again.

    >>> argument_types([np.zeros((2, 3), np.float32), 1, (2, 2.5)])
    ((dtype('float32'), 2, 'C'), <class 'int'>, (<class 'tuple'>, <class 'int'>, <class 'float'>))
    """
    return tuple(map(_type_of, arguments))


def _type_of(value):
    if isinstance(value, np.ndarray) and value.ndim > 0:
        flags = value.flags
        return value.dtype, value.ndim, "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
    if isinstance(value, tuple):
        return type(value), *map(_type_of, value)
    return value.dtype if isinstance(value, np.void) else type(value)


def memory_argument(value, name, memory):
    """Return an argument as the kernel gets it: arrays from `Memory.wrap`, numbers `typed`."""
    if isinstance(value, np.ndarray) and value.ndim > 0:
        return memory.wrap(value, "global", name)
    if isinstance(value, tuple):
        parts = [memory_argument(part, f"{name}[{i}]", memory) for i, part in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return typed(value)


@contextmanager
def device_arguments(launch, arguments):
    """Return a launch's arguments in device memory; at the end of the ``with`` block, copy results back.

    A host array is copied to the device and, after the launch, back; as that takes time on a GPU, Numba warns
    of it, and so does this.
    """
    names = argument_names(launch.function, len(arguments))
    finish, retrieve = [], []
    for extension in launch.extensions:
        arguments = [extension.prepare_args(None, value, stream=0, retr=retrieve)[1] for value in arguments]
    far = Copies([array for value in arguments for array in _far_arrays(value)])
    finish.append(far.copy_back)
    yield [_on_device(value, name, launch, finish, far) for value, name in zip(arguments, names, strict=True)]
    for copy_back in finish + retrieve:
        copy_back()


def _far_arrays(value):
    """Return the arrays in an argument that are in the memory of a real GPU."""
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return [array for part in value for array in _far_arrays(part)]
    value, _, _ = _unwrapped(value)
    if isinstance(value, np.ndarray) or not hasattr(value, "__cuda_array_interface__"):
        return []
    value = _as_device_array(value)
    return [] if _within_reach(value) else [value]


def _unwrapped(value):
    """Return the value in an argument, and whether it is copied to the device and back."""
    for cuda in cuda_modules():
        if isinstance(value, (cuda.In, cuda.Out, cuda.InOut)):
            return value.value, not isinstance(value, cuda.Out), not isinstance(value, cuda.In)
    return value, True, True


def _as_device_array(value):
    return value if getattr(value, "__cuda_ndarray__", False) else of_cuda("as_cuda_array")(value)


def _on_device(value, name, launch, finish, far):
    value, copy_in, copy_back = _unwrapped(value)
    if isinstance(value, np.ndarray) and getattr(value, "__cuda_ndarray__", False):
        # Mapped or managed, so also the host's memory; `owner` keeps that alive.
        return np.asarray(SimpleNamespace(__array_interface__=value.__array_interface__, owner=value))
    if isinstance(value, np.ndarray) and value.ndim > 0:
        if copy_in:
            _warn_of_copy(name, launch.name)
        return _copied(value, finish, copy_in, copy_back)
    if hasattr(value, "__cuda_array_interface__") or getattr(value, "__cuda_ndarray__", False):
        value = _as_device_array(value)
        return value._ary if _within_reach(value) else far.here(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_on_device(part, f"{name}[{i}]", launch, finish, far) for i, part in enumerate(value))
    if isinstance(value, (list, dict, set, str, bytes)) or type(value).__module__.startswith("torch"):
        raise UnsupportedPython(
            f"kernel {launch.name} got a {type(value).__name__} for {name}; kernels take arrays, numbers and "
            "tuples of these" + (": use cuda.to_device(np.array(...))" if isinstance(value, list) else "")
        )
    return value


def contents(device_array):
    """Return the ndarray of a device array's elements, or a copy if they are on a real GPU."""
    return device_array._ary if _within_reach(device_array) else device_array.copy_to_host()


def _within_reach(device_array):
    return "_ary" in device_array.__dict__ or hasattr(type(device_array), "_ary")


def _copied(value, finish, copy_in, copy_back):
    flags = value.flags
    if not flags.c_contiguous and not flags.f_contiguous:
        raise LaunchError(
            f"only contiguous host arrays can be copied to a device, and this one of shape {value.shape} has "
            f"strides {value.strides}: use np.ascontiguousarray"
        )
    on_device = value.copy(order="K")
    if not copy_in:
        on_device[...] = poison(value.dtype)
    on_device.flags.writeable = flags.writeable  # writes to a read-only array would be lost
    if copy_back and flags.writeable:
        finish.append(lambda: np.copyto(value, on_device))
    return on_device


def _warn_of_copy(argument, kernel):
    """Warn as Numba does on a GPU, and name the array."""
    if warns_of_copies():
        warnings.warn(
            performance_warning()(
                "Host array used in CUDA kernel will incur copy overhead to/from device: "
                f"argument {argument} of {kernel}; copy it once with cuda.to_device"
            ),
            stacklevel=_frames_to_user(),
        )


def _frames_to_user():
    """Return how far up the first frame outside gpuless and contextlib is."""
    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith(("gpuless", "contextlib")):
        frame, level = frame.f_back, level + 1
    return level
