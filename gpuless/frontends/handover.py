"""The parts that numba-cuda and numba-cuda-mlir share: linker, device arrays and driver.

numba-cuda-mlir's driver layer began as a copy of numba-cuda's, with the same names.
"""

import ctypes
import importlib
import sys
import weakref

import numpy as np

from gpuless.emulator.install import lack_of_compiler, load_driver

#: The emulator provides the functions of this library.
_PROVIDED = "libcudadevrt.a"


def take_over(package):
    """Make a compiler's driver layer hand over PTX, and look for the driver again.

    `package`: of the layer, such as ``numba.cuda``. Returns False if that was done before. Raises ImportError
    if NVIDIA's compiler is not installed.
    """
    if lack := lack_of_compiler():
        raise ImportError(f"there is no emulated GPU: {lack}, or set GPULESS=simulator")
    load_driver()
    layer = importlib.import_module(f"{package}.cudadrv.driver")
    if taken_over(package):
        return False
    config = importlib.import_module(f"{package}.core.config")
    layer._Linker.complete = _link_to_ptx
    importlib.import_module(f"{package}.cudadrv.devicearray").DeviceNDArrayBase._ary = property(_as_ndarray)
    config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # small grids leave no GPU idle here
    driver = layer.driver
    if driver.initialization_error and not config.DISABLE_CUDA:  # it was imported when there was no driver
        driver.is_initialized, driver.initialization_error = False, None
    return True


def taken_over(package):
    """Return whether a driver layer hands its kernels to the emulated GPU."""
    linker = getattr(sys.modules.get(f"{package}.cudadrv.driver"), "_Linker", None)
    return getattr(linker, "complete", None) is _link_to_ptx


def _as_ndarray(array):
    """Return a NumPy view of a device array, for tools that run a kernel in Python."""
    if array.size == 0:
        return np.empty(array.shape, array.dtype)
    address = array.device_ctypes_pointer.value
    memory = _memory_around(address, array)
    return np.ndarray(array.shape, array.dtype, memory, address - memory.ctypes.data, array.strides)


#: By address, so that views of an array are views of the same ndarray.
_memories = weakref.WeakValueDictionary()


def _memory_around(address, array):
    """Return the bytes of the allocation that contains an array."""
    from gpuless.emulator.driver.device import device

    start, size = device().arena.find(address) or (address, array.nbytes)  # the latter if allocated elsewhere
    memory = _memories.get(start)
    if memory is None:
        buffer = (ctypes.c_char * size).from_address(start)
        buffer.owner = array  # keeps its memory alive
        memory = _memories[start] = np.frombuffer(buffer, np.uint8)
    return memory


def _link_to_ptx(linker):
    """Finish a link with PTX instead of machine code."""
    from cuda.bindings.nvjitlink import nvJitLinkError
    from cuda.core import Linker, ObjectCode

    from gpuless.emulator.driver.linking import join
    from gpuless.emulator.driver.options import bounded

    if hasattr(linker, "_materialize_pending_cu"):  # numba-cuda-mlir compiles CUDA C++ only now
        linker._materialize_pending_cu()
    codes = [code for code in linker._object_codes if code.name != _PROVIDED]
    pieces = [code.code.decode() for code in codes if code.code_type == "ptx"]
    rest = [code for code in codes if code.code_type != "ptx"]
    linker._info_log = linker._error_log = ""
    if rest:
        # A file of machine code may also contain LTO-IR.
        others = sorted({f"{code.name} ({code.code_type})" for code in rest if code.code_type != "ltoir"})
        refused = f"the emulated GPU runs PTX and links no machine code: {', '.join(others)}"
        if not linker._has_ltoir:
            raise _error_of(linker)(refused)
        try:
            linker.linker = Linker(*rest, options=linker._get_linker_options(ptx=True))
            pieces.insert(0, linker.linker.link("ptx").code.decode())
        except nvJitLinkError:
            if others:
                raise _error_of(linker)(refused) from None
            raise
        linker.close()
    else:
        linker.linker = codes
    linker._complete = True
    bounds = {"maxnreg": linker.max_registers} if linker.max_registers else {}
    return ObjectCode.from_ptx(bounded(join(pieces), **bounds).encode() + b"\0")


def _error_of(linker):
    """Return the error that a compiler raises if it cannot link."""
    layer = next(kind.__module__ for kind in type(linker).__mro__ if kind.__name__ == "_Linker")
    return sys.modules[layer].LinkerError
