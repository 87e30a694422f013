"""Let numba-cuda hand its kernels to the emulated GPU, as PTX: what is replaced in it."""

import ctypes
import sys
import threading
import weakref

import numpy as np

from gpuless.emulator.install import lack_of_compiler, load_driver
from gpuless.importing import after_import


def install():
    """Let numba-cuda compile for the emulated GPU, from when it is first imported."""
    after_import("numba.cuda", _replace)


def installed():
    """Return whether kernels that this process launches run on the emulated GPU."""
    linker = getattr(sys.modules.get("numba.cuda.cudadrv.driver"), "_Linker", None)
    return getattr(linker, "complete", None) is _link_to_ptx


def simulated():
    """Return whether the `numba.cuda` that has been imported is Numba's simulator."""
    config = sys.modules.get("numba.cuda.core.config") or sys.modules["numba"].config
    return bool(config.ENABLE_CUDASIM)


def _replace(cuda):
    """Let Numba hand over PTX, where it would make machine code of it, and look for the driver again."""
    if lack := lack_of_compiler():
        raise ImportError(f"there is no emulated GPU: {lack}, or set GPULESS=simulator")
    load_driver()
    from numba.cuda import codegen, dispatcher
    from numba.cuda.core import config
    from numba.cuda.cudadrv.devicearray import DeviceNDArrayBase
    from numba.cuda.cudadrv.driver import _Linker, driver
    from numba.cuda.dispatcher import CUDADispatcher

    if _Linker.complete is _link_to_ptx:
        return
    _Linker.complete = _link_to_ptx
    DeviceNDArrayBase._ary = property(_as_ndarray)
    CUDADispatcher.__init__ = _with_overloads(CUDADispatcher.__init__)
    CUDADispatcher.compile_device = _taken(CUDADispatcher.compile_device)
    codegen.CUDACodeLibrary.get_cubin = _without_machine_code(codegen.CUDACodeLibrary.get_cubin)
    codegen.CUDACodeLibrary.get_cufunc = _one_at_a_time(codegen.CUDACodeLibrary.get_cufunc)
    dispatcher.CUDADispatcher.add_overload = _remembered(dispatcher.CUDADispatcher.add_overload)
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # there is no GPU that a small grid leaves idle
    if driver.initialization_error and not config.DISABLE_CUDA:  # imported before, when there was none
        driver.is_initialized, driver.initialization_error = False, None


def _with_overloads(init):
    """Let a dispatcher look for its kernels on disk."""

    def __init__(dispatcher, *args, **options):
        from gpuless.frontends.numba_cuda.overloads import Overloads

        init(dispatcher, *args, **options)
        dispatcher._cache = Overloads(dispatcher)

    return __init__


def _taken(compile_device):
    """Let it be known with which values of globals a function was compiled."""

    def compile_once(dispatcher, args, return_type=None):
        from gpuless.frontends.numba_cuda import overloads

        if args not in dispatcher.overloads:
            overloads.take(dispatcher)
        return compile_device(dispatcher, args, return_type)

    return compile_once


def _as_ndarray(array):
    """Return the elements of a device array where they are, for tools that step a kernel in Python."""
    if array.size == 0:
        return np.empty(array.shape, array.dtype)
    address = array.device_ctypes_pointer.value
    memory = _memory_around(address, array)
    return np.ndarray(array.shape, array.dtype, memory, address - memory.ctypes.data, array.strides)


#: By address: views of an array are to be views of one ndarray.
_memories = weakref.WeakValueDictionary()


def _memory_around(address, array):
    """Return the bytes of the allocation that an array lies in."""
    from gpuless.emulator.driver.device import device

    start, size = device().arena.find(address) or (address, array.nbytes)  # else somebody else's
    memory = _memories.get(start)
    if memory is None:
        buffer = (ctypes.c_char * size).from_address(start)
        buffer.owner = array  # whose memory must not go
        memory = _memories[start] = np.frombuffer(buffer, np.uint8)
    return memory


def _without_machine_code(get_cubin):
    """Let Numba link anew what its cache on disk has as the machine code of a GPU."""
    from gpuless.frontends.numba_cuda.origins import remember_code

    def get_code(library, cc=None):
        cc = library._ensure_cc(cc)
        known = library._cubin_cache.get(cc)
        if known is not None and known.code_type != "ptx":
            del library._cubin_cache[cc]
        code = get_cubin(library, cc)
        remember_code(library, code.code.decode())
        return code

    return get_code


def _one_at_a_time(get_cufunc):
    """Let a thread that launches a kernel wait while another loads it: Numba refuses to load it twice."""
    lock = threading.RLock()

    def get_function(library):
        with lock:
            return get_cufunc(library)

    return get_function


def _remembered(add_overload):
    """Let it be known from what a kernel was compiled."""
    from gpuless.frontends.numba_cuda.origins import remember_types

    def add(dispatcher, kernel, types):
        remember_types(kernel._codelibrary, dispatcher, types)
        return add_overload(dispatcher, kernel, types)

    return add


#: Its functions are the emulator's own.
_PROVIDED = "libcudadevrt.a"


def _link_to_ptx(linker):
    """Finish a link with PTX, where Numba would have the machine code of a GPU."""
    from cuda.core import ObjectCode
    from numba.cuda.cudadrv.driver import Linker, LinkerError

    from gpuless.emulator.driver.linking import join
    from gpuless.emulator.driver.options import bounded

    codes = [code for code in linker._object_codes if code.name != _PROVIDED]
    pieces = [code.code.decode() for code in codes if code.code_type == "ptx"]
    rest = [code for code in codes if code.code_type != "ptx"]
    linker._info_log = linker._error_log = ""
    if rest:
        if not linker._has_ltoir:
            kinds = ", ".join(sorted({f"{code.name} ({code.code_type})" for code in rest}))
            raise LinkerError(f"the emulated GPU runs PTX and links no machine code: {kinds}")
        linker.linker = Linker(*rest, options=linker._get_linker_options(ptx=True))
        pieces.insert(0, linker.linker.link("ptx").code.decode())
        linker.close()
    else:
        linker.linker = codes
    linker._complete = True
    bounds = {"maxnreg": linker.max_registers} if linker.max_registers else {}
    return ObjectCode.from_ptx(bounded(join(pieces), **bounds).encode() + b"\0")
