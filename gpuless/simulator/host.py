"""The host's interface to the simulated GPU: one device, where every operation is done at once."""

import asyncio
import contextlib
import functools
import time
from typing import NamedTuple

from gpuless.limits import BLOCK_LIMITS, GRID_LIMITS, SHARED_LIMIT, THREADS_LIMIT, WARP

#: Exported by `numba.cuda`.
__all__ = [
    *("Archive", "CUSource", "Cubin", "CudaSupportError", "Fatbin", "In", "InOut", "KernelRuntimeError"),
    *("LTOIR", "LinkableCode", "MemoryInfo", "Object", "Out", "PTXSource", "Reduce", "close", "cuda_error"),
    *("current_context", "default_stream", "defer_cleanup", "detect", "event", "event_elapsed_time"),
    *("external_stream", "get_current_device", "gpus", "is_available", "is_bfloat16_supported"),
    *("is_float16_supported", "is_fp8_supported", "is_supported_version", "legacy_default_stream"),
    *("list_devices", "literal_unroll", "per_thread_default_stream", "profile_start", "profile_stop"),
    *("profiling", "reduce", "require_context", "runtime", "select_device", "stream", "synchronize"),
]

_CAPABILITY = (8, 0)


class CudaSupportError(RuntimeError):
    """The GPU does not exist."""


class CudaAPIError(RuntimeError):
    """An error of the driver; the simulator has no driver and never raises it."""


class KernelRuntimeError(RuntimeError):
    """A kernel that failed; the simulator raises the kernel's own exception instead."""


class Stream:
    """A stream, whose work is always done."""

    handle = 0

    def __int__(self):
        return 0

    def __bool__(self):
        return True

    def synchronize(self):
        """Do nothing: the stream's work is done."""

    @contextlib.contextmanager
    def auto_synchronize(self):
        """Synchronize at the end of a ``with`` block."""
        yield self

    def add_callback(self, callback, arg=None):
        """Call a function when the stream's work is done: at once."""
        callback(self, 0, arg)

    def async_done(self):
        """Return an awaitable that is done."""
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


def stream():
    """Return a new stream."""
    return Stream()


@functools.cache
def default_stream():
    """Return the stream of launches that name none."""
    return Stream()


legacy_default_stream = per_thread_default_stream = default_stream


def external_stream(ptr):
    """Raise RuntimeError: other libraries' streams don't exist in the simulator."""
    raise RuntimeError("the simulator has no streams of other libraries")


class Event:
    """A point in a stream; times between events are measured on the host, and say nothing about a GPU."""

    def __init__(self, timing=True):
        self._time = None

    def record(self, stream=0):
        """Take the time."""
        self._time = time.perf_counter()

    def query(self):
        """Return True: the event has been reached."""
        return True

    def wait(self, stream=0):
        """Do nothing: the event has been reached."""

    def synchronize(self):
        """Do nothing: the event has been reached."""

    def elapsed_time(self, event):
        """Return the milliseconds from this event to another, by the host's clock."""
        if None in (self._time, event._time):
            raise ValueError("the time between two events is known once both are recorded")
        return 1000 * (event._time - self._time)


event = Event


def event_elapsed_time(evtstart, evtend):
    """Return the milliseconds between two events."""
    return evtstart.elapsed_time(evtend)


class MemoryInfo(NamedTuple):
    """Bytes of the device's memory, which is unlimited here."""

    free: float
    total: float


class Device:
    """The only device, with the limits that every GPU has."""

    id, name, compute_capability = 0, "gpuless simulator", _CAPABILITY
    uuid = "GPU-00000000-0000-0000-0000-000000000000"
    supports_float16, supports_bfloat16 = True, False
    WARP_SIZE, MULTIPROCESSOR_COUNT = WARP, 1
    MAX_THREADS_PER_BLOCK, MAX_SHARED_MEMORY_PER_BLOCK = THREADS_LIMIT, SHARED_LIMIT
    COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR = _CAPABILITY
    MAX_BLOCK_DIM_X, MAX_BLOCK_DIM_Y, MAX_BLOCK_DIM_Z = BLOCK_LIMITS
    MAX_GRID_DIM_X, MAX_GRID_DIM_Y, MAX_GRID_DIM_Z = GRID_LIMITS

    def __repr__(self):
        return f"<CUDA device {self.id} '{self.name}'>"

    def reset(self):
        """Do nothing: the device has no state."""


class Context:
    """The host's context of a device, which also works in a ``with`` statement."""

    def __init__(self, device):
        self.device = device

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def __getattr__(self, name):
        return getattr(self.device, name)

    def get_memory_info(self):
        """Return how much memory there is."""
        return MemoryInfo(float("inf"), float("inf"))

    def synchronize(self):
        """Do nothing: the device's work is done."""

    push = pop = reset = synchronize


class Devices:
    """The list of devices: it has one."""

    _contexts = (Context(Device()),)

    def __len__(self):
        return len(self._contexts)

    def __iter__(self):
        return iter(self._contexts)

    def __getitem__(self, number):
        if number not in (0, -1):
            raise IndexError(f"the simulator is one device, 0: there is no {number}")
        return self._contexts[0]

    @property
    def lst(self):
        """The devices as a list, as in Numba's class."""
        return list(self._contexts)

    @property
    def current(self):
        """The device in use."""
        return self._contexts[0]


gpus = Devices()


def current_context(devnum=0):
    """Return the context of the device."""
    return gpus[devnum or 0]


def get_current_device():
    """Return the device."""
    return gpus[0].device


def select_device(device_id=0):
    """Select device 0; CudaSupportError for another one."""
    if device_id != 0:
        raise CudaSupportError(f"the simulator is one device, 0: there is no {device_id}")
    return gpus[0]


def list_devices():
    """Return the list of devices."""
    return gpus


def require_context(function):
    """Return a function that needs a context unchanged."""
    return function


def detect():
    """Print the devices; return whether one can be used."""
    print("Found 1 CUDA devices")
    print(f"id 0    {get_current_device().name!r:>20} {'[SUPPORTED]':>40}")
    print(f"{'compute capability':>40}: {'.'.join(map(str, _CAPABILITY))}")
    return True


def is_available():
    """Return whether kernels can run."""
    return True


is_supported_version = is_float16_supported = is_available


def is_bfloat16_supported():
    """Return whether the device supports numbers of this type."""
    return False


is_fp8_supported = is_bfloat16_supported


def cuda_error():
    """Return the driver's error: none."""
    return None


def synchronize():
    """Do nothing: the device's work is done."""


close = profile_start = profile_stop = synchronize


@contextlib.contextmanager
def defer_cleanup():
    """Do nothing: Python frees memory."""
    yield


profiling = defer_cleanup


class Runtime:
    """The CUDA runtime, which doesn't exist here."""

    supported_versions = ((-1, -1),)

    def get_version(self):
        """Return (-1, -1), which is no runtime's version."""
        return (-1, -1)

    def is_supported_version(self):
        """Return True: kernels can run."""
        return True


runtime = Runtime()


class Reduce:
    """A reduction of an array of one axis: ``total = cuda.reduce(lambda a, b: a + b)``, ``total(x)``."""

    def __init__(self, functor):
        self._functor = functor

    def __call__(self, arr, size=None, res=None, init=0, stream=0):
        """Return the result, or write it into the first element of `res`."""
        if arr.ndim != 1:
            raise TypeError("only support 1D array")
        elements = arr.copy_to_host() if getattr(arr, "__cuda_ndarray__", False) else arr
        result = functools.reduce(self._functor, elements[:size].tolist(), init)
        result = elements.dtype.type(result)
        if res is None:
            return result
        res[0] = result
        return None


reduce = Reduce


class LinkableCode:
    """Compiled code to link with a kernel, which the simulator cannot run."""

    def __init__(self, data, name=None, **callbacks):
        self.data, self.name = data, name or f"<unnamed {type(self).__name__}>"


for _name in ("Archive", "CUSource", "Cubin", "Fatbin", "LTOIR", "Object", "PTXSource"):
    globals()[_name] = type(_name, (LinkableCode,), {"__doc__": LinkableCode.__doc__, "__module__": __name__})


class _Hint:
    """An argument of a launch; the class says which copies it needs."""

    def __init__(self, value):
        self.value = value


class In(_Hint):
    """An argument that is copied to the device."""


class Out(_Hint):
    """An argument that is copied back to the host."""


class InOut(_Hint):
    """An argument that is copied to the device and back to the host."""


def literal_unroll(container):
    """Return a tuple unchanged; a kernel may loop over its elements even if their types differ."""
    return container
