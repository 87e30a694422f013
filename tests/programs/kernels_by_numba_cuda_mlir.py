"""A product on the Tensor Cores and an activation, with `CNN_NUMBA_COMPILER=mlir`."""

import sys

sys.modules["torch"] = None  # numba-cuda-mlir imports it if installed, which takes as long as these kernels

import numpy as np  # noqa: E402

from benchmarks.rungs.matmul_tensor import matmul_tf32  # noqa: E402
from cnn_numba import device  # noqa: E402
from cnn_numba.device import compiler  # noqa: E402
from cnn_numba.ops.activation.gpu import relu_forward  # noqa: E402

print(compiler.cuda.__name__, compiler.float32 is compiler.types.float32)
print(device.facts()["numba-cuda-mlir"] != "not installed", "numba.cuda" in sys.modules)
a, b = (np.arange(n, dtype=np.float32).reshape(shape) % 7 - 3 for n, shape in ((160, (20, 8)), (64, (8, 8))))
product = device.to_host(matmul_tf32(device.to_device(a), device.to_device(b)))
print(device.COMPILER, bool((product == a @ b).all()))
print(bool((device.to_host(relu_forward(device.to_device(a))) == np.maximum(a, 0)).all()))
