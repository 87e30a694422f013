"""What a race loses where the threads of a warp run in step, as on a GPU."""

import numpy as np
from numba import cuda

from gpuless.access import ATOMIC, WRITE, record
from gpuless.access.trace import combine
from gpuless.limits import WARP

_LEVELS = 16


def counted_in_step(kernel, digits: np.ndarray) -> int:
    """Return how many pixels a kernel counts, that of `count_kernel`, if each warp runs in step.

    All threads of a warp read a counter before any of them writes it, so of those that write the same one a
    single update is kept. Atomic additions are all kept. (The simulator itself runs a thread after the other,
    and loses none.)
    """
    d_digits, d_counts = cuda.to_device(digits), cuda.to_device(np.zeros(_LEVELS, np.int32))
    trace = record(kernel)[(1, 1, len(digits)), (32, 32, 1)](d_digits, d_counts)
    on_counts = trace.array == 1
    writes, atomics = on_counts & (trace.kind == WRITE), on_counts & (trace.kind == ATOMIC)
    columns = trace.block, trace.thread // WARP, trace.occurrence, trace.site, trace.element
    kept = np.unique(combine(*(column[writes] for column in columns)))
    return len(kept) + int(atomics.sum())
