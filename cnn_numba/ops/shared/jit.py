"""The decorators that the `cpu` backends share; without Numba what they make says so when it is called."""

from gpuless import nvidia

if nvidia.installed("numba"):
    from cnn_numba.ops.shared import compiling as decorators
else:
    from cnn_numba.ops.shared import uncompiled as decorators  # type: ignore[no-redef]

EXACT, FASTMATH = decorators.EXACT, decorators.FASTMATH
serial_jit, parallel_jit = decorators.serial_jit, decorators.parallel_jit
inner_jit, exact_jit, inline_jit = decorators.inner_jit, decorators.exact_jit, decorators.inline_jit
