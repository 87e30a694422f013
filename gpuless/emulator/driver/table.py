"""The table of the driver's functions, and how calls reach Python.

The modules of this package register a Python function for each of the driver's, with the types of its
arguments as letters. It gets numbers, writes results to the addresses among them, and raises `DriverError`.
"""

import ctypes
import itertools
import os
import re
import signal
import sys
import threading
import traceback
from types import SimpleNamespace

from gpuless.emulator.driver import guards, stub
from gpuless.emulator.driver.errors import DriverError, Result
from gpuless.emulator.run.faults import Fault

_TYPES = {"p": ctypes.c_void_p, "i": ctypes.c_int, "u": ctypes.c_uint, "z": ctypes.c_uint64}
_TYPES |= {"c": ctypes.c_char_p, "b": ctypes.c_ubyte, "h": ctypes.c_ushort}

_FAULTS = {"address": Result.ILLEGAL_ADDRESS, "misaligned": Result.MISALIGNED_ADDRESS}
_FAULTS |= dict.fromkeys(("barrier", "stopped", "limit"), Result.LAUNCH_TIMEOUT)
_FAULTS |= dict.fromkeys(("arithmetic", "trap", "stack"), Result.LAUNCH_FAILED)


class _Details(threading.local):
    code, text = Result.SUCCESS, ""


_details = _Details()
_process = SimpleNamespace(forked=False)


def refuse_after_fork():
    """Refuse all calls in forked children, as CUDA does: they lack the threads that run blocks."""

    def forked():
        _process.forked = True

    os.register_at_fork(after_in_child=forked)


def last_detail(code=None):
    """Return the details of this thread's last error; "" if it had another code."""
    return _details.text if code in (None, _details.code) else ""


def _note(code, text):
    """Keep the details of an error; return its code."""
    _details.code, _details.text = code, text
    return code


def _interrupts(error):
    """Return whether an exception comes from a signal handler, such as that of Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return not isinstance(error, Exception) or any(frame.f_code in handlers for frame in frames)


_functions = {}
#: Functions that may take long: an interrupt is raised after their return, and they return no error.
_LONG = {"cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch"}
_LONG |= {"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"}
#: This one must not return an error either, as the callback will be called.
_LONG |= {"cuStreamAddCallback"}
#: Functions that destructors call, possibly with an exception pending, which Python code here must not see.
_DESTRUCTORS = re.compile(r"Destroy|Free|Unload|Release|Unregister|Ctx(Push|Pop|Get|Set)Current")


def driver_function(*names, types=""):
    """Register a driver function under its names, without version suffixes."""

    def register(function):
        def call(*arguments):
            try:
                if _process.forked:
                    raise DriverError(Result.NOT_INITIALIZED, "CUDA was in use before the process forked")
                function(*arguments)
            except DriverError as error:
                return _note(error.code, error.detail)
            except Fault as fault:
                return _note(_FAULTS[fault.kind], str(fault))
            except BaseException as error:
                if _interrupts(error):
                    return guards.pass_on(error, names[0] in _LONG)
                if isinstance(error, MemoryError):
                    return _note(Result.OUT_OF_MEMORY, str(error))
                if not sys.is_finalizing():
                    traceback.print_exc()
                return _note(Result.UNKNOWN, "".join(traceback.format_exception(error)))
            return Result.SUCCESS

        callback = ctypes.CFUNCTYPE(ctypes.c_int, *(_TYPES[letter] for letter in types))(call)
        for name in names:
            _functions[name] = callback
        return function

    return register


def driver_functions(lines):
    """Register one-line functions by keys of names, followed by the types of the arguments."""
    for key, function in lines.items():
        *names, types = key.split()
        driver_function(*names, types=types)(function)


def put(address, type_, value):
    """Write a result to an address, if there is one."""
    if address:
        type_.from_address(address).value = value


def put_handle(address, value):
    """Write a handle or an address."""
    put(address, ctypes.c_uint64, value)


def put_int(address, value):
    """Write an ``int``."""
    put(address, ctypes.c_int, value)


class Handles:
    """Objects by handle; handles of different kinds differ."""

    _numbers = itertools.count(0x1000)

    def __init__(self):
        self._objects = {}

    def add(self, value):
        """Return a new handle for an object."""
        number = 16 * next(self._numbers)
        self._objects[number] = value
        return number

    def __iter__(self):
        """Return an iterator over the objects."""
        return iter(list(self._objects.values()))

    def __getitem__(self, number):
        """Return the object of a handle."""
        try:
            return self._objects[number]
        except KeyError:
            raise DriverError(Result.INVALID_HANDLE) from None

    def replace(self, number, value):
        """Assign another object to a handle."""
        self._objects[number] = value

    def __contains__(self, number):
        """Return whether a handle is valid."""
        return number in self._objects

    def remove(self, number):
        """Remove a handle and return its object."""
        value = self[number]
        del self._objects[number]
        return value


_library, _addresses = [], {}


def load():
    """Load the library that takes the driver's place."""
    if not _library:
        names = [name for name in _functions if name in _LONG or _DESTRUCTORS.search(name)]
        _functions.update(zip(names, guards.guarded([_functions[name] for name in names]), strict=True))
        _library.append(
            stub.Library({name + _version(name): function for name, function in _functions.items()})
        )


def _address(name):
    """Return the address of a driver function."""
    if name not in _addresses:
        _addresses[name] = _library[0].add(_functions.get(name) or _not_supported(name))
    return _addresses[name]


def _not_supported(name):
    """Return a function that returns the error "not supported"."""

    def answer():
        return _note(Result.NOT_SUPPORTED, f"{name} is not supported by the emulated GPU")

    return ctypes.CFUNCTYPE(ctypes.c_int)(answer)


_ENTRY = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p
)


_WITH_EDGES = {"cuGraphGetEdges", "cuGraphAddDependencies", "cuGraphRemoveDependencies"}
_WITH_EDGES |= {"cuGraphNodeGetDependencies", "cuGraphNodeGetDependentNodes"}


@_ENTRY
def entry(name, found, version, flags, status):
    """Implement ``cuGetProcAddress_v2``: return the address of a driver function."""
    name = name.decode()
    if name in _WITH_EDGES and version >= 12030:  # from then on with data of edges
        name += "_v2"
    put_handle(found, _address(name))
    put_int(status, 0)
    return Result.SUCCESS


_functions["cuGetProcAddress"] = entry
#: Functions whose first version took other arguments; programs mean the second one.
_SECOND = set(
    """
    cuCtxDestroy cuCtxPopCurrent cuCtxPushCurrent cuDeviceGetUuid cuDevicePrimaryCtxRelease cuDeviceTotalMem
    cuEventDestroy cuGetProcAddress cuGraphAddKernelNode cuGraphExecKernelNodeSetParams
    cuGraphKernelNodeSetParams cuLinkAddData cuLinkAddFile cuLinkCreate cuMemAlloc cuMemAllocHost
    cuMemAllocPitch cuMemFree cuMemGetAddressRange cuMemGetInfo cuMemHostAlloc cuMemHostGetDevicePointer
    cuMemHostRegister cuMemcpyDtoD cuMemcpyDtoDAsync cuMemcpyDtoH cuMemcpyDtoHAsync cuMemcpyHtoD
    cuMemcpyHtoDAsync cuMemsetD16 cuMemsetD32 cuMemsetD8 cuModuleGetGlobal cuStreamDestroy
    """.split()
)


def _version(name):
    return "_v2" if name in _SECOND else ""


@driver_function("cuGetExportTable", types="pp")
def _export_table(found, number):
    # NVRTC asks for undocumented tables, and crashes if the driver doesn't export this function. PyTorch's
    # runtime asks as well; on this error it silently does without.
    put_handle(found, 0)
    raise DriverError(Result.NO_DEVICE)


@driver_function("cuGetErrorName", types="ip")
def _error_name(code, found):
    put_handle(found, _text(Result(code).full_name))


@driver_function("cuGetErrorString", types="ip")
def _error_string(code, found):
    put_handle(found, _text(last_detail(code) or Result(code).text))


_texts = {}


def _text(text):
    """Return the address of a text, which stays valid."""
    if text not in _texts:
        _texts[text] = ctypes.create_string_buffer(text.encode())
    return ctypes.addressof(_texts[text])
