"""Compile kernels for real GPUs, in a process of its own: ``python -m gpuless.compiler.worker``.

A process whose `numba.cuda` is the simulator has no compiler, and numba decides that once, at import. So
`gpuless.compiler.jobs` starts this one with the simulator off. It reads one pickled request from its
input and writes one JSON list, a result for each job, to its output. No GPU and no driver are needed.
"""

import functools
import gc
import json
import os
import pickle
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import get_type_hints

from gpuless.limits import SHARED_LIMIT

_USAGE = {
    "registers": r"Used (\d+) registers",
    "shared": r"(\d+) bytes smem",
    "local": r"(\d+) bytes stack frame",
    "spill_stores": r"(\d+) bytes spill stores",
}


class _Device:
    """Stands in for the GPU where numba asks the current one for its compute capability."""

    compute_capability = None


def main():
    """Serve one request."""
    results = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the kernels' modules print when imported must not end up among the results
    request = pickle.load(sys.stdin.buffer)
    sys.path[:] = request["path"]
    with results:
        json.dump(_serve(request["jobs"]), results)


def _serve(jobs):
    missing = _missing()
    if missing:
        return {"missing": missing}
    from cuda.pathfinder import find_nvidia_binary_utility

    _prepare_numba()
    nvdisasm = (
        find_nvidia_binary_utility("nvdisasm") if any(job["listing"] == "SASS" for job in jobs) else None
    )
    with ThreadPoolExecutor(1) as disassembler:
        return [_finish(result) for result in [_attempt(job, nvdisasm, disassembler) for job in jobs]]


def _prepare_numba():
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
    depth. The options of two functions are nearly always set alike.
    """
    from llvmlite.ir.values import DIValue
    from numba.cuda.core.targetconfig import TargetConfig

    hashed, equal = DIValue.__hash__, TargetConfig.__eq__

    def remembered(value):
        if "_remembered" not in vars(value):
            value._remembered = hashed(value)
        return value._remembered

    def alike(options, others):
        return getattr(others, "_values", None) == options._values or equal(options, others)

    DIValue.__hash__, TargetConfig.__eq__ = remembered, alike
    gc.freeze()  # what is imported stays
    gc.set_threshold(100_000)


def _missing():
    """Return what the compiler lacks, "" if it is complete."""
    try:
        from cuda.bindings import nvjitlink, nvvm
        from numba import cuda

        if "numba_cuda" not in cuda.__file__:
            return "numba-cuda is not installed"
        nvvm.version(), nvjitlink.version()
    except Exception as error:
        return (str(error).splitlines() or [type(error).__name__])[0]
    return ""


def _attempt(job, nvdisasm, disassembler):
    try:
        return _compile(job, nvdisasm, disassembler)
    except Exception as error:
        # Anything can go wrong in another's kernel; the others are still wanted.
        return {"error": type(error).__name__, "message": str(error)}


def _finish(result):
    if "sass" in result:
        result["sass"] = result["sass"].result()
    return result


def _compile(job, nvdisasm, disassembler):
    kernel = _kernel(job)
    if kernel.targetoptions.get("device"):
        raise ValueError("a device function has no registers of its own: inspect a kernel that calls it")
    cc = tuple(job["cc"])
    arguments = _arguments(kernel, job["signature"])
    options = _options(kernel, job["options"])
    # From Hopper on numba compiles for the "a" variant of the GPU it runs on.
    target = (*cc, "a") if cc >= (9, 0) else cc
    codes = _ltoir(kernel, arguments, target, options)
    arch = "sm_" + "".join(map(str, target))
    cubin, log = _link(codes, arch, options, "cubin")
    log = log.partition("\ninfo ")[0]  # what follows is about the kernels inside a linked library
    result = {name: int((re.findall(pattern, log) or ["0"])[-1]) for name, pattern in _USAGE.items()}
    if result["shared"] > SHARED_LIMIT:  # from Hopper on the assembler does not mind
        raise _too_much_shared(result["shared"])
    result["arguments"] = [_as_written(argument) for argument in arguments]
    result["launch_bounds"] = options["launch_bounds"]
    if job["listing"] == "SASS" and nvdisasm:
        result["sass"] = disassembler.submit(_disassemble, nvdisasm, cubin)
    elif not job["listing"]:
        result["ptx"] = ""
    else:
        codes = [(kind, code) for kind, code in codes if kind == "LTOIR"]  # no other becomes PTX
        result["ptx"] = _link(codes, arch, options, "ptx")[0].decode().rstrip("\0")
    return result


def _kernel(job):
    """Return a kernel: the one of its module, or the copy of it where the module wants a GPU."""
    for pickled in filter(None, (job["kernel"], job["copy"])):
        try:
            return _unpickled(pickled)
        except Exception as error:
            reason = error
    raise ValueError(f"a module that it uses cannot be imported: {type(reason).__name__}: {reason}")


_unpickled = functools.cache(pickle.loads)  # the same kernel for all GPUs


def _as_written(argument):
    """Return a type as signatures have it, which Numba prints as ``array(float32, 1d, C)``."""
    if not hasattr(argument, "layout"):
        return str(argument)
    axes = [":"] * argument.ndim
    if argument.layout in "CF":
        axes[-1 if argument.layout == "C" else 0] = "::1"
    return f"{argument.dtype}[{', '.join(axes)}]"


def _arguments(kernel, signature):
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


def _options(kernel, asked):
    """Return the compiler's options: those asked for, else those the kernel was decorated with."""
    return {name: kernel.targetoptions.get(name) if value is None else value for name, value in asked.items()}


def _ltoir(kernel, arguments, cc, options):
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


def _link(codes, arch, options, output):
    """Return (cubin or PTX, what the assembler said)."""
    from cuda.bindings import nvjitlink

    flags = [f"-arch={arch}", "-lto", "-lineinfo", "-verbose", "-Xptxas=-v"]
    flags += ["-ptx"] if output == "ptx" else []
    flags += [f"-maxrregcount={options['max_registers']}"] if options["max_registers"] else []
    linker = nvjitlink.create(len(flags), flags)
    try:
        for kind, code in codes:
            nvjitlink.add_data(linker, getattr(nvjitlink.InputType, kind), code, len(code), "kernel")
        nvjitlink.complete(linker)
    except nvjitlink.nvJitLinkError:
        log = _text(linker, nvjitlink.get_error_log_size, nvjitlink.get_error_log)
        shared = re.search(r"uses too much shared data \(0x([0-9a-f]+) bytes", log)
        raise (_too_much_shared(int(shared[1], 16)) if shared else RuntimeError(log)) from None
    size = getattr(nvjitlink, f"get_linked_{output}_size")(linker)
    code = bytearray(size)
    getattr(nvjitlink, f"get_linked_{output}")(linker, code)
    log = _text(linker, nvjitlink.get_info_log_size, nvjitlink.get_info_log)
    nvjitlink.destroy(linker)
    return bytes(code), log


def _too_much_shared(used):
    return ValueError(
        f"its shared arrays take {used} bytes, and a block can have {SHARED_LIMIT} (48 KB): "
        "use a smaller tile"
    )


def _text(linker, get_size, get_text):
    text = bytearray(get_size(linker))
    get_text(linker, text)
    return text.decode(errors="replace").rstrip("\0")


def _disassemble(nvdisasm, cubin):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        command = [nvdisasm, "--emit-json", "--print-line-info", "--print-code", "--no-dataflow", str(path)]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


if __name__ == "__main__":
    main()
