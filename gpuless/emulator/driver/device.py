"""Devices and contexts."""

import ctypes
import threading

from gpuless.emulator.driver.errors import DriverError, Result, check_choice, check_flags, refuse_if
from gpuless.emulator.driver.table import (
    Handles,
    driver_function,
    driver_functions,
    put,
    put_handle,
    put_int,
    refuse_after_fork,
)
from gpuless.emulator.run import host, settings
from gpuless.emulator.run.launch import Workers
from gpuless.emulator.run.memory import Arena
from gpuless.limits import LOCAL_LIMIT

#: The driver's version of CUDA.
VERSION = 13020
MULTIPROCESSORS = 16
# KB of shared memory per multiprocessor, and reserved per block, by compute capability.
_SHARED = {(7, 5): (64, 0), (8, 0): (164, 1), (8, 6): (100, 1), (8, 7): (164, 1), (8, 9): (100, 1)}
_SHARED |= {(9, 0): (228, 1), (10, 0): (228, 1), (12, 0): (100, 1)}
#: Limits of a context.
STACK_SIZE, PRINTF_SIZE, HEAP_SIZE = 0, 1, 2


class Device:
    """The emulated GPU: its memory, the CPU threads that run its blocks, its properties."""

    name = "Emulated GPU (gpuless, runs on this computer's CPU)"

    def __init__(self):
        self.capability = settings.capability()
        whole, self.shared_reserved = (1024 * size for size in _SHARED[self.capability])
        self.shared_limit = whole - self.shared_reserved  # of a block that requests more than 48 KB
        self.arena = Arena(settings.capacity())
        self.workers = Workers(self.arena)
        self.flags = 0
        self.limits = {STACK_SIZE: 1 << 14, PRINTF_SIZE: 1 << 20, HEAP_SIZE: 8 << 20}
        host.set_heap(lambda: host.Heap(self.arena, self.limits[HEAP_SIZE]))

    @property
    def attributes(self):
        """Return the attributes of the device, by the numbers of ``CUdevice_attribute``."""
        major, minor = self.capability
        largest, multiprocessor = (1 << 31) - 1, self.shared_limit + self.shared_reserved
        able = (15, 19, 31, 40, 79, 80, 89, 90, 99)  # it can map host memory (19), ...
        return {
            **dict.fromkeys(able, 1),
            **{1: 1024, 2: 1024, 3: 1024, 4: 64},  # threads of a block, and its sides
            **{5: largest, 6: 65535, 7: 65535},  # the sides of a grid
            **{8: 49152, 81: multiprocessor},  # shared memory of a block, of a multiprocessor
            **{97: self.shared_limit, 111: self.shared_reserved},  # of a block on request, reserved
            **{9: 65536, 10: 32, 11: largest, 12: 65536, 82: 65536},  # constants, a warp, registers
            **{13: 1_000_000, 36: 1_000_000, 37: 256, 38: 1 << 22},  # clocks in kHz: just plausible
            **{14: 512, 16: MULTIPROCESSORS, 39: 2048, 106: 16},  # threads and blocks of a multiprocessor
            **{41: 1, 83: 1, 115: 1},  # one address space, managed memory, pools
            **{75: major, 76: minor, 78: 1, 95: 1},  # stream priorities, cooperative launches
        }  # others are 0: kernels have no time limit (17), and access only the emulated GPU's memory (88)


_CONTEXT = 0x10  # the primary one
_others = Handles()  # made by programs; all contexts share everything
_state = threading.local()


class _Shared:
    device = None
    lock = threading.Lock()


def device():
    """Return the emulated GPU, which is made at the first call."""
    with _Shared.lock:
        if _Shared.device is None:
            _Shared.device = Device()
            refuse_after_fork()
        return _Shared.device


def _check(number):
    refuse_if(number != 0, Result.INVALID_DEVICE)


def _stack():
    if not hasattr(_state, "stack"):
        _state.stack = []
    return _state.stack


@driver_function("cuInit", types="u")
def _init(flags):
    check_flags(flags)
    device()


driver_functions(
    {
        "cuDriverGetVersion p": lambda found: put_int(found, VERSION),
        "cuDeviceGetCount p": lambda found: put_int(found, 1),
    }
)


@driver_function("cuDeviceGet", types="pi")
def _get(found, number):
    _check(number)
    put_int(found, number)


@driver_function("cuDeviceGetName", types="pii")
def _name(found, length, number):
    _check(number)
    name = Device.name.encode()[: length - 1] + b"\0"
    ctypes.memmove(found, name, len(name))


@driver_function("cuDeviceGetUuid", types="pi")
def _uuid(found, number):
    _check(number)
    ctypes.memmove(found, b"gpuless emulated", 16)


@driver_function("cuDeviceTotalMem", types="pi")
def _total(found, number):
    _check(number)
    put_handle(found, device().arena.capacity)


@driver_function("cuDeviceGetAttribute", types="pii")
def _attribute(found, attribute, number):
    _check(number)
    refuse_if(attribute < 1)
    put_int(found, device().attributes.get(attribute, 0))


@driver_function("cuDeviceComputeCapability", types="ppi")
def _compute_capability(major, minor, number):
    _check(number)
    put_int(major, device().capability[0])
    put_int(minor, device().capability[1])


@driver_function("cuDeviceGetPCIBusId", types="pii")
def _bus(found, length, number):
    _check(number)
    ctypes.memmove(found, b"0000:00:00.0\0", 13)


@driver_function("cuDeviceCanAccessPeer", types="pii")
def _peer(found, one, other):
    put_int(found, 0)


@driver_function("cuDevicePrimaryCtxRetain", types="pi")
def _retain(found, number):
    _check(number)
    device()
    put_handle(found, _CONTEXT)


@driver_function("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset", types="i")
def _release(number):
    _check(number)


@driver_function("cuDevicePrimaryCtxSetFlags", types="iu")
def _set_flags(number, flags):
    _check(number)
    device().flags = _checked(flags)


@driver_function("cuDevicePrimaryCtxGetState", types="ipp")
def _primary_state(number, flags, active):
    _check(number)
    put_int(flags, device().flags)
    put_int(active, 1)


@driver_function("cuCtxGetCurrent", types="p")
def _current(found):
    put_handle(found, _stack()[-1] if _stack() else 0)


@driver_function("cuCtxSetCurrent", types="p")
def _set_current(context):
    if context:
        _check_context(context)
    _state.stack = [context] if context else []


def _checked(flags):
    """Check a context's flags and return them; here all threads wait in the same way."""
    check_flags(flags, 0xFF)
    check_choice(flags & 7, 0, 1, 2, 4)  # CU_CTX_SCHED_MASK
    return flags


def _check_context(context):
    refuse_if(context != _CONTEXT and context not in _others, Result.INVALID_CONTEXT)


@driver_function("cuCtxPushCurrent", types="p")
def _push(context):
    _check_context(context)
    _stack().append(context)


@driver_function("cuCtxCreate", types="ppui")
def _create(found, parameters, flags, number):
    _check(number)
    if parameters and any((ctypes.c_uint64 * 3).from_address(parameters)):
        raise DriverError(
            Result.NOT_SUPPORTED, "contexts of the emulated GPU have no affinity and no graphics"
        )
    device()
    _stack().append(_others.add(_checked(flags)))
    put_handle(found, _stack()[-1])


@driver_function("cuCtxDestroy", types="p")
def _destroy(context):
    refuse_if(context not in _others, Result.INVALID_CONTEXT)
    _others.remove(context)
    if _stack() and _stack()[-1] == context:
        _stack().pop()


@driver_function("cuCtxPopCurrent", types="p")
def _pop(found):
    refuse_if(not _stack(), Result.INVALID_CONTEXT)
    put_handle(found, _stack().pop())


@driver_function("cuCtxGetDevice", types="pp")
def _context_device(found, context):
    put_int(found, 0)


@driver_function("cuCtxGetFlags", types="p")
def _context_flags(found):
    refuse_if(not _stack(), Result.INVALID_CONTEXT)
    context = _stack()[-1]
    put_int(found, device().flags if context == _CONTEXT else _others[context])


driver_functions(
    {
        "cuCtxGetId pp": lambda context, found: put_handle(found, context or _CONTEXT),
        "cuCtxGetApiVersion pp": lambda context, found: put_int(found, VERSION),
    }
)


@driver_function("cuCtxSetLimit", types="iz")
def _set_limit(limit, value):
    _check_limit(limit)
    if limit == STACK_SIZE and value > LOCAL_LIMIT:
        raise DriverError(
            Result.INVALID_VALUE, f"a thread has {LOCAL_LIMIT} bytes of local memory, not {value}"
        )
    device().limits[limit] = value
    if limit == STACK_SIZE:
        device().workers.lane_stack = -(-value // 16) * 16


@driver_function("cuCtxGetLimit", types="pi")
def _get_limit(found, limit):
    _check_limit(limit)
    put_handle(found, device().limits[limit])


def _check_limit(limit):
    check_choice(limit, *range(11))
    refuse_if(limit not in device().limits, Result.UNSUPPORTED_LIMIT)


@driver_function("cuMemGetInfo", types="pp")
def _memory_info(free, total):
    arena = device().arena
    put(free, ctypes.c_uint64, arena.capacity - arena.used)
    put(total, ctypes.c_uint64, arena.capacity)


@driver_function("cuProfilerStart", "cuProfilerStop", types="")
def _profiler():
    """Nothing is profiled."""
