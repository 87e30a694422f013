"""numba-cuda's compiler without a GPU, which returns kernels as code for NVIDIA's linker.

The replacements of `prepare` are permanent: they are meant for the process of `gpuless.compiler.worker`.
"""

import functools
import gc
from pathlib import Path
from types import SimpleNamespace

from gpuless.frontends import signatures
from gpuless.frontends.numba_cuda.hurry import hurry
from gpuless.frontends.numba_cuda.inlined import tell_inlined_places

PACKAGE = "numba"


@functools.cache
def kernel_types():
    """Return the classes of kernels in this process, which may have the simulator."""
    from numba import cuda

    return (type(cuda.jit(device=True)(lambda: None)),)


def types_of(arguments):
    """Return the types of arguments."""
    from numba import typeof

    return tuple(map(typeof, arguments))


def launch_of(value):
    """Return the `Launch` of a ``kernel[grid, block]``, None for anything else."""
    if not hasattr(value, "dispatcher") or not hasattr(value, "griddim"):
        return None
    return signatures.Launch(value.dispatcher, value.griddim, value.blockdim, value.sharedmem)


class _Device:
    """Stands in for the current GPU when numba asks for its compute capability."""

    compute_capability = None


def prepare():
    """Make numba compile with line numbers and without a GPU all kernels that it could launch with one."""
    from numba.cuda import codegen, compiler, dispatcher
    from numba.cuda.cudadrv.libs import get_cudalib

    tell_inlined_places()
    compile_ir = codegen.nvvm.compile_ir

    def linkable(modules, **options):
        # numba sets this flag's behaviour to warning (2), the compiler of float16's functions to error (1);
        # the two do not link.
        flag = 'i32 {}, !"Debug Info Version"'
        return compile_ir([ir.replace(flag.format(2), flag.format(1)) for ir in modules], **options)

    codegen.nvvm.compile_ir = linkable
    # For kernels that call device functions, numba asks for the current GPU.
    dispatcher.get_current_device = lambda: _Device
    compile_device = dispatcher.CUDADispatcher.compile_device

    def with_lines(function, *arguments):
        function.targetoptions["lineinfo"] = True
        return compile_device(function, *arguments)

    dispatcher.CUDADispatcher.compile_device = with_lines
    compile_function = compiler._compile_pyfunc_with_fixup

    def with_helpers(*arguments, **options):
        # numba links these before a launch, but not in `compile_all`.
        library, returned = compile_function(*arguments, **options)
        if any(name in library.get_llvm_str() for name in dispatcher.reshape_funcs):
            library.add_linking_file(str(Path(dispatcher.__file__).with_name("reshape_funcs.cu")))
        if library.use_cooperative:
            library.add_linking_file(get_cudalib("cudadevrt", static=True))
        return library, returned

    hurry()
    gc.freeze()  # imported modules stay
    gc.set_threshold(100_000)
    found = {}

    def for_every_gpu(*arguments, cc, **options):
        # Types and LLVM IR, six sevenths of the work, are the same for all GPUs from 7.5 on.
        key = arguments, repr(options)
        if key not in found:
            found[key] = with_helpers(*arguments, cc=cc, **options)
        return found[key]

    compiler._compile_pyfunc_with_fixup = for_every_gpu


def arguments_of(kernel, signature):
    """Return the argument types of a signature, given as text or as types; check them against the kernel."""
    from numba import typeof
    from numba.cuda import types
    from numba.cuda.core import sigutils

    compiler = SimpleNamespace(sigutils=sigutils, types=types, typeof=typeof)
    return signatures.arguments_of(kernel, signature, compiler)


def codes_of(kernel, arguments, cc, options):
    """Compile a kernel for a compute capability; return it and the code to link with it, as (kind, bytes)."""
    from numba import cuda

    _Device.compute_capability = cc[:2]
    codes, _ = cuda.compile_all(
        kernel.py_func,
        arguments,
        cc=cc,
        device=False,
        abi="numba",
        output="ltoir",
        lineinfo=True,
        fastmath=options["fastmath"] or False,
        launch_bounds=options["launch_bounds"],
    )
    return [_linkable(code) for code in codes]


def _linkable(code):
    """Return a piece of compiled code as (kind, bytes)."""
    if hasattr(code, "kind"):  # a file to link
        return "ANY", code.data
    # CUDA C++ of a type, such as float16's functions, is an object that contains its code.
    return "LTOIR", bytes(getattr(code, "code", code))
