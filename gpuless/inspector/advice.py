"""Advice on what to change in a kernel's source, from its compiled code."""

import linecache
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from gpuless.inspector.architectures import ARCHITECTURES, registers_for
from gpuless.inspector.assembly import address, called, makes_index_wrap, memory_bits
from gpuless.inspector.float64 import float64_causes, source_of
from gpuless.limits import SHARED_LIMIT, WARP

_NEIGHBOURS = 4  # 32-bit loads that one 128-bit load replaces
_LOW_OCCUPANCY = 0.5
_FEW_WRAPS = 3  # a kernel that indexes two vectors once has so many, at no noticeable cost


class Advice(NamedTuple):
    """One thing to change."""

    topic: str
    """One of: launch, float64, spills, local memory, index, load, division, reshape, layout, occupancy."""
    text: str
    file: str = ""
    line: int = 0
    """Where to change it; 0 if there is no single line."""
    elsewhere: bool = False
    """Whether `file` is not the kernel's: a kernel contains the code of its device functions."""

    def __str__(self):
        file = f"({Path(self.file).name}) " if self.elsewhere else ""
        return f"line {self.line}: {file}{self.text}" if self.line else self.text


def advise(report):
    """Return a tuple of `Advice` for a kernel, the most important first."""
    rules = (_launch, _float64, _spills, _local_arrays, _indices, _loads, _divisions, _reshapes, _layouts)
    linecache.checkcache()
    found = [advice for rule in (*rules, _occupancy) for advice in rule(report)]
    return tuple(
        advice._replace(elsewhere=bool(advice.line) and advice.file != report.file) for advice in found
    )


def _lines(lines):
    """Return line numbers as text: "line 3", "lines 3, 4 and 9"."""
    *most, last = sorted(lines)
    return f"lines {', '.join(map(str, most))} and {last}" if most else f"line {last}"


def _at(topic, file, lines, text):
    """Return advice for the first of some lines; "{here}" in its text also names the others."""
    first, *others = sorted(lines)
    here = f"here and in {_lines(others)}" if others else "here"
    return Advice(topic, text.format(here=here), file, first)


# --- the launch --------------------------------------------------------------------------------------------


def _launch(report):
    threads = report.occupancy.threads_per_block
    if report.occupancy.limits["registers"] == 0:
        yield Advice(
            "launch",
            f"a block of {threads} threads cannot be launched: with {report.registers} registers each they "
            f"need more than the 65536 of an SM; use smaller blocks or launch_bounds={threads}",
        )
    if report.occupancy.limits["shared memory"] == 0:
        yield Advice(
            "launch",
            f"the kernel cannot be launched: {report.shared_bytes} bytes of shared arrays and "
            f"{report.dynamic_shared} dynamic ones are more than a block's {SHARED_LIMIT}",
        )
    if report.launch_bounds and threads > report.launch_bounds:
        yield Advice(
            "launch",
            f"a block of {threads} threads cannot be launched: launch_bounds promises "
            f"at most {report.launch_bounds}",
        )
    if threads % WARP:
        yield Advice(
            "occupancy",
            f"a block of {threads} threads leaves {-threads % WARP} of the last warp's 32 idle: "
            "use a multiple of 32",
        )


def _occupancy(report):
    found, sm = report.occupancy, ARCHITECTURES[report.cc]
    if not found.blocks or found.fraction >= _LOW_OCCUPANCY:
        return
    text = (
        f"{' and '.join(found.limited_by)} let an SM run {found.warps} of {sm.warps} warps "
        f"({found.fraction:.0%}) in blocks of {found.threads_per_block}"
    )
    if found.limited_by == ("registers",):
        fewer = registers_for(report.cc, found.threads_per_block, found.blocks + 1)
        text += f"; {fewer} registers instead of {report.registers} would fit another block"
    yield Advice("occupancy", text)


# --- float64 -----------------------------------------------------------------------------------------------


_TRIGONOMETRY = (
    "sin, cos and tan take a detour through float64 for large arguments",
    "fastmath=True takes the hardware's approximation instead",
)


def _float64(report):
    doubles = [name for name, kind in report.arguments.items() if "float64" in kind]
    speed = f"float64 runs at {ARCHITECTURES[report.cc].float64} of float32's speed"
    if doubles and report.float64:
        yield Advice("float64", f"{' and '.join(doubles)} of the signature are float64; {speed}")
        return
    # If an array is reshaped, lines without a cause are numba's own.
    reshapes = any(_reshapes(report))
    for file, line, kind, what, remedy, lines in float64_causes(report.instructions):
        others = set(lines) - {line}
        consequence = f", which makes {_lines(others)} float64 too" if others else ""
        if kind == "trigonometry":
            yield Advice("float64", f"{_TRIGONOMETRY[0]}{consequence}: {_TRIGONOMETRY[1]}", file, line)
        elif kind:
            yield Advice("float64", f"`{what}` is float64{consequence}: write `{remedy}`", file, line)
        elif not reshapes:
            yield Advice(
                "float64",
                "float64 arithmetic: an operand is float64, or an integer meets a float32, which gives "
                "float64",
                file,
                line,
            )


# --- memory ------------------------------------------------------------------------------------------------


def _spills(report):
    if report.spill_bytes:
        yield Advice(
            "spills",
            f"{report.registers} registers are not enough, {report.spill_bytes} bytes per thread spill to "
            "memory: keep fewer values alive (a smaller tile), or allow more registers (launch_bounds, "
            "max_registers)",
        )


def _places(instructions):
    """Return {file: set of lines} for the instructions whose line is known."""
    places = defaultdict(set)
    for instruction in instructions:
        if instruction.line:
            places[instruction.file].add(instruction.line)
    return places


def _local_arrays(report):
    # The assembler may keep in registers what PTX keeps in memory.
    if report.spill_bytes or not report.local_bytes:
        return
    used = _places(i for i in report.instructions if i.kind in ("local load", "local store"))
    for file, lines in used.items():
        by_name = defaultdict(set)
        for line in lines:
            for name in source_of(file).subscripted(line) & source_of(file).local_arrays(line):
                by_name[name].add(line)
        for name, places in by_name.items():
            yield _at(
                "local memory",
                file,
                places,
                f"{name} lies in memory, not in registers, because an index is known only at run time, "
                "{here}: index it by constants or by loops over literal ranges",
            )


def _indices(report):
    wraps = [i for i in report.instructions if makes_index_wrap(i)]
    for file, lines in _places(wraps).items():
        lines = {line for line in lines if source_of(file).subscripted(line)}
        total = sum(1 for i in wraps if i.file == file and i.line in lines)
        if total > _FEW_WRAPS:
            yield _at(
                "index",
                file,
                lines,
                f"{total} instructions {{here}} ask whether an index is negative, to count it from the end "
                "as Python does: make indices unsigned, `uint32(cuda.grid(1))`, `range(uint32(n))`",
            )


def _loads(report):
    offsets = defaultdict(set)
    for i in report.instructions:
        if i.kind in ("global load", "shared load") and memory_bits(i) == 32 and address(i):
            base, offset = address(i)
            offsets[i.file, i.line, i.kind, base].add(offset)
    lines = defaultdict(set)
    for (file, line, kind, _), found in offsets.items():
        if any({start + 4 * n for n in range(_NEIGHBOURS)} <= found for start in found):
            lines[file, kind.partition(" ")[0]].add(line)
    for (file, memory), numbers in lines.items():
        yield _at(
            "load",
            file,
            numbers,
            f"neighbours in {memory} memory are read one by one, 32 bits at a time, {{here}}: a 128-bit load "
            "fetches four floats at once, where the address is a multiple of 16",
        )


# --- the rest ----------------------------------------------------------------------------------------------


_WIDE_DIVISIONS = ("div_s64", "div_u64", "rem_s64", "rem_u64", "div.s64", "div.u64", "rem.s64", "rem.u64")


_DIVISION = (
    "`//` or `%` of 64-bit integers",
    "make both sides uint32, or divide once, outside the loop",
)
_ROUNDS = (
    "counting the rounds of a loop by a variable, 64-bit step",
    "write the step as a literal, or give `range` int32 alone, `range(int32(i), int32(n), int32(step))`",
)


def _divisions(report):
    """Find the divisions that call a subroutine."""
    found = [i for i in report.instructions if (called(i) or i.opcode).endswith(_WIDE_DIVISIONS)]
    for file, lines in _places(found).items():
        written = {line for line in lines if source_of(file).divides(line)}
        counted = {line for line in lines - written if source_of(file).counts_rounds(line)}
        for here, what, remedy in ((written, *_DIVISION), (counted, *_ROUNDS)):
            if here:
                text = f"{what}, {{here}}, calls a subroutine of about 100 instructions: {remedy}"
                yield _at("division", file, here, text)


def _reshapes(report):
    """Find the arrays that are reshaped in the kernel; the instructions may be attributed to other lines."""
    for file, used in _places(report.instructions).items():
        lines = set().union(*(source_of(file).reshapes(line) for line in used))
        if lines:
            yield _at(
                "reshape",
                file,
                lines,
                "`reshape`, {here}, works out strides at run time, by hundreds of instructions and in local "
                "memory: reshape before the launch, or compute the index",
            )


def _layouts(report):
    strided = [name for name, kind in report.arguments.items() if "[:" in kind and "::1" not in kind]
    if strided:
        yield Advice(
            "layout",
            f"{' and '.join(strided)} may have gaps between elements, so every access multiplies by strides: "
            "write `[:, ::1]` for contiguous arrays in the signature",
        )
