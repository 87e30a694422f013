"""On a machine with a GPU: the GPU measures a launch, and another process models it on the emulated GPU.

A process can use only one of the two: the emulated GPU replaces NVIDIA's driver before `numba.cuda` loads it,
and cannot read the real GPU's memory. So the kernel and copies of its arguments go to a process with the
emulated GPU, which returns the reports.
"""

import os
import pickle
import statistics
import subprocess
import sys

from gpuless.frontends import launch_of

_WARM_UP, _REPEATS = 3, 20


def reports(launch, devices, arguments):
    """Return a `Report` for each device, with the time that this machine's GPU takes for the launch.

    `launch`: a kernel with its configuration. The arguments keep their values.
    """
    copies: dict = {}
    arguments = [_on_host(each, copies) for each in arguments]
    found = _modelled(launch, devices, arguments)
    microseconds = measure(launch, arguments)
    return [report.with_measured(_current_gpu(), microseconds) for report in found]


def _current_gpu():
    """Return the name of the GPU on which kernels are launched."""
    from numba import cuda

    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else name


def _on_host(value, copies):
    """Copy an argument's arrays to the host; `copies` holds the copy of each array seen so far."""
    if isinstance(value, tuple):
        return tuple(_on_host(each, copies) for each in value)
    if not hasattr(value, "__cuda_array_interface__"):
        return value
    from numba import cuda

    if id(value) not in copies:
        copies[id(value)] = cuda.as_cuda_array(value).copy_to_host()
    return copies[id(value)]


def _on_device(value, copies):
    """Copy an argument's arrays to the GPU; `copies` holds each original with its copy."""
    import numpy as np
    from numba import cuda

    if isinstance(value, tuple):
        return tuple(_on_device(each, copies) for each in value)
    if not isinstance(value, np.ndarray):
        return value
    if id(value) not in copies:
        copies[id(value)] = value, cuda.to_device(value)
    return copies[id(value)][1]


def measure(launch, arguments):
    """Return the median of the microseconds between events around a launch.

    The arguments are restored before each launch, as its work may depend on their values.
    """
    from numba import cuda

    copies: dict = {}
    arguments = [_on_device(each, copies) for each in arguments]
    events = [(cuda.event(), cuda.event()) for _ in range(_WARM_UP + _REPEATS)]
    for begin, end in events:
        for before, copy in copies.values():
            copy.copy_to_device(before, stream=launch.stream)
        begin.record(launch.stream)
        launch(*arguments)
        end.record(launch.stream)
    cuda.synchronize()
    return 1e3 * statistics.median(begin.elapsed_time(end) for begin, end in events[_WARM_UP:])


def _modelled(launch, devices, arguments):
    """Return the `Report` of each device, from a process with the emulated GPU."""
    kernel, *configuration = launch_of(launch)
    task = pickle.dumps((kernel, configuration, devices, arguments))
    environment = os.environ | {"GPULESS": "emulator", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", _SERVE], input=task, env=environment, capture_output=True, check=False
    )
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"the launch was not modelled: {last}")
    return pickle.loads(done.stdout)


# It selects the emulated GPU before the kernel's module can import numba.cuda.
_SERVE = (
    "import gpuless; gpuless.select(); from gpuless.profile.hardware import serve; serve(gpuless.profile)"
)


def serve(profile):
    """Read a launch from standard input, and write its reports to standard output."""
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # modules of kernels may print
    kernel, (grid, block, shared), devices, arguments = pickle.load(sys.stdin.buffer)
    copies: dict = {}
    arguments = [_on_device(each, copies) for each in arguments]
    found = profile(kernel[grid, block, 0, shared], devices)(*arguments)
    out.write(pickle.dumps(tuple(found)))
    out.flush()
