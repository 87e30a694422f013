"""The host's side of a GPU, real or emulated: arrays, streams, launches.

Importing it selects what kernels run on, before `numba.cuda` can be imported; `describe` returns what.
"""

from cnn_numba.device.arrays import (
    Array as Array,
    DeviceArray as DeviceArray,
    address as address,
    aligned as aligned,
    copy as copy,
    empty as empty,
    first_rows as first_rows,
    is_device_array as is_device_array,
    pinned as pinned,
    to_device as to_device,
    to_host as to_host,
    zeros as zeros,
)
from cnn_numba.device.launches import (
    Launch as Launch,
    blocks as blocks,
    launch as launch,
    launch_for_each as launch_for_each,
    observe_launches as observe_launches,
)
from cnn_numba.device.selection import (
    COMPILER as COMPILER,
    SELECTION as SELECTION,
    NoGpu as NoGpu,
    choose as choose,
    describe as describe,
    facts as facts,
    hardware as hardware,
    place_of as place_of,
    share_threads as share_threads,
    simulated as simulated,
    threads as threads,
)
from cnn_numba.device.signatures import for_kernel as for_kernel, signature as signature
from cnn_numba.device.streams import (
    branch as branch,
    current_stream as current_stream,
    join as join,
    recording as recording,
    seconds as seconds,
    stream as stream,
    synchronize as synchronize,
    use_stream as use_stream,
)
from cnn_numba.device.usable import UnusableGpu as UnusableGpu, usable_cuda as usable_cuda, use_gpu as use_gpu
from gpuless import SHARED_LIMIT as SHARED_LIMIT, LaunchError as LaunchError, check_launch as check_launch
