"""``@cuda.jit`` in the simulator: kernels and device functions that run as Python."""

import functools
import inspect

from gpuless.limits import LaunchError
from gpuless.simulator.conversion import conversion
from gpuless.simulator.kernel import Launch, configuration_of, running_twins, unconfigured
from gpuless.simulator.lacking import needs_compiler
from gpuless.simulator.twins import compile_now

_OPTIONS = frozenset(
    "debug argtypes inline forceinline restype fastmath link boundscheck opt cache lineinfo max_registers "
    "launch_bounds lto extensions shared_memory_carveout abi bind error_model".split()
)


def jit(func_or_sig=None, device=False, **options):
    """Make a kernel or device function; all the compiler's options are accepted, and most are ignored.

    With a signature, globals keep their present values and numbers are converted. `boundscheck`, which CUDA
    lacks, is refused, and so is `link`, as compiled code cannot be simulated.
    """
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise TypeError(f"cuda.jit has no option {', '.join(unknown)}; it has {', '.join(sorted(_OPTIONS))}")
    if options.get("boundscheck"):
        raise NotImplementedError("bounds checking is not supported for CUDA; sanitize() finds such accesses")
    if options.get("link"):
        raise NotImplementedError("code linked to a kernel cannot be simulated")

    def make(function):
        kernel = Kernel(function, device, options)
        kernel.signatures = [] if function is given else _listed(given)
        if kernel.signatures:
            kernel.conversion = conversion(kernel.signatures)
            compile_now(kernel)
        return kernel

    # Like Numba, decorate the function of something already decorated.
    given = getattr(func_or_sig, "py_func", func_or_sig)
    return make(given) if inspect.isfunction(given) else make


def _listed(signatures):
    if signatures is None:
        return []
    return signatures if isinstance(signatures, list) else [signatures]


class Kernel:
    """A kernel or a device function; `py_func` is its Python function.

    `targetoptions` and `signatures` have the names of a compiled kernel's, for code that compiles this one.
    """

    def __init__(self, function, device, options):
        functools.update_wrapper(self, function)
        self.py_func, self._device = function, device
        self.extensions = list(options.get("extensions") or ())
        self.targetoptions, self.signatures = {"device": device, **options}, []
        self.conversion = None

    def __repr__(self):
        return f"<{'device function' if self._device else 'kernel'} {self.__name__} in the simulator>"

    def __getitem__(self, configuration):
        """Return ``kernel[grid, block, stream, dynamic shared bytes]``."""
        configuration = configuration_of(configuration)
        if self._device:
            raise LaunchError(f"{self.__name__} is a device function: only kernels can call it")
        return Configured(self, *configuration)

    def configure(self, griddim, blockdim, stream=0, sharedmem=0):
        """Return ``kernel[grid, block, stream, dynamic shared bytes]``."""
        return self[griddim, blockdim, stream, sharedmem]

    def __call__(self, *arguments):
        """Call a device function from a kernel; from the host, raise LaunchError."""
        twins = running_twins()
        if twins is not None:
            return twins.call(self, arguments)
        if self._device:
            raise LaunchError(f"{self.__name__} is a device function: only kernels can call it")
        raise unconfigured(self.__name__)

    def forall(self, ntasks, tpb=0, stream=0, sharedmem=0):
        """Return a launch of at least `ntasks` threads in one dimension."""
        if ntasks < 0:
            raise LaunchError(f"cannot run {ntasks} tasks")
        if ntasks == 0:
            return lambda *arguments: None
        threads = tpb or 128
        return Configured(self, -(-ntasks // threads), threads, stream, sharedmem)

    def bind(self):
        """Compile nothing."""

    def specialize(self, *arguments):
        """Return the kernel, which takes arguments of these types too."""
        return self

    @property
    def overloads(self):
        """The compiled versions by types of arguments: here one object for all types."""
        return _Overloads()

    def __getattr__(self, name):
        if name.startswith(("inspect_", "get_", "compile")):
            raise AttributeError(f"{name} of kernel {self.__name__} {needs_compiler()}")
        raise AttributeError(f"a kernel has no attribute '{name}'")


class Configured(Launch):
    """A launch, with the attributes of a compiled kernel's."""

    dispatcher = property(lambda self: self.kernel)
    griddim = property(lambda self: self.grid)
    blockdim = property(lambda self: self.block)
    sharedmem = property(lambda self: self.dynamic_bytes)


class _Overloads(dict):
    def __missing__(self, types):
        return self

    def max_cooperative_grid_blocks(self, blockdim, dynsmemsize=0):
        """Return how many blocks can wait for each other: the simulator runs one after another."""
        return 1
