"""Let numba-cuda-mlir hand its kernels to the emulated GPU, as PTX: what is replaced in it."""

from gpuless.frontends.handover import take_over, taken_over
from gpuless.importing import after_import, is_installed

#: Its driver layer, a copy of numba-cuda's.
_LAYER = "numba_cuda_mlir.numba_cuda"


def install():
    """Let numba-cuda-mlir compile for the emulated GPU, from when it is first imported."""
    after_import("numba_cuda_mlir.cuda", _replace)


def present():
    """Return whether numba-cuda-mlir is installed; what can be imported may be the simulator."""
    return is_installed("numba_cuda_mlir")


def installed():
    """Return whether kernels that this process launches run on the emulated GPU."""
    return taken_over(_LAYER)


def _replace(cuda):
    """Let it hand over PTX, where it would make machine code of it, and look for the driver again."""
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
    """Let its cache on disk hold what is compiled here apart from the machine code of a GPU."""

    def key_and_owner(cache, *arguments):
        return (*index_key(cache, *arguments), "gpuless, strides noted")

    return key_and_owner


def _with_strides(optimize):
    """Let PTX note what the types of arrays say."""
    from gpuless.frontends.numba_cuda_mlir.strides import with_usual_strides

    def optimize_and_say(result):
        optimize(result)
        code = bytes(result.metadata["cubin"]).decode()
        name = result.metadata["func_name"]
        result.metadata["cubin"] = with_usual_strides(code, name, result.signature.args).encode()

    return optimize_and_say


def _remembered(compile_impl):
    """Let it be known from what a kernel was compiled."""
    from gpuless.frontends.numba_cuda_mlir.origins import remember

    def compile_and_remember(dispatcher, *arguments, **options):
        found = compile_impl(dispatcher, *arguments, **options)
        remember(dispatcher, found[0])
        return found

    return compile_and_remember


#: What is said where it was imported without a driver: its launcher looks for one only then.
_TOO_LATE = (
    "numba_cuda_mlir was imported before gpuless.select(), and found no driver: call gpuless.select() first, "
    "or run the program with python -m gpuless"
)


def _refuse_launches():
    """Let a launch be an error, where the launcher has no driver to call and would end the process."""
    from numba_cuda_mlir.descriptor import _ArgMarshaller

    def refuse(marshaller, *arguments):
        raise RuntimeError(_TOO_LATE)

    _ArgMarshaller.__call__ = refuse
