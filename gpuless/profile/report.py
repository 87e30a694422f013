"""What a profile says: a modelled time with its range, what bounds it and what would help."""

from __future__ import annotations

import linecache
import os
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from gpuless.inspector.architectures import Occupancy
from gpuless.positions import describe_launch
from gpuless.profile import advice, caches
from gpuless.profile.devices import Device
from gpuless.profile.units import SHARED_UNITS, UNITS
from gpuless.wrapping import aligned, wrapped

#: Of published times four of five lie between these multiples of the modelled ones.
LOW, HIGH = 0.85, 1.5
#: The same where the model is known to be worse: see `unsure`.
UNSURE_LOW, UNSURE_HIGH = 0.6, 2.5
_BUSY = 0.6  # a unit that works less than this does not bound a launch: latency does
_LITTLE_HELD_AGAINST = 5  # published times


@dataclass(frozen=True)
class Report:
    """How long a launch would take on a GPU. All of it is modelled; `print` it."""

    kernel: str
    grid: tuple
    block: tuple
    device: Device
    microseconds: float
    """Between the beginning of the launch and its end, on the GPU, with caches that hold nothing of it."""
    low: float
    high: float
    """Between these microseconds the time would be measured, four times out of five."""
    unsure: tuple
    """Why the range is wide, if it is."""
    limiter: str
    """What bounds the launch, and on which line."""
    occupancy: Occupancy
    busy: dict
    """How much of the time each unit works, by its name."""
    l1_hit_rate: float
    l2_hit_rate: float
    dram_bytes: float
    """Read from DRAM and written to it."""
    lines: dict
    """How much of the time each line of the source takes, by (file, line)."""
    advice: tuple
    """What to change, the most important first."""
    modelled: Any = field(repr=False)
    """What the model has found step by step: `gpuless.profile.launches.Modelled`."""
    measured: tuple = ()
    """On a real GPU: its name, and the microseconds that it took."""

    def with_measured(self, gpu: str, microseconds: float) -> Report:
        """Return the report with what a real GPU took."""
        return replace(self, measured=(gpu, microseconds))

    def __str__(self) -> str:
        launch = describe_launch(self.kernel, self.grid, self.block)
        between = f"between {time(self.low)} and {time(self.high)} four times out of five"
        text = [f"{launch} on {self.device.name}: {time(self.microseconds)} modelled; {between}", ""]
        rows = []
        if self.measured:
            gpu, microseconds = self.measured
            rows = [("measured", f"{time(microseconds)} on {gpu}")]
        rows += [("limited by", self.limiter), ("occupancy", self._occupancy()), ("busy", self._busy())]
        rows.append(("memory", self._memory()))
        rows += [("lines" if i == 0 else "", text_) for i, text_ in enumerate(self._lines())]
        rows += [("advice" if i == 0 else "", text_) for i, text_ in enumerate(self.advice)]
        rows += [("unsure" if i == 0 else "", text_) for i, text_ in enumerate(self.unsure)]
        for name, content in rows:
            text += wrapped(content, first=f"{name:12}", rest=" " * 12)
        return "\n".join(text)

    def _occupancy(self):
        found = self.occupancy
        blocks, warps = ("block" if found.blocks == 1 else "blocks"), self.modelled.shape.warps
        return (
            f"{found.blocks} {blocks} of {warps} warps on an SM, {found.fraction:.0%} of its warps; "
            f"limited by {' and '.join(found.limited_by)}"
        )

    def _busy(self):
        shown = sorted(self.busy.items(), key=lambda unit: -unit[1])
        return ", ".join(f"{unit} {share:.0%}" for unit, share in shown if share >= 0.005)

    def _memory(self):
        return (
            f"L1 has {self.l1_hit_rate:.0%} of what is loaded, L2 {self.l2_hit_rate:.0%} of the rest; "
            f"{amount(self.dram_bytes)} to and from DRAM"
        )

    def _lines(self):
        found = sorted(self.lines.items(), key=lambda line: (-line[1], line[0]))[:3]
        return [f"{share:.0%} {line_text(*place)}" for place, share in found if share >= 0.05]


class Comparison(tuple):
    """Reports of one launch on several GPUs; `print` shows them side by side."""

    def __str__(self) -> str:
        first = self[0]
        rows = [("modelled", *(report.device.name for report in self))]
        rows += [("time", *(time(report.microseconds) for report in self))]
        rows += [
            ("  from", *(time(report.low) for report in self)),
            ("  to", *(time(report.high) for report in self)),
        ]
        rows += [("occupancy", *(f"{report.occupancy.fraction:.0%}" for report in self))]
        for unit in (*UNITS, *SHARED_UNITS):
            if any(report.busy.get(unit, 0) >= 0.005 for report in self):
                rows.append((f"{unit} busy", *(f"{report.busy.get(unit, 0):.0%}" for report in self)))
        rows += [("L1 hits", *(f"{report.l1_hit_rate:.0%}" for report in self))]
        rows += [("L2 hits", *(f"{report.l2_hit_rate:.0%}" for report in self))]
        rows += [("DRAM", *(amount(report.dram_bytes) for report in self))]
        limits = [
            line
            for report in self
            for line in wrapped(report.limiter, first=f"{report.device.name:12}", rest=" " * 12)
        ]
        launch = describe_launch(first.kernel, first.grid, first.block)
        if first.measured:
            gpu, microseconds = first.measured
            launch += f": {time(microseconds)} measured on {gpu}"
        return "\n".join([launch, "", *aligned(rows), "", "limited by", *limits])


def report_of(kernel: Any, taken: Any, device: Device, compiled: Any, modelled: Any) -> Report:
    """Return the `Report` of what was modelled."""
    prediction, traffic, shape = modelled.prediction, modelled.traffic, modelled.shape
    unsure = _unsure(device, taken, modelled)
    low, high = (UNSURE_LOW, UNSURE_HIGH) if unsure else (LOW, HIGH)
    chain = prediction.chain / max(prediction.chain.sum(), 1e-300)
    lines: dict = defaultdict(float)
    for step, share in zip(modelled.counts.steps, chain, strict=True):
        lines[step.file, step.line] += float(share)
    return Report(
        kernel=kernel.py_func.__name__,
        grid=taken.grid,
        block=taken.block,
        device=device,
        microseconds=prediction.microseconds,
        low=low * prediction.microseconds,
        high=high * prediction.microseconds,
        unsure=unsure,
        limiter=_limiter(device, modelled),
        occupancy=modelled.occupancy,
        busy=prediction.busy,
        l1_hit_rate=float(traffic.l1_hit_rate),
        l2_hit_rate=float(traffic.l2_hit_rate),
        dram_bytes=float(traffic.dram_sectors * caches.SECTOR * shape.blocks * shape.warps / traffic.warps),
        lines=dict(lines),
        advice=advice.advise(device, compiled, modelled),
        modelled=modelled,
    )


def _unsure(device, taken, modelled):
    """Return why the model may be further off than usual."""
    found = []
    if device.rows < _LITTLE_HELD_AGAINST:
        found.append(f"the model of the {device.name} was held against {device.rows or 'no'} published times")
    if taken.block[0] * taken.block[1] * taken.block[2] < 32:
        found.append("blocks smaller than a warp take up to three times as long as modelled")
    if modelled.prediction.busy.get("atomics", 0) > 0.3:
        found.append("how atomic operations are spread over L2 is not known")
    if modelled.counts.missed:
        places = sorted({line_text(anchor.file, anchor.line) for anchor in modelled.counts.missed})
        found.append(f"the machine code could not be counted on {', '.join(places)}")
    return tuple(found)


def _limiter(device, modelled):
    """Return what bounds a launch, and the line that asks most of that."""
    prediction, counts = modelled.prediction, modelled.counts
    unit = max(prediction.busy, key=prediction.busy.get)
    if prediction.busy[unit] < _BUSY:
        place = _most(counts.steps, prediction.chain)
        have = modelled.occupancy.warps
        return f"latency: {have} warps of an SM wait most of the time, longest at {place}"
    if unit in UNITS:
        demands = prediction.costs.demands[:, UNITS.index(unit)] * counts.executed
        return f"{_NAMES[unit]}, most of it for {_most(counts.steps, demands)}"
    return f"{_NAMES[unit]}, most of it for {_most_of_memory(modelled.traffic, unit)}"


_NAMES = {
    "issue": "instructions: a partition issues one in a cycle",
    "fma": "float32 arithmetic",
    "multiply": "integer multiplication",
    "alu": "integer arithmetic, comparisons and logic",
    "float64": "float64 arithmetic",
    "special": "special functions and conversions",
    "L1": "L1 and shared memory: requests that they take one after the other",
    "L2": "L2: sectors that SMs ask for",
    "DRAM": "DRAM: bytes that are read and written",
    "fill": "what L1 takes from L2",
    "atomics": "atomic operations, which L2 does one after the other",
}


def _most(steps, amounts):
    """Return the line whose instructions have most of something."""
    sums = defaultdict(float)
    for step, amount_ in zip(steps, amounts, strict=True):
        sums[step.file, step.line] += amount_
    return line_text(*max(sorted(sums), key=sums.get))


def _most_of_memory(traffic, unit):
    columns = {"DRAM": (caches.DRAM, caches.STORED), "atomics": (caches.ATOMIC_LANES,)}
    columns = columns.get(unit, (caches.L2_LOADS, caches.STORED))
    sums = defaultdict(float)
    for (_, file, line), row in traffic.lines.items():
        sums[file, line] += sum(row[column] for column in columns)
    return line_text(*max(sorted(sums), key=sums.get))


def line_text(file: str, line: int) -> str:
    """Return a line as reports name it, with its text."""
    text = linecache.getline(file, line).strip()
    return f"line {line}: `{text}`" if text else f"line {line} of {os.path.basename(file) or 'a library'}"


def time(microseconds: float) -> str:
    """Return a time as text.

    >>> time(3.21), time(812.42), time(54210.0)
    ('3.21 us', '812 us', '54.2 ms')
    """
    if microseconds >= 10_000:
        return f"{microseconds / 1e3:.3g} ms" if microseconds < 1e6 else f"{microseconds / 1e6:.3g} s"
    return f"{microseconds:.3g} us" if microseconds < 1000 else f"{microseconds:.0f} us"


def amount(bytes_: float) -> str:
    """Return an amount of memory as text.

    >>> amount(1234.0), amount(8.4e6)
    ('1.23 kB', '8.4 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_ >= size:
            return f"{bytes_ / size:.3g} {unit}"
    return f"{bytes_:.0f} B"
