"""`numba_cuda_mlir.types` where kernels run in the simulator: by bits as well as by Numba's names."""

from gpuless.simulator import types as _types
from gpuless.simulator.standin.cuda.types import *

_INTEGERS = (kind for kind in _types.NAMES.values() if isinstance(kind, _types.Integer))
globals().update({f"{kind.name[0]}{kind.bitwidth}": kind for kind in _INTEGERS})
f16, f32, f64 = _types.float16, _types.float32, _types.float64
