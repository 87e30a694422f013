"""Profile a launch: run a window of its blocks, count, simulate caches, and model its time on a GPU."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Iterable
from typing import Any, NamedTuple

from gpuless import frontends
from gpuless.inspector.architectures import occupancy_on
from gpuless.profile.devices import Device, device as device_of

_WORDS = 1 << 24  # of requests that are recorded
_INSTRUCTIONS = 1 << 28  # of warps that are run
_FEWEST_SMS = 4


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
        if not hasattr(launch, "dispatcher") or not hasattr(launch, "griddim"):
            raise TypeError(
                "launch must be a kernel with its launch configuration, kernel[grid, block], "
                f"got {reprlib.repr(launch)}"
            )
        self._launch, self._several = launch, several
        self._devices = [device_of(gpu) for gpu in gpus]
        if not self._devices:
            raise ValueError("gpu names no GPU at all")

    def __call__(self, *arguments):
        """Return the `Report` of a launch with these arguments; a `Comparison` if several GPUs were named."""
        from gpuless.emulator.run import recording
        from gpuless.profile.report import Comparison

        need_emulator()
        outcomes = []

        def take(launch):  # while arrays that Numba has copied for it are there
            try:
                outcomes.append(reports_of(self._launch.dispatcher, launch, self._devices))
            except BaseException as error:  # the driver would make another one of it
                outcomes.append(error)

        with recording.taken_launches(take):
            self._launch(*arguments)
        if not outcomes:
            raise RuntimeError("nothing was launched: its stream captures a graph, and is not profiled")
        if isinstance(outcomes[0], BaseException):
            raise outcomes[0]
        return Comparison(outcomes[0]) if self._several else outcomes[0][0]


def reports_of(kernel: Any, taken: Any, devices: list[Device]) -> list[Any]:
    """Return the `Report` of a `TakenLaunch` of a kernel on each device."""
    from gpuless.profile.machine_code import machine_codes
    from gpuless.profile.report import report_of

    codes = machine_codes(kernel, taken, {device.code: None for device in devices})
    recorded, reports = {}, []
    for device in devices:
        compiled = codes[device.code]
        reports.append(
            report_of(kernel, taken, device, compiled, _modelled(device, taken, compiled, recorded))
        )
    return reports


class Modelled(NamedTuple):
    """What is known of a launch on a device, step by step."""

    occupancy: Any
    counts: Any
    traffic: Any
    shape: Any
    prediction: Any


def _modelled(device: Device, taken, compiled, recorded):
    """Return what the model says of a launch on a device, as `Modelled`.

    `recorded`: recordings by how many blocks they have; those that are missing are added.
    """
    from gpuless.profile.model import Shape, predict
    from gpuless.profile.sass_counts import count_machine_code
    from gpuless.profile.traffic import traffic_of

    threads, shared = math.prod(taken.block), compiled.shared + taken.shared
    occupancy = occupancy_on(device.sm, threads, compiled.registers, shared)
    if not occupancy.blocks:
        raise ValueError(
            f"the kernel cannot be launched on {device.name}: a block of {threads} threads with "
            f"{compiled.registers} registers each and {shared} bytes of shared memory does not fit"
        )
    window = _window(taken, device, occupancy.blocks, recorded)
    count = window.blocks
    if count not in recorded:
        recorded[count] = taken.record((taken.blocks - count) // 2, count)
    recording = recorded[count]
    counts = count_machine_code(compiled.code, recording)
    traffic = traffic_of(recording, device, window, shared)
    shape = Shape(taken.blocks, taken.warps, occupancy.blocks)
    return Modelled(occupancy, counts, traffic, shape, predict(device, counts, traffic, shape))


def _window(taken, device, resident, recorded):
    """Return the `Window` of a launch that is run.

    A block in the middle of the grid says how much one block is.
    """
    from gpuless.profile.traffic import WAVES, Window

    if 1 not in recorded:
        recorded[1] = taken.record(taken.blocks // 2, 1)
    probe = recorded[1]
    instructions = sum(warps * len(part) for warps, part in zip(probe.executed, probe.listings, strict=True))
    affordable = min(_WORDS // max(1, probe.words.size), _INSTRUCTIONS // max(1, instructions))
    if taken.blocks <= device.sms * resident:  # all blocks at once, a few on each SM
        resident = math.ceil(taken.blocks / device.sms)
        sms = min(device.sms, taken.blocks, max(_FEWEST_SMS, affordable // resident))
        return Window(sms, resident, min(taken.blocks, math.ceil(taken.blocks * sms / device.sms)), 0)
    waves = min(WAVES, taken.blocks / (device.sms * resident))
    sms = min(device.sms, max(_FEWEST_SMS, int(affordable / (waves * resident))))
    count = min(taken.blocks, math.ceil(waves * resident * sms))
    return Window(sms, resident, count, sms * resident if waves == WAVES and count < taken.blocks else 0)
