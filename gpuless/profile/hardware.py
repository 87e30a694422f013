"""Where kernels run on a real GPU: it measures a launch, and the emulated GPU models it in another process.

Numba launches on one of the two in a process: the emulated GPU takes the place of NVIDIA's driver before
`numba.cuda` asks for it, and cannot read what the real one has in memory. So the kernel and copies of its
arguments go to a process that has the emulated GPU, and reports come back.
"""

import os
import pickle
import statistics
import subprocess
import sys

from gpuless.frontends import launch_of

_WARM_UP, _REPEATS = 3, 20


def reports(launch, devices, arguments):
    """Return a `Report` for each device with what this machine's GPU takes for the launch.

    `launch`: a kernel with its configuration. The arguments keep what they hold.
    """
    copies: dict = {}
    arguments = [_on_host(each, copies) for each in arguments]
    found = _modelled(launch, devices, arguments)
    microseconds = measure(launch, arguments)
    return [report.with_measured(_current_gpu(), microseconds) for report in found]


def _current_gpu():
    """Return the name of the GPU that kernels are launched on."""
    from numba import cuda

    name = cuda.get_current_device().name
    return name.decode() if isinstance(name, bytes) else name


def _on_host(value, copies):
    """Return an argument with NumPy's arrays; `copies`: those made so far, one for each array."""
    if isinstance(value, tuple):
        return tuple(_on_host(each, copies) for each in value)
    if not hasattr(value, "__cuda_array_interface__"):
        return value
    from numba import cuda

    if id(value) not in copies:
        copies[id(value)] = cuda.as_cuda_array(value).copy_to_host()
    return copies[id(value)]


def _on_device(value, copies):
    """Return an argument whose arrays are on the GPU; `copies`: those made so far, with their originals."""
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

    Each launch finds the arguments as they were before the first one: what it does may depend on them.
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


# There the emulated GPU is selected before the kernel's module can import numba.cuda.
_SERVE = (
    "import gpuless; gpuless.select(); from gpuless.profile.hardware import serve; serve(gpuless.profile)"
)


def serve(profile):
    """Read a launch from standard input, and write its reports to standard output."""
    out, sys.stdout = sys.stdout.buffer, sys.stderr  # what modules of kernels print is no report
    kernel, (grid, block, shared), devices, arguments = pickle.load(sys.stdin.buffer)
    copies: dict = {}
    arguments = [_on_device(each, copies) for each in arguments]
    found = profile(kernel[grid, block, 0, shared], devices)(*arguments)
    out.write(pickle.dumps(tuple(found)))
    out.flush()
