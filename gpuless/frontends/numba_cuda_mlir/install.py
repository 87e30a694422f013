"""Replacements in numba-cuda-mlir that make it hand its kernels to the emulated GPU, as PTX."""

from gpuless.frontends.handover import take_over, taken_over
from gpuless.importing import after_import, is_installed

#: Its driver layer, a copy of numba-cuda's.
_LAYER = "numba_cuda_mlir.numba_cuda"


def install():
    """Make numba-cuda-mlir compile for the emulated GPU, from its first import on."""
    after_import("numba_cuda_mlir.cuda", _replace)


def present():
    """Return whether numba-cuda-mlir is installed; the importable module may be the simulator."""
    return is_installed("numba_cuda_mlir")


def installed():
    """Return whether kernels that this process launches run on the emulated GPU."""
    return taken_over(_LAYER)


def _replace(cuda):
    """Make it hand over PTX instead of machine code, and look for the driver again."""
    if not take_over(_LAYER):
        return
    from numba_cuda_mlir import _cext, mlir_optimization
    from numba_cuda_mlir.caching import MLIRCache
    from numba_cuda_mlir.descriptor import MLIRDispatcher

    if not _cext.cuda_available:
        _refuse_launches()
    mlir_optimization.optimize = _with_strides(mlir_optimization.optimize)
    MLIRCache._index_key = _of_its_own(MLIRCache._index_key)
    MLIRDispatcher._compile_impl = _remembered(MLIRDispatcher._compile_impl)


def _of_its_own(index_key):
    """Give kernels for the emulated GPU other keys in its disk cache than those for a real one."""

    def key_and_owner(cache, *arguments):
        return (*index_key(cache, *arguments), "gpuless, strides noted")

    return key_and_owner


def _with_strides(optimize):
    """Annotate PTX with the strides that the types of arrays imply."""
    from gpuless.frontends.numba_cuda_mlir.strides import with_usual_strides

    def optimize_and_say(result):
        optimize(result)
        code = bytes(result.metadata["cubin"]).decode()
        name = result.metadata["func_name"]
        result.metadata["cubin"] = with_usual_strides(code, name, result.signature.args).encode()

    return optimize_and_say


def _remembered(compile_impl):
    """Note what a kernel was compiled from."""
    from gpuless.frontends.numba_cuda_mlir.origins import remember

    def compile_and_remember(dispatcher, *arguments, **options):
        found = compile_impl(dispatcher, *arguments, **options)
        remember(dispatcher, found[0])
        return found

    return compile_and_remember


#: The error if it was imported without a driver: its launcher looks for one only at import.
_TOO_LATE = (
    "numba_cuda_mlir was imported before gpuless.select(), and found no driver: call gpuless.select() first, "
    "or run the program with python -m gpuless"
)


def _refuse_launches():
    """Make a launch an error; without a driver, the launcher would end the process."""
    from numba_cuda_mlir.descriptor import _ArgMarshaller

    def refuse(marshaller, *arguments):
        raise RuntimeError(_TOO_LATE)

    _ArgMarshaller.__call__ = refuse
