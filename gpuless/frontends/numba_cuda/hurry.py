"""Speed-ups of numba-cuda's compiler: repeated work is done once per kernel."""

import re
import threading

#: A function that a module of LLVM IR declares or defines.
_FUNCTION = re.compile(r'^(declare|define)\b[^@\n]*@("[^"\n]*"|[\w.$-]+)', re.M)
#: Prefixes of functions that Numba never links from a file: LLVM's, libdevice's, and the GPU's own.
_BUILT_IN = "llvm.", "__nv_", "vprintf", "__assertfail"


def hurry():
    """Cache what Numba compares, hashes and measures repeatedly.

    Debug metadata hashes everything that it refers to, recursively; Numba changes it only in its last step,
    after all of it has been made. The options of two functions are nearly always set alike. For the size of a
    type, LLVM parses a module with a variable of that type, at each assignment.
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
        same_kind = type(others) is type(options)
        return (same_kind and others._values == options._values) or equal(options, others)

    def size(kind, target, context=None):
        written = str(target), str(kind)
        if context is not None or "%" in written[1]:  # the type is defined elsewhere
            return measured(kind, target, context)
        if written not in sizes:
            sizes[written] = measured(kind, target)
        return sizes[written]

    DIValue.__hash__, TargetConfig.__eq__, Type.get_abi_size = remembered, alike, size


def compile_to_ptx_once():
    """Skip compiling PTX that Numba only searches for functions to link.

    The code that runs is linked from another form. If the LLVM IR names no external function, the PTX
    doesn't either.
    """
    from numba.cuda.codegen import CUDACodeLibrary
    from numba.cuda.dispatcher import _Kernel

    init, get_asm_str, searched = _Kernel.__init__, CUDACodeLibrary.get_asm_str, threading.local()

    def __init__(kernel, *args, **options):
        searched.now = True
        try:
            init(kernel, *args, **options)
        finally:
            searched.now = False

    def text(library, cc=None):
        if getattr(searched, "now", False) and library._lto and not _from_outside(library.llvm_strs):
            return ""
        return get_asm_str(library, cc)

    _Kernel.__init__, CUDACodeLibrary.get_asm_str = __init__, text


def _from_outside(modules):
    """Return the external functions of modules of LLVM IR: declared, but not defined."""
    names = {"declare": set(), "define": set()}
    for kind, name in (found for module in modules for found in _FUNCTION.findall(module)):
        names[kind].add(name.strip('"'))
    return {name for name in names["declare"] - names["define"] if not name.startswith(_BUILT_IN)}
