"""Put this simulator in the place of Numba's own.

Numba has two: one in numba-cuda, and an older one inside numba itself, which macOS uses. Both are modules
called `numba.cuda.simulator`, and in both a kernel is a `FakeCUDAKernel`; its methods are replaced, and so is
`cuda.jit`, so that ``kernel[grid, block](...)`` stays plain Numba.

Importing `numba.cuda` takes time, so nothing is imported for this: its first import triggers the change.
"""

import functools
import inspect
import sys

from gpuless.importing import after_import
from gpuless.limits import LaunchError
from gpuless.simulator.kernel import Launch, running_twins
from gpuless.simulator.memory import poison
from gpuless.simulator.namespace import DEVICE_NAMES
from gpuless.simulator.twins import compile_now

_SIMULATOR = "numba.cuda.simulator"
_OPTIONS = frozenset(
    "debug argtypes inline forceinline restype fastmath link boundscheck opt cache lineinfo max_registers "
    "launch_bounds lto extensions shared_memory_carveout abi bind error_model".split()
)


def install():
    """Use this simulator for every kernel: at once if Numba's is there, else as soon as it is imported.

    Without effect where `numba.cuda` is the real one. Calling it again changes nothing.
    """
    if _SIMULATOR in sys.modules:
        for name in {_SIMULATOR, "numba.cuda"} & sys.modules.keys():
            _replace(sys.modules[name])
    else:
        after_import(_SIMULATOR, _replace)


def _replace(cuda):
    """Replace what a module offers: the simulator itself, or the `numba.cuda` that copied its names."""
    if not cuda.jit.__module__.startswith(_SIMULATOR):
        return  # the real one, or ours already
    kernel = sys.modules[f"{_SIMULATOR}.kernel"].FakeCUDAKernel
    kernel.__getitem__, kernel.__call__, kernel.forall = _configure, _call, _forall
    cuda.jit = jit
    cuda.device_array = _poisoned(cuda.device_array)
    cuda.device_array_like = _poisoned(cuda.device_array_like)
    cuda.is_cuda_array = _is_cuda_array
    cuda.as_cuda_array = _as_cuda_array
    for name in DEVICE_NAMES:
        if getattr(cuda, name, None) is None:
            setattr(cuda, name, _DeviceOnly(name))


class _UsedOnHost(LaunchError, AttributeError):
    """Also an AttributeError, so that `hasattr` and `getattr` treat it as missing."""


class _DeviceOnly:
    """Stands for a name that means something only in a kernel, such as `cuda.syncthreads`."""

    def __init__(self, name):
        self.__name__ = name

    def __call__(self, *arguments):
        raise LaunchError(f"cuda.{self.__name__} can only be used in a kernel")

    def __getattr__(self, attribute):
        raise _UsedOnHost(f"cuda.{self.__name__}.{attribute} can only be used in a kernel")


def jit(func_or_sig=None, device=False, **options):
    """Make a kernel or device function; all options of the compiler are accepted and ignored.

    So are signatures, but that one keeps globals as they are now. `boundscheck`, which CUDA does not have, is
    refused, and so is `link`: compiled code cannot be simulated.
    """
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise TypeError(f"cuda.jit has no option {', '.join(unknown)}; it has {', '.join(sorted(_OPTIONS))}")
    if options.get("boundscheck"):
        raise NotImplementedError("bounds checking is not supported for CUDA; sanitize() finds such accesses")
    if options.get("link"):
        raise NotImplementedError("code linked to a kernel cannot be simulated")

    def make(function):
        kernel_type = sys.modules[f"{_SIMULATOR}.kernel"].FakeCUDAKernel
        kernel = kernel_type(
            function,
            device=device,
            fastmath=options.get("fastmath", False),
            extensions=options.get("extensions") or (),
        )
        # Where a real kernel keeps them, for code that compiles this one.
        kernel.targetoptions = {"device": device, **options}
        kernel.signatures = [] if function is given else _listed(given)
        if kernel.signatures:
            compile_now(function)
        return kernel

    # Of what is decorated already, Numba decorates the function.
    given = getattr(func_or_sig, "py_func", func_or_sig)
    return make(given) if inspect.isfunction(given) else make


def _listed(signatures):
    if signatures is None:
        return []
    return signatures if isinstance(signatures, list) else [signatures]


def _configure(kernel, configuration):
    """Return ``kernel[grid, block, stream, dynamic shared bytes]``."""
    if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
        raise LaunchError(
            f"a launch is configured as kernel[grid, block] or kernel[grid, block, stream, shared bytes], "
            f"got [{configuration}]"
        )
    if kernel._device:
        raise LaunchError(f"{kernel.__name__} is a device function: only kernels can call it")
    return Launch(kernel, *configuration)


def _call(kernel, *arguments):
    """Call a device function from a kernel. From the host only a configured launch can be called."""
    twins = running_twins()
    if twins is not None:
        return twins.call(kernel.fn, arguments)
    if kernel._device:
        raise LaunchError(f"{kernel.__name__} is a device function: only kernels can call it")
    raise LaunchError(
        f"kernel {kernel.__name__} needs a grid and a block: {kernel.__name__}[grid, block](...)"
    )


def _forall(kernel, ntasks, tpb=0, stream=0, sharedmem=0):
    """Return a launch of at least `ntasks` threads in one dimension."""
    if ntasks < 0:
        raise LaunchError(f"cannot run {ntasks} tasks")
    if ntasks == 0:
        return lambda *arguments: None
    threads = tpb or 128
    return Launch(kernel, -(-ntasks // threads), threads, stream, sharedmem)


def _poisoned(make):
    """Let a function that makes device arrays return poisoned memory; a GPU's holds anything."""

    @functools.wraps(make)
    def made(*arguments, **options):
        array = make(*arguments, **options)
        array._ary[...] = poison(array._ary.dtype)
        return array

    return made


def _is_cuda_array(obj):
    """Return whether something is in device memory."""
    return getattr(obj, "__cuda_ndarray__", False)


def _as_cuda_array(obj, sync=True):
    """Return a device array as it is; there is no other memory that could be taken for one."""
    if not _is_cuda_array(obj):
        raise TypeError(f"a {type(obj).__name__} is not in device memory: use cuda.to_device")
    return obj
