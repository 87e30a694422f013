"""numba-cuda's compiler without a GPU: what is replaced in it, and kernels as code for NVIDIA's linker.

For a process of its own, `gpuless.compiler.worker`: what is replaced here stays so.
"""

import gc
from pathlib import Path
from typing import get_type_hints


class _Device:
    """Stands in for the GPU where numba asks the current one for its compute capability."""

    compute_capability = None


def prepare():
    """Make numba compile with line numbers and without a GPU, everything that it can launch with one."""
    from numba.cuda import codegen, compiler, dispatcher
    from numba.cuda.cudadrv.libs import get_cudalib

    compile_ir = codegen.nvvm.compile_ir

    def linkable(modules, **options):
        # numba writes this flag as a wish (2), the compiler of float16's functions as a must (1), and the two
        # do not link.
        flag = 'i32 {}, !"Debug Info Version"'
        return compile_ir([ir.replace(flag.format(2), flag.format(1)) for ir in modules], **options)

    codegen.nvvm.compile_ir = linkable
    # Kernels that call device functions ask for the current GPU.
    dispatcher.get_current_device = lambda: _Device
    compile_device = dispatcher.CUDADispatcher.compile_device

    def with_lines(function, *arguments):
        function.targetoptions["lineinfo"] = True
        return compile_device(function, *arguments)

    dispatcher.CUDADispatcher.compile_device = with_lines
    compile_function = compiler._compile_pyfunc_with_fixup

    def with_helpers(*arguments, **options):
        # What numba links before a launch, and `compile_all` forgets.
        library, returned = compile_function(*arguments, **options)
        if any(name in library.get_llvm_str() for name in dispatcher.reshape_funcs):
            library.add_linking_file(str(Path(dispatcher.__file__).with_name("reshape_funcs.cu")))
        if library.use_cooperative:
            library.add_linking_file(get_cudalib("cudadevrt", static=True))
        return library, returned

    _hurry()
    found = {}

    def for_every_gpu(*arguments, cc, **options):
        # Types and LLVM IR, six sevenths of the work, are the same for all: only below 7.5 does numba ask.
        key = arguments, repr(options)
        if key not in found:
            found[key] = with_helpers(*arguments, cc=cc, **options)
        return found[key]

    compiler._compile_pyfunc_with_fixup = for_every_gpu


def _hurry():
    """Spare Numba a quarter of its time: comparing and hashing the same again and again, and garbage.

    A description for the debugger is never changed once it is made, and hashes all that it refers to, to any
    depth. The options of two functions are nearly always set alike. For the size of a type LLVM reads a
    module with a variable of that type, at each assignment.
    """
    from llvmlite.ir.types import Type
    from llvmlite.ir.values import DIValue
    from numba.cuda.core.targetconfig import TargetConfig

    hashed, equal, measured = DIValue.__hash__, TargetConfig.__eq__, Type.get_abi_size
    sizes = {}

    def remembered(value):
        if "_remembered" not in vars(value):
            value._remembered = hashed(value)
        return value._remembered

    def alike(options, others):
        return getattr(others, "_values", None) == options._values or equal(options, others)

    def size(kind, target, context=None):
        written = str(target), str(kind)
        if context is not None or "%" in written[1]:  # a type that is defined elsewhere
            return measured(kind, target, context)
        if written not in sizes:
            sizes[written] = measured(kind, target)
        return sizes[written]

    DIValue.__hash__, TargetConfig.__eq__, Type.get_abi_size = remembered, alike, size
    gc.freeze()  # what is imported stays
    gc.set_threshold(100_000)


def as_written(argument):
    """Return a type as signatures have it, which Numba prints as ``array(float32, 1d, C)``."""
    if not hasattr(argument, "layout"):
        return str(argument)
    axes = [":"] * argument.ndim
    if argument.layout in "CF":
        axes[-1 if argument.layout == "C" else 0] = "::1"
    return f"{argument.dtype}[{', '.join(axes)}]"


def arguments_of(kernel, signature):
    """Return the types of a signature given as text or as types, checked against the kernel."""
    from numba.cuda.core import sigutils

    names = kernel.py_func.__code__.co_varnames[: kernel.py_func.__code__.co_argcount]
    try:
        arguments, returned = sigutils.normalize_signature(_types(kernel, signature))
    except Exception as error:
        raise ValueError(f"the signature {signature!r} cannot be read: {error}") from None
    if returned is not None and str(returned) not in ("none", "void"):
        raise ValueError(f"a kernel returns nothing: write void(...) instead of {signature!r}")
    if len(arguments) != len(names):
        raise ValueError(
            f"the kernel takes {len(names)} arguments ({', '.join(names)}), "
            f"the signature has {len(arguments)}: {signature}"
        )
    return arguments


def _types(kernel, signature):
    """Return a signature whose text may name a NamedTuple, one that annotates a parameter of the kernel."""
    if not isinstance(signature, str):
        return signature
    from numba.cuda import types

    annotations = get_type_hints(kernel.py_func).values()
    tuples = {kind.__name__: _tuple_type(kind) for kind in annotations if hasattr(kind, "_fields")}
    return eval(signature, {}, {**vars(types), **tuples})


def _tuple_type(kind):
    """Return Numba's type of a NamedTuple whose fields are numbers, as they are annotated."""
    from numba import typeof

    return typeof(kind(*(field() for field in get_type_hints(kind).values())))


def ltoir(kernel, arguments, cc, options):
    """Return a kernel for one compute capability, and what it is linked with: pieces as (kind, bytes)."""
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
    if hasattr(code, "kind"):  # a file the kernel was linked with
        return "ANY", code.data
    # CUDA C++ that came with a type, such as float16's functions, is an object with its code inside.
    return "LTOIR", bytes(getattr(code, "code", code))
