"""What needs a compiler, by its error."""

import gpuless

gpuless.select()

import numba  # noqa: E402, F401
from numba import cuda  # noqa: E402, F401


def attempt(line):
    try:
        exec(line)
    except Exception as error:
        print(type(error).__name__, error, sep=": ")


attempt('numba.vectorize(["f4(f4)"], target="cuda")(abs)')
attempt('numba.guvectorize(["void(f4[:], f4[:])"], "(n)->(n)", target="cuda")(abs)')
attempt("from numba.cuda import libdevice")
attempt("cuda.vectorize([])")
attempt("cuda.jit(attempt).inspect_asm")
