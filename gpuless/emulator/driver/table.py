"""The driver's functions by name, and how their calls reach Python.

A module of this package registers a function for each of the driver's, with the types of its arguments
written as letters. It gets numbers, writes results to the addresses among them, and raises `DriverError` if
something is wrong.
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
    """Let a child of this process have no GPU, as CUDA has it: the threads that run blocks are not there."""

    def forked():
        _process.forked = True

    os.register_at_fork(after_in_child=forked)


def last_detail(code=None):
    """Return what went wrong last in this thread, in more words than a code; "" if it was of another code."""
    return _details.text if code in (None, _details.code) else ""


def _note(code, text):
    """Keep what went wrong; return its code."""
    _details.code, _details.text = code, text
    return code


def _interrupts(error):
    """Return whether an exception has come from outside: from the handler of a signal, such as Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = {getattr(signal.getsignal(number), "__code__", None) for number in signal.valid_signals()}
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return not isinstance(error, Exception) or any(frame.f_code in handlers for frame in frames)


_functions = {}
#: Functions that may take long. What interrupts one is raised when it has returned, without any other error.
_LONG = {"cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch"}
_LONG |= {"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"}
#: And one that must not return an error when what it was asked for will be done.
_LONG |= {"cuStreamAddCallback"}
#: What destructors call, maybe while an exception is on its way, of which Python code here may know nothing.
_DESTRUCTORS = re.compile(r"Destroy|Free|Unload|Release|Unregister|Ctx(Push|Pop|Get|Set)Current")


def driver_function(*names, types=""):
    """Register a function of the driver under its names, without the suffix of a version."""

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
    """Register functions of one line: each by its names, followed by the types of its arguments."""
    for key, function in lines.items():
        *names, types = key.split()
        driver_function(*names, types=types)(function)


def put(address, type_, value):
    """Write a result to where the caller wants it."""
    if address:
        type_.from_address(address).value = value


def put_handle(address, value):
    """Write a handle or an address."""
    put(address, ctypes.c_uint64, value)


def put_int(address, value):
    """Write an ``int``."""
    put(address, ctypes.c_int, value)


class Handles:
    """Objects that programs know by a number; numbers of different kinds differ."""

    _numbers = itertools.count(0x1000)

    def __init__(self):
        self._objects = {}

    def add(self, value):
        """Return a new number for an object."""
        number = 16 * next(self._numbers)
        self._objects[number] = value
        return number

    def __iter__(self):
        """Return an iterator over the objects."""
        return iter(list(self._objects.values()))

    def __getitem__(self, number):
        """Return the object of a number."""
        try:
            return self._objects[number]
        except KeyError:
            raise DriverError(Result.INVALID_HANDLE) from None

    def replace(self, number, value):
        """Let a number be that of another object."""
        self._objects[number] = value

    def __contains__(self, number):
        """Return whether a number is one of an object."""
        return number in self._objects

    def remove(self, number):
        """Forget a number; return its object."""
        value = self[number]
        del self._objects[number]
        return value


_library, _addresses = [], {}


def load():
    """Load the library that stands for the driver."""
    if not _library:
        names = [name for name in _functions if name in _LONG or _DESTRUCTORS.search(name)]
        _functions.update(zip(names, guards.guarded([_functions[name] for name in names]), strict=True))
        _library.append(
            stub.Library({name + _version(name): function for name, function in _functions.items()})
        )


def _address(name):
    """Return where a function of the driver is."""
    if name not in _addresses:
        _addresses[name] = _library[0].add(_functions.get(name) or _not_supported(name))
    return _addresses[name]


def _not_supported(name):
    """Return a function that answers that there is no such thing."""

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
    """Answer ``cuGetProcAddress_v2``: give the address of a function of the driver."""
    name = name.decode()
    if name in _WITH_EDGES and version >= 12030:  # since then they report the edges too
        name += "_v2"
    put_handle(found, _address(name))
    put_int(status, 0)
    return Result.SUCCESS


_functions["cuGetProcAddress"] = entry
#: Functions that have grown: their first version took other arguments, and it is a later one that programs
# mean.
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
    # NVRTC asks for functions that are not documented, and dies of a driver that exports no such question.
    # PyTorch's runtime asks as well; without a device it looks no further, and reports nothing.
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
    """Return the address of a text that stays."""
    if text not in _texts:
        _texts[text] = ctypes.create_string_buffer(text.encode())
    return ctypes.addressof(_texts[text])
