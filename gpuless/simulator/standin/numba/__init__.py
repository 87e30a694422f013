"""`numba` if Numba isn't installed: the names that modules with kernels import.

Nothing is compiled for the host: functions with `njit` and `jit` run as Python, as in Numba with
NUMBA_DISABLE_JIT=1. In kernels, they are device functions.
"""

from gpuless.simulator import numba_errors as _errors, types as _types
from gpuless.simulator.host import literal_unroll
from gpuless.simulator.host_jit import jit, njit
from gpuless.simulator.inert import needs_numba as _needs_numba
from gpuless.simulator.types import from_dtype, typeof

from . import core, extending, types
from .core import config, errors

__version__ = "0.0+gpuless"
prange = range

globals().update({name: each for name, each in vars(_errors).items() if isinstance(each, type)})
globals().update({name: kind for name, kind in _types.NAMES.items() if name not in ("f2", "float16")})
for _name in ("carray", "cfunc", "farray", "guvectorize", "jit_module", "stencil", "vectorize"):
    globals()[_name] = _needs_numba(f"numba.{_name}")


def get_num_threads():
    """Return the number of threads of `prange`."""
    return 1


def set_num_threads(n):
    """Do nothing: `prange` has one thread."""
