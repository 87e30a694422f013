"""`numba.cuda` where kernels run in the simulator; `numba_cuda_mlir.cuda` is this file as well."""

from gpuless.simulator import lacking as _lacking, types as _types
from gpuless.simulator.devicearrays import *
from gpuless.simulator.host import *
from gpuless.simulator.intrinsics import Dim3, vector_types as _vector_types
from gpuless.simulator.jit import jit
from gpuless.simulator.lacking import declare_device
from gpuless.simulator.namespace import DEVICE_NAMES as _DEVICE_NAMES

from . import core, cudadrv, errors, extending, types
from .core import config
from .cudadrv import devicearray, devices, driver, nvvm
from .cudadrv.error import CudaSupportError
from .errors import KernelRuntimeError

HAS_NUMBA = True
dim3, grid_group = _types.dim3, _types.grid_group
GridGroup = _types.Opaque

globals().update({name: kind for name, kind in _types.NAMES.items() if name not in ("f2", "float16")})
globals().update(_vector_types())
# C's long has the size of a long long in Numba, whatever it has on this machine.
_LONGS = [f"{sign}long" for sign in ("", "u")]
globals().update(
    {f"{long}{size}": globals()[f"{long}long{size}"] for long in _LONGS for size in (1, 2, 3, 4)}
)
for _name in _DEVICE_NAMES:
    globals().setdefault(_name, _lacking.DeviceOnly(_name))
_COMPILERS = "compile compile_all compile_for_current_device compile_ptx compile_ptx_for_current_device"
for _name in (*_COMPILERS.split(), "vectorize", "guvectorize", "open_ipc_array", "set_memory_manager"):
    globals()[_name] = _lacking.NeedsCompiler(f"cuda.{_name}")


def __getattr__(name):
    # The message names Numba's module, whatever the name of this file.
    raise AttributeError(f"module 'numba.cuda' has no attribute '{name}'")
