"""Profile a launch: run a window of its blocks, count, simulate caches, and model its time on a GPU."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gpuless import frontends, selection
from gpuless.inspector.architectures import occupancy_on
from gpuless.profile.devices import Device, device as device_of


def need_emulator() -> None:
    """Raise a RuntimeError where kernels do not run on the emulated GPU."""
    if not frontends.installed():
        raise RuntimeError(
            "profile runs kernels on the emulated GPU, and here they run on something else: "
            "set GPULESS=emulator, and call gpuless.select() before anything is launched"
        )


class Profiled:
    """A launch that is modelled when it is called with its arguments."""

    def __init__(self, launch: Any, gpus: Iterable[Any], several: bool = True) -> None:
        if frontends.launch_of(launch) is None:
            name = getattr(getattr(launch, "py_func", None), "__name__", None)
            got = f"{name} without one: write {name}[grid, block]" if name else reprlib.repr(launch)
            raise TypeError(f"launch must be a kernel with its launch configuration, got {got}")
        self._launch, self._several = launch, several
        self._devices = [device_of(gpu) for gpu in gpus]
        if not self._devices:
            raise ValueError("gpu names no GPU at all")

    def __call__(self, *arguments: Any) -> Any:
        """Return the `Report` of a launch with these arguments; a `Comparison` if several GPUs were named."""
        from gpuless.profile.report import Comparison

        if selection.select().gpu == "hardware":
            from gpuless.profile import hardware

            measured = hardware.reports(self._launch, self._devices, arguments)
            return Comparison(measured) if self._several else measured[0]
        found = reports_within(lambda: self._launch(*arguments), self._devices)
        if not found:
            raise RuntimeError("nothing was launched: its stream captures a graph, and is not profiled")
        return Comparison(found[0]) if self._several else found[0][0]


def reports_within(function: Callable[[], object], devices: list[Device]) -> list[list[Any]]:
    """Return the reports of what a function launches, of each launch for each device; none takes place."""
    need_emulator()
    from gpuless.emulator.run import recording
    from gpuless.profile.windows import sample_of

    launches, errors = [], []

    def take(taken):  # while arrays that Numba has copied for it are there
        try:
            launches.append((taken.source.kernel(), taken, sample_of(taken)))
        except BaseException as error:  # the driver would make another one of it
            errors.append(error)

    with recording.taken_launches(take):
        function()
    if errors:
        raise errors[0]
    return all_reports_of(launches, devices)


def all_reports_of(launches: list[tuple], devices: list[Device]) -> list[list[Any]]:
    """Return the reports of several launches: of each the kernel, the `TakenLaunch` and the `Sample`.

    It needs nothing of what was in memory: they can have taken place.
    """
    from gpuless.profile.machine_code import all_machine_codes
    from gpuless.profile.report import report_of

    ccs = list(dict.fromkeys(device.code for device in devices))
    codes = all_machine_codes([(kernel, taken) for kernel, taken, _ in launches], ccs)
    found: list[list[Any]] = []
    for (kernel, taken, sample), compiled in zip(launches, codes, strict=True):
        counted: dict[tuple, Any] = {}
        found.append([])
        for device in devices:
            code = compiled[device.code]
            modelled = _modelled(device, taken, code, sample, counted)
            found[-1].append(report_of(kernel, taken, device, code, modelled))
    return found


class Modelled(NamedTuple):
    """What is known of a launch on a device, step by step."""

    occupancy: Any
    counts: Any
    traffic: Any
    shape: Any
    prediction: Any
    lanes: Any


def _modelled(device: Device, taken: Any, compiled: Any, sample: Any, counted: dict[tuple, Any]) -> Modelled:
    """Return what the model says of a launch on a device, as `Modelled`.

    `counted`: what is known of how often machine code ran, by compute capability.
    """
    from gpuless.profile.lanes import lanes_of
    from gpuless.profile.model import Shape, predict
    from gpuless.profile.sass_counts import count_machine_code
    from gpuless.profile.traffic import traffic_of
    from gpuless.profile.windows import window_of

    threads, shared = math.prod(taken.block), compiled.shared + taken.shared
    occupancy = occupancy_on(device.sm, threads, compiled.registers, shared)
    if not occupancy.blocks:
        raise ValueError(
            f"the kernel cannot be launched on {device.name}: a block of {threads} threads with "
            f"{compiled.registers} registers each and {shared} bytes of shared memory does not fit"
        )
    if taken.together and taken.blocks > (room := device.sms * occupancy.blocks):
        raise ValueError(
            f"the kernel cannot be launched on {device.name}: its {taken.blocks} blocks wait for each other, "
            f"and there is room for {room} at a time"
        )
    window = window_of(sample, device, occupancy.blocks)
    if device.code not in counted:
        counted[device.code] = count_machine_code(compiled.code, sample)
    counts = counted[device.code]
    traffic = traffic_of(sample, device, window, shared)
    shape = Shape(taken.blocks, taken.warps, occupancy.blocks)
    prediction = predict(device, counts, traffic, shape)
    return Modelled(occupancy, counts, traffic, shape, prediction, lanes_of(sample))
