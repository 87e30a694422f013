"""The one place for what the host does with a GPU, real or emulated: arrays, streams, launches.

Importing it selects what kernels run on, before `numba.cuda` can be imported: a GPU, else the emulated one,
else the simulator. Nothing is printed; `describe` returns it.
"""

from cnn_numba.device.arrays import (
    Array,
    DeviceArray,
    address,
    copy,
    elsewhere,
    empty,
    extent,
    is_device_array,
    overlap,
    pinned,
    to_device,
    to_host,
    zeros,
)
from cnn_numba.device.launches import Launch, blocks, launch, launch_for_each, observe_launches
from cnn_numba.device.selection import (
    SELECTION,
    NoGpu,
    choose,
    describe,
    facts,
    hardware,
    place_of,
    share_threads,
    simulated,
    threads,
)
from cnn_numba.device.signatures import signature
from cnn_numba.device.streams import current_stream, seconds, stream, synchronize, use_stream
from cnn_numba.device.usable import UnusableGpu, numba_cuda, use_gpu
from gpuless import SHARED_LIMIT, LaunchError, check_launch

__all__ = [
    "SELECTION",
    "SHARED_LIMIT",
    "Array",
    "DeviceArray",
    "Launch",
    "LaunchError",
    "NoGpu",
    "UnusableGpu",
    "address",
    "blocks",
    "check_launch",
    "choose",
    "copy",
    "current_stream",
    "describe",
    "elsewhere",
    "empty",
    "extent",
    "facts",
    "hardware",
    "is_device_array",
    "launch",
    "launch_for_each",
    "numba_cuda",
    "observe_launches",
    "overlap",
    "pinned",
    "place_of",
    "seconds",
    "share_threads",
    "signature",
    "simulated",
    "stream",
    "synchronize",
    "threads",
    "to_device",
    "to_host",
    "use_gpu",
    "use_stream",
    "zeros",
]
