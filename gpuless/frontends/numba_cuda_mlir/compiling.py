"""numba-cuda-mlir's compiler without a GPU, which returns kernels as code for NVIDIA's linker.

The replacements of `prepare` are permanent: they are meant for the process of `gpuless.compiler.worker`.
"""

import sys
from types import SimpleNamespace

from gpuless.frontends import signatures
from gpuless.importing import after_import

PACKAGE = "numba_cuda_mlir"
#: NVIDIA's linker's names for this compiler's kinds of code.
_KINDS = {"ltoir": "LTOIR", "ptx": "PTX", "cubin": "CUBIN", "fatbin": "FATBIN", "object": "OBJECT"}


def kernel_types():
    """Return the classes of kernels, none if this compiler has not been imported."""
    descriptor = sys.modules.get("numba_cuda_mlir.descriptor")
    return (descriptor.MLIRDispatcher,) if descriptor else ()


def types_of(arguments):
    """Return the types of arguments."""
    from numba_cuda_mlir.numba_cuda.typing.typeof import typeof

    return tuple(map(typeof, arguments))


def launch_of(value):
    """Return the `Launch` of a ``kernel[grid, block]``, None for anything else."""
    descriptor = sys.modules.get("numba_cuda_mlir.descriptor")
    if descriptor is None or not isinstance(value, descriptor._ArgMarshaller):
        return None
    given = value._available_launch_config
    return signatures.Launch(value._dispatcher, given["grid"], given["block"], given["sharedmem"] or 0)


def prepare():
    """Make the compiler hand over what it would link, and ask no GPU, from its first import on."""
    after_import("numba_cuda_mlir.cuda", _replace)


def _replace(cuda):
    from numba_cuda_mlir import tools
    from numba_cuda_mlir.numba_cuda.cudadrv.driver import _Linker

    def pieces(linker):
        linker._materialize_pending_cu()
        codes = [(code.code_type, code.code) for code in linker._object_codes if code.code_type in _KINDS]
        return SimpleNamespace(code=[(_KINDS[kind], bytes(code)) for kind, code in codes])

    _Linker.complete = pieces
    tools._cached_cc = (7, 5)  # the lowest: for a higher one it would compile for that


def arguments_of(kernel, signature):
    """Return the argument types of a signature, given as text or as types; check them against the kernel."""
    from numba_cuda_mlir import types
    from numba_cuda_mlir.numba_cuda.core import sigutils
    from numba_cuda_mlir.numba_cuda.typing.typeof import typeof

    compiler = SimpleNamespace(sigutils=sigutils, types=types, typeof=typeof)
    return signatures.arguments_of(kernel, signature, compiler)


def codes_of(kernel, arguments, cc, options):
    """Compile a kernel for a compute capability; return it and the code to link with it, as (kind, bytes)."""
    from numba_cuda_mlir import types, typing
    from numba_cuda_mlir.descriptor import MLIRDispatcher

    chip = "sm_" + "".join(map(str, cc))
    given = {name: value for name, value in options.items() if value is not None}
    given |= {"chip": chip, "lineinfo": True, "lto": False, "_lto_explicit": True}
    compiled = MLIRDispatcher(kernel.py_func, kernel.targetoptions | given).compile(
        typing.signature(types.none, *arguments), output="ptx"
    )
    return compiled.metadata["cubin"]
