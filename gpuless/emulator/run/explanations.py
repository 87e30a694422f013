"""Error messages for launches that failed or were stopped: what went wrong, and where."""

import ctypes
import signal
from typing import NamedTuple

from gpuless.emulator.ptx.instructions import readable
from gpuless.emulator.run.faults import STUCK, Fault, read_field
from gpuless.emulator.translate.host import STOP
from gpuless.emulator.translate.layout import (
    BARRIERS,
    LOCAL_SPAN,
    MAX_WARPS,
    PRIVATE_GAP,
    PRIVATE_MARGIN,
    PRIVATE_SPAN,
    SHARED_SPAN,
    STACK,
)
from gpuless.limits import RUNNING, WARP
from gpuless.positions import coordinates


class Launched(NamedTuple):
    """A launch, as messages describe it."""

    kernel: object
    grid: tuple
    block: tuple
    arguments: bytes
    shared_size: int
    arena: object

    @property
    def name(self):
        """The kernel's name in the source."""
        return readable(self.kernel.name)

    def given(self, step=None):
        """Return the kernel's array arguments, by the index of the parameter.

        With a step, only the array that it accesses, if that is known.
        """
        found = {}
        for i, variable in enumerate(self.kernel.function.parameters):
            at = self.kernel.places[variable.name]
            if variable.size == 8:
                found[i] = self.arena.find(int.from_bytes(self.arguments[at : at + 8], "little"))
        found = {i: array for i, array in found.items() if array is not None}
        accessed = {i: found[i] for i in step.parameters() if i in found} if step is not None else {}
        return accessed or found

    def nearest(self, address, step):
        """Return the array argument nearest to an address, else the nearest allocation, or None."""
        given = self.given(step if step is not None and step.site.size else None).values()
        return min(given, key=lambda array: array.away(address), default=self.arena.nearest(address))


class Stopped(NamedTuple):
    """A launch that was stopped before its end.

    `waiting`: the records of blocks that wait at a barrier of the grid; `alone`: whether the blocks that they
    wait for have ended; `ended`, `running`: how many blocks had ended, and were running.
    """

    blocks: int
    waiting: list
    alone: bool
    ended: int
    running: int


def explain_stop(stopped, failed, launched):
    """Return the `Fault` of a launch that was stopped.

    `failed`: the block that did not end or reach the barrier.
    """
    waiting = f"{len(stopped.waiting)} blocks wait at grid.sync()"
    if stopped.alone:
        return Fault(
            "limit", f"kernel {launched.name}: {waiting}, to which others have not come before they ended"
        )
    message = f"no block of kernel {launched.name} has ended for {RUNNING.kernel_seconds:g} s"
    if failed is not None:
        step = next((step for step in failed.steps if step.warp == failed.warp), None)
        where = _where(failed, launched, _lane(failed, step, launched.arena))
        message += f": {where}{' does not come there' if stopped.waiting else ''}{_on_line(step)}\n  "
    else:
        message += "; "
    late = stopped.blocks - stopped.ended - stopped.running
    message += f"{stopped.ended} of {stopped.blocks} blocks had ended, {late} had not started. "
    if stopped.waiting:
        message += f"{waiting}. "
    elif late:
        message += "Does it wait for what a block that has not started would write? "
    more = "gpuless.set_limits(kernel_seconds=...), or GPULESS_KERNEL_SECONDS, allows more"
    return Fault("limit", f"{message}Is a loop without end? {more}")


def explain(failed, launched):
    """Return the `Fault` of a launch that failed.

    `failed`: a `Failure`; it has steps if the block was traced.
    """
    if failed.outcome == STUCK:
        return Fault("barrier", _explain_barriers(failed, launched))
    step = next((step for step in failed.steps if step.warp == failed.warp), None)
    lane = _lane(failed, step, launched.arena)
    where = _where(failed, launched, lane) + _on_line(step)
    if step is None and failed.outcome != STOP:
        where += f"; {_ADVICE}"
    if failed.outcome == STOP:
        return Fault("stopped", f"stopped: {where}")
    if failed.outcome == signal.SIGFPE:
        return Fault("arithmetic", f"arithmetic that cannot be done: {where}")
    if failed.misaligned:
        return Fault("misaligned", f"{_misaligned(step, lane)}: {where}")
    if failed.outcome == signal.SIGILL:
        return Fault("trap", f"{_trap(step)}: {where}")
    accesses = lane is not None and step.site.size
    if _is_stack(failed, launched.arena) and not accesses:
        return Fault("stack", f"a stack overflow (is a recursion endless?): {where}")
    return Fault("address", f"{_address(failed, launched, step, lane)}: {where}")


def _lane(failed, step, arena):
    """Return the lane that caused the fault, None if unknown."""
    if step is None or not step.lanes:
        return None
    if not step.site.size or failed.outcome == STOP:
        return step.lanes[0]
    return step.misaligned_lane() if failed.misaligned else step.lane_at(failed.address, arena)


def _trap(step):
    instruction = step.site.instruction if step else None
    if instruction is not None and instruction.opcode[0] in ("bar", "barrier"):
        return f"a barrier with a number above {BARRIERS - 2}, which no block has"
    return "a trap"


def _misaligned(step, lane):
    if lane is None:
        return "a misaligned address"
    size, address = step.site.size, step.addresses[lane]
    return f"a misaligned address, {step.site.verb} {size} bytes at {address:#x}, no multiple of {size}"


def _where(failed, launched, lane):
    """Name the kernel, the block, and the thread or the threads of the warp."""
    first = WARP * failed.warp
    size = launched.block[0] * launched.block[1] * launched.block[2]
    threads = f"among threads {first} to {min(first + WARP, size) - 1} of it"
    if lane is not None:
        threads = f"thread {coordinates(first + lane, launched.block)}"
    return f"kernel {launched.name}, block {failed.place}, {threads}"


def _on_line(step):
    return f"\n  {step.line}" if step is not None and step.line else ""


def _explain_barriers(failed, launched):
    message = (
        f"kernel {launched.name}, block {failed.place}: all its warps wait at barriers that others will not "
        "reach: every thread of a block must come to the same syncthreads"
    )
    waiting = {}
    for step in failed.steps:
        waiting.setdefault(step.line, []).append(str(step.warp))
    if not any(waiting):
        return f"{message}; {_ADVICE}"
    for line, warps in waiting.items():
        message += f"\n  warp{'s' if len(warps) > 1 else ''} {', '.join(warps)}: {line}"
    return message


_ADVICE = "gpuless.sanitize(kernel)[grid, block](...) tells the thread and the line"


def _is_stack(failed, arena):
    """Return whether the failed access was beyond the end of a stack.

    All addresses of a kernel are in the arena, so any other is on the worker thread's own stack.
    """
    if not arena.base <= failed.address < arena.end:
        return True
    local = read_field(failed.record, "local", ctypes.c_uint64)
    stacks = read_field(failed.record, "stack.area", ctypes.c_uint64)
    distance = failed.address - local
    return 0 <= distance < LOCAL_SPAN + PRIVATE_GAP or 0 <= failed.address - stacks < STACK * MAX_WARPS


def _address(failed, launched, step, lane):
    """Describe the address that was accessed and the array nearest to it."""
    address = shown = failed.address
    if address - launched.arena.base < PRIVATE_MARGIN:  # the kernel computed a small number
        shown -= launched.arena.base
    what = "an illegal memory access"
    if lane is not None and step.site.size:  # else at the end of a basic block
        address, shown = step.real(lane), step.addresses[lane]
        what = f"an illegal memory access, {step.site.verb} {step.site.size} bytes"
    at = address - read_field(failed.record, "shared", ctypes.c_uint64)
    if 0 <= at < SHARED_SPAN:
        if shown != address:  # an offset in shared memory
            at = shown - (1 << 64) if shown >> 63 else shown
        return f"{what} at {_in_shared(at, launched)}"
    if PRIVATE_MARGIN <= address - launched.arena.base < PRIVATE_SPAN:
        return f"{what} outside of a thread's local memory"
    nearest = launched.nearest(address, step)
    text = f"{what} at {shown:#x}"
    if shown != address and shown >> 32:
        return f"{text}, no address of the GPU's memory: is it the host's?"
    if nearest is None or shown != address:
        return text
    array = f"an array of {nearest.size} bytes{_argument(nearest, launched, step)}"
    behind = address - nearest.address - nearest.size
    if behind >= 0:
        return f"{text}, {behind} bytes past the end of {array}"
    return f"{text}, {max(nearest.address - address, 0)} bytes before {array}"


def _in_shared(at, launched):
    size = launched.shared_size
    text = f"byte {at} of shared memory, of which the block has {size}"
    return text if size else f"{text} (kernel[grid, block, stream, bytes] gives it some)"


def _argument(allocation, launched, step):
    """Return the name of an array argument in brackets, "" if it is none."""
    names = step.traced.origin.names if step is not None else []
    found = [i for i, array in launched.given().items() if array == allocation]
    named = dict.fromkeys(names[i] for i in found if i < len(names))
    if named:
        return f" ({', '.join(named)})"
    return f" (parameter {found[0]} of the kernel)" if found else ""
