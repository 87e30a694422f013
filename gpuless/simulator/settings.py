"""The settings of Numba that matter in the simulator: from the environment, and writable."""

import os

__all__ = [
    *("CUDA_LOW_OCCUPANCY_WARNINGS", "CUDA_WARN_ON_IMPLICIT_COPY", "DISABLE_CUDA", "DISABLE_JIT"),
    *("DISABLE_PERFORMANCE_WARNINGS", "ENABLE_CUDASIM", "NUMBA_NUM_THREADS"),
]


def _number(name, default):
    text = os.environ.get(f"NUMBA_{name}", "").strip()
    return int(text) if text.lstrip("-").isdigit() else default


CUDA_LOW_OCCUPANCY_WARNINGS = _number("CUDA_LOW_OCCUPANCY_WARNINGS", 1)
CUDA_WARN_ON_IMPLICIT_COPY = _number("CUDA_WARN_ON_IMPLICIT_COPY", 1)
DISABLE_PERFORMANCE_WARNINGS = _number("DISABLE_PERFORMANCE_WARNINGS", 0)
NUMBA_NUM_THREADS = 1
DISABLE_CUDA, DISABLE_JIT, ENABLE_CUDASIM = 0, 1, 1
