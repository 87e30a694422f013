"""The decorators that the `cpu` backends share; without Numba what they make says so when it is called."""

from gpuless import nvidia

if nvidia.installed("numba"):
    from cnn_numba.ops.shared.compiling import (
        EXACT,
        FASTMATH,
        exact_jit,
        inline_jit,
        inner_jit,
        parallel_jit,
        serial_jit,
    )
else:
    from cnn_numba.ops.shared.uncompiled import (
        EXACT,
        FASTMATH,
        exact_jit,
        inline_jit,
        inner_jit,
        parallel_jit,
        serial_jit,
    )

__all__ = ["EXACT", "FASTMATH", "exact_jit", "inline_jit", "inner_jit", "parallel_jit", "serial_jit"]
