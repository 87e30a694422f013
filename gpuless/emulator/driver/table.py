"""The driver's functions by name, and how their calls reach Python.

A module of this package registers a function for each of the driver's, with the types of its arguments
written as letters. It gets numbers, writes results to the addresses among them, and raises `DriverError` if
something is wrong.
"""

import _thread
import ctypes
import itertools
import os
import re
import signal
import sys
import threading
import time
import traceback
from types import SimpleNamespace

from gpuless.emulator.driver import stub
from gpuless.emulator.run import machine
from gpuless.emulator.run.faults import Fault

_TYPES = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "z": ctypes.c_uint64,
    "c": ctypes.c_char_p,
}
_TYPES |= {"b": ctypes.c_ubyte, "h": ctypes.c_ushort, "f": ctypes.c_float}

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 0, 1, 2, 3
NO_DEVICE, INVALID_DEVICE, INVALID_IMAGE, INVALID_CONTEXT = 100, 101, 200, 201
NO_BINARY_FOR_GPU, INVALID_PTX, INVALID_HANDLE, ILLEGAL_STATE = 209, 218, 400, 401
NOT_FOUND, NOT_READY = 500, 600
ILLEGAL_ADDRESS, LAUNCH_OUT_OF_RESOURCES, LAUNCH_TIMEOUT, ASSERT, MISALIGNED, LAUNCH_FAILED = (
    700,
    701,
    702,
    710,
    716,
    719,
)
UNSUPPORTED_LIMIT, ALREADY_REGISTERED, NOT_REGISTERED = 215, 712, 713
COOPERATIVE_LAUNCH_TOO_LARGE, NOT_PERMITTED, NOT_SUPPORTED, CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED = (
    720,
    800,
    801,
    900,
    901,
)
CAPTURE_MERGE, CAPTURE_UNMATCHED, CAPTURE_UNJOINED = 902, 903, 904
CAPTURE_ISOLATION, CAPTURED_EVENT = 905, 907
UNKNOWN = 999
#: What the driver says of its errors.
ERRORS = {
    SUCCESS: ("CUDA_SUCCESS", "no error"),
    INVALID_VALUE: ("CUDA_ERROR_INVALID_VALUE", "invalid argument"),
    OUT_OF_MEMORY: ("CUDA_ERROR_OUT_OF_MEMORY", "out of memory"),
    NOT_INITIALIZED: ("CUDA_ERROR_NOT_INITIALIZED", "initialization error"),
    NO_DEVICE: ("CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"),
    INVALID_DEVICE: ("CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"),
    INVALID_IMAGE: ("CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"),
    INVALID_CONTEXT: ("CUDA_ERROR_INVALID_CONTEXT", "invalid device context"),
    NO_BINARY_FOR_GPU: (
        "CUDA_ERROR_NO_BINARY_FOR_GPU",
        "no kernel image is available: the emulated GPU runs PTX",
    ),
    UNSUPPORTED_LIMIT: ("CUDA_ERROR_UNSUPPORTED_LIMIT", "limit is not supported on this architecture"),
    INVALID_PTX: ("CUDA_ERROR_INVALID_PTX", "a PTX instruction is not known to the emulated GPU"),
    INVALID_HANDLE: ("CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"),
    ILLEGAL_STATE: (
        "CUDA_ERROR_ILLEGAL_STATE",
        "the operation cannot be performed in the present state",
    ),
    NOT_FOUND: ("CUDA_ERROR_NOT_FOUND", "named symbol not found"),
    NOT_READY: ("CUDA_ERROR_NOT_READY", "device not ready"),
    ILLEGAL_ADDRESS: ("CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    LAUNCH_OUT_OF_RESOURCES: (
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        "too many resources requested for launch",
    ),
    LAUNCH_TIMEOUT: ("CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated"),
    ASSERT: ("CUDA_ERROR_ASSERT", "device-side assert triggered"),
    ALREADY_REGISTERED: (
        "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        "part or all of the requested memory range is already mapped",
    ),
    NOT_REGISTERED: (
        "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        "pointer does not correspond to a registered memory region",
    ),
    MISALIGNED: ("CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"),
    LAUNCH_FAILED: ("CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"),
    COOPERATIVE_LAUNCH_TOO_LARGE: (
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
        "too many blocks in cooperative launch",
    ),
    NOT_PERMITTED: ("CUDA_ERROR_NOT_PERMITTED", "operation not permitted"),
    NOT_SUPPORTED: ("CUDA_ERROR_NOT_SUPPORTED", "operation not supported by the emulated GPU"),
    CAPTURE_UNSUPPORTED: (
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "operation not permitted when stream is capturing",
    ),
    CAPTURE_INVALIDATED: (
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        "operation failed due to a previous error",
    ),
    CAPTURE_MERGE: (
        "CUDA_ERROR_STREAM_CAPTURE_MERGE",
        "operation would result in a merge of separate capture sequences",
    ),
    CAPTURE_UNMATCHED: (
        "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
        "capture was not initiated in this stream",
    ),
    CAPTURE_UNJOINED: (
        "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        "capturing stream has unjoined work",
    ),
    CAPTURE_ISOLATION: (
        "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        "dependency created on uncaptured work in another stream",
    ),
    CAPTURED_EVENT: (
        "CUDA_ERROR_CAPTURED_EVENT",
        "operation not permitted on an event last recorded in a capturing stream",
    ),
    UNKNOWN: ("CUDA_ERROR_UNKNOWN", "unknown error"),
}


class DriverError(Exception):
    """An error that the caller is told by its code.

    Parameters
    ----------
    code : int
    detail : str, optional
        What a program cannot be told by a code, for whoever reads `last_detail`.
    """

    def __init__(self, code, detail=""):
        super().__init__(ERRORS[code][0])
        self.code, self.detail = code, detail


_FAULTS = {
    "address": ILLEGAL_ADDRESS,
    "barrier": LAUNCH_TIMEOUT,
    "stopped": LAUNCH_TIMEOUT,
    "arithmetic": LAUNCH_FAILED,
    "trap": LAUNCH_FAILED,
    "stack": LAUNCH_FAILED,
    "limit": LAUNCH_TIMEOUT,
    "misaligned": MISALIGNED,
}


class _Details(threading.local):
    code, text = SUCCESS, ""


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


_passed_on, _raise = ctypes.c_uint64(), []


def _pass_on(error, guarded):
    """Let an exception be raised when the call that it has ended has returned; return what that returns."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(error))
    if guarded:
        _passed_on.value = id(error)
        return _INTERRUPTED
    _thread.start_new_thread(_raise_soon, (id(error),))
    return LAUNCH_TIMEOUT


def _raise_soon(error):
    time.sleep(0.01)
    ctypes.pythonapi.Py_AddPendingCall(ctypes.c_void_p(_raise[0]), ctypes.c_void_p(error))


_functions = {}
#: Functions that may take long. What interrupts one is raised when it has returned, without any other error.
_LONG = {"cuLaunchKernel", "cuLaunchKernelEx", "cuLaunchCooperativeKernel", "cuGraphLaunch"}
_LONG |= {"cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize"}
#: And one that must not return an error when what it was asked for will be done.
_LONG |= {"cuStreamAddCallback"}
#: What destructors call, maybe while an exception is on its way, of which Python code here may know nothing.
_DESTRUCTORS = re.compile(r"Destroy|Free|Unload|Release|Unregister|Ctx(Push|Pop|Get|Set)Current")
_INTERRUPTED = -1
_GUARDS = """
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare i32 @Py_AddPendingCall(ptr, ptr)
declare ptr @PyObject_Type(ptr)
declare void @PyErr_SetObject(ptr, ptr)
declare void @Py_DecRef(ptr)

define internal i32 @raise(ptr %error) {{
  %type = call ptr @PyObject_Type(ptr %error)
  call void @PyErr_SetObject(ptr %type, ptr %error)
  call void @Py_DecRef(ptr %type)
  call void @Py_DecRef(ptr %error)
  ret i32 -1
}}

define internal i32 @guarded(ptr %function, {parameters}) noinline {{
  %error = alloca [3 x ptr]
  %e1 = getelementptr ptr, ptr %error, i64 1
  %e2 = getelementptr ptr, ptr %error, i64 2
  %state = call i32 @PyGILState_Ensure()
  call void @PyErr_Fetch(ptr %error, ptr %e1, ptr %e2)
  %code = call i32 %function({parameters})
  %v0 = load ptr, ptr %error
  %v1 = load ptr, ptr %e1
  %v2 = load ptr, ptr %e2
  call void @PyErr_Restore(ptr %v0, ptr %v1, ptr %v2)
  call void @PyGILState_Release(i32 %state)
  %interrupted = icmp eq i32 %code, {interrupted}
  br i1 %interrupted, label %interrupt, label %end
interrupt:
  %passed = load ptr, ptr inttoptr (i64 {passed_on} to ptr)
  %unused = call i32 @Py_AddPendingCall(ptr @raise, ptr %passed)
  ret i32 0
end:
  ret i32 %code
}}
"""
_GUARD = """
define internal i32 @guard{i}({parameters}) {{
  %code = call i32 @guarded(ptr inttoptr (i64 {function} to ptr), {parameters})
  ret i32 %code
}}
"""
_guards = []


def _guard(functions):
    """Return callbacks that keep apart what is raised before and in them; what interrupts one comes after."""
    parameters = ", ".join(f"i64 %a{i}" for i in range(11))
    passed_on = ctypes.addressof(_passed_on)
    text = _GUARDS.format(parameters=parameters, interrupted=_INTERRUPTED, passed_on=passed_on)
    for i, function in enumerate(functions):
        address = ctypes.cast(function, ctypes.c_void_p).value
        text += _GUARD.format(i=i, parameters=parameters, function=address)
    text += "define i32 @run(ptr %found, ptr %unused) {\n"
    for i, name in enumerate([*(f"guard{i}" for i in range(len(functions))), "raise"]):
        text += f"  %p{i} = getelementptr ptr, ptr %found, i64 {i}\n  store ptr @{name}, ptr %p{i}\n"
    code = machine.Code(machine.compile_object(text + "  ret i32 0\n}\n"))
    found = (ctypes.c_uint64 * (len(functions) + 1))()
    code.run(ctypes.addressof(found), None)
    _guards.append((code, functions))  # for as long as they may be called
    *addresses, raises = found
    _raise.append(raises)
    return [ctypes.CFUNCTYPE(ctypes.c_int)(address) for address in addresses]


def driver_function(*names, types=""):
    """Register a function of the driver under its names, without the suffix of a version."""

    def register(function):
        def call(*arguments):
            try:
                if _process.forked:
                    raise DriverError(NOT_INITIALIZED, "CUDA was in use before the process forked")
                function(*arguments)
            except DriverError as error:
                return _note(error.code, error.detail)
            except Fault as fault:
                return _note(_FAULTS[fault.kind], str(fault))
            except BaseException as error:
                if _interrupts(error):
                    return _pass_on(error, names[0] in _LONG)
                if isinstance(error, MemoryError):
                    return _note(OUT_OF_MEMORY, str(error))
                if not sys.is_finalizing():
                    traceback.print_exc()
                return _note(UNKNOWN, "".join(traceback.format_exception(error)))
            return SUCCESS

        callback = ctypes.CFUNCTYPE(ctypes.c_int, *(_TYPES[letter] for letter in types))(call)
        for name in names:
            _functions[name] = callback
        return function

    return register


def check_flags(flags, known=0):
    """Refuse flags with bits that the driver does not know."""
    if flags & ~known:
        raise DriverError(INVALID_VALUE, f"flags {flags:#x}: the driver knows {known:#x}")


def check_choice(value, *choices):
    """Refuse a number that means nothing here."""
    if value not in choices:
        raise DriverError(INVALID_VALUE, f"{value} is not one of {', '.join(map(str, choices))}")


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
            raise DriverError(INVALID_HANDLE) from None

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
        _functions.update(zip(names, _guard([_functions[name] for name in names]), strict=True))
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
        return _note(NOT_SUPPORTED, f"{name} is not supported by the emulated GPU")

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
    if name in _WITH_EDGES and version >= 12030:  # since then they tell of the edges too
        name += "_v2"
    put_handle(found, _address(name))
    put_int(status, 0)
    return SUCCESS


_functions["cuGetProcAddress"] = entry
#: Functions that have grown: their first version took other arguments, and it is a later one that programs
# mean.
_SECOND = {
    "cuGetProcAddress",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemcpyHtoD",
    "cuMemcpyDtoH",
    "cuMemcpyDtoD",
    "cuMemGetInfo",
}
_SECOND |= {
    "cuDeviceTotalMem",
    "cuDevicePrimaryCtxRelease",
    "cuCtxPushCurrent",
    "cuCtxPopCurrent",
    "cuStreamDestroy",
}
_SECOND |= {
    "cuEventDestroy",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemHostGetDevicePointer",
    "cuMemAllocHost",
}
_SECOND |= {
    "cuMemcpyHtoDAsync",
    "cuMemcpyDtoHAsync",
    "cuMemcpyDtoDAsync",
    "cuMemsetD8",
    "cuMemsetD16",
    "cuMemsetD32",
}
_SECOND |= {"cuModuleGetGlobal", "cuMemGetAddressRange", "cuDeviceGetUuid", "cuMemAllocPitch"}
_SECOND |= {f"cuGraph{what}" for what in ("AddKernelNode", "KernelNodeSetParams", "ExecKernelNodeSetParams")}
_SECOND |= {"cuLinkCreate", "cuLinkAddData", "cuLinkAddFile", "cuCtxDestroy"}


def _version(name):
    return "_v2" if name in _SECOND else ""


@driver_function("cuGetExportTable", types="pp")
def _export_table(found, number):
    # NVRTC asks for functions that are not documented, and dies of a driver that exports no such question.
    # PyTorch's runtime asks as well; told that there is no device, it looks no further, and says nothing.
    put_handle(found, 0)
    raise DriverError(NO_DEVICE)


@driver_function("cuGetErrorName", types="ip")
def _error_name(code, found):
    put_handle(found, _text(ERRORS.get(code, ERRORS[UNKNOWN])[0]))


@driver_function("cuGetErrorString", types="ip")
def _error_string(code, found):
    put_handle(found, _text(last_detail(code) or ERRORS.get(code, ERRORS[UNKNOWN])[1]))


_texts = {}


def _text(text):
    """Return the address of a text that stays."""
    if text not in _texts:
        _texts[text] = ctypes.create_string_buffer(text.encode())
    return ctypes.addressof(_texts[text])
