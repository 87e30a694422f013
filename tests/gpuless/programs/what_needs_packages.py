"""What needs packages that are not installed, by its error."""

import gpuless

gpuless.select()

import numba  # noqa: E402, F401
import numpy as np  # noqa: E402, F401
from numba import cuda  # noqa: E402

from gpuless import inspector  # noqa: E402, F401


@cuda.jit
def k(x):
    x[0] = 1


def attempt(line):
    try:
        exec(line)
    except Exception as error:
        print(type(error).__name__, error, sep=": ")


attempt("from numba import typed")
attempt("import numba.cuda.codegen")
attempt("numba.vectorize([])")
attempt("cuda.compile_ptx(k, ())")
attempt("k.inspect_asm")
attempt('inspector.inspect_kernel(k, "void(float32[:])")')
attempt('gpuless.plot_access(gpuless.access_map(k)[1, 1](np.zeros(1)), "x")')
attempt('gpuless.profile(k[1, 1], "T4")(np.zeros(1))')
attempt("gpuless.count(k)[1, 1](np.zeros(1))")
