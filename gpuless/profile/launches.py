"""Profile a launch: run some of its blocks, count, simulate the caches, and model its time on a GPU."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable
from typing import Any, NamedTuple

from gpuless import frontends, selection
from gpuless.inspector.architectures import occupancy_on
from gpuless.profile.devices import Device, devices_of


def need_emulator() -> None:
    """Raise a RuntimeError if kernels do not run on the emulated GPU."""
    if not frontends.installed():
        raise RuntimeError(
            "profile runs kernels on the emulated GPU, and here they run on something else: "
            "set GPULESS=emulator, and call gpuless.select() before anything is launched"
        )


class Profiled:
    """A launch that is modelled when it is called with its arguments."""

    def __init__(self, launch: Any, gpu: Any) -> None:
        if frontends.launch_of(launch) is None:
            name = getattr(getattr(launch, "py_func", None), "__name__", None)
            got = f"{name} without one: write {name}[grid, block]" if name else reprlib.repr(launch)
            raise TypeError(f"launch must be a kernel with its launch configuration, got {got}")
        self._launch = launch
        self._devices, self._several = devices_of(gpu)

    def __call__(self, *arguments: Any) -> Any:
        """Return the `Report` of a launch with these arguments, or a `Comparison` if `gpu` named several."""
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
    """Return what a function would launch, as one list of reports per launch, one report per device."""
    need_emulator()
    from gpuless.emulator.run import recording
    from gpuless.profile.windows import sample_of

    launches, errors = [], []

    def take(taken):  # samples at once: afterwards Numba frees the arrays that it copied for the launch
        try:
            launches.append((taken.source.kernel(), taken, sample_of(taken)))
        except BaseException as error:  # the driver would replace it by an error of its own
            errors.append(error)

    with recording.taken_launches(take):
        function()
    if errors:
        raise errors[0]
    return all_reports_of(launches, devices)


def all_reports_of(launches: list[tuple], devices: list[Device]) -> list[list[Any]]:
    """Return one list of reports per launch, one report per device.

    `launches` holds a kernel, its `TakenLaunch` and its `Sample` each. Memory isn't read, so they may already
    have taken place.
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
    """The results of each step of the model, for a launch on a device."""

    occupancy: Any
    counts: Any
    traffic: Any
    shape: Any
    prediction: Any
    lanes: Any


def _modelled(device: Device, taken: Any, compiled: Any, sample: Any, counted: dict[tuple, Any]) -> Modelled:
    """Model a launch on a device. `counted` caches the machine code's counts by compute capability."""
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
