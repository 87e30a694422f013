"""The report of a profile: a modelled time with its range, what bounds it and what would help."""

from __future__ import annotations

import linecache
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from gpuless.inspector.architectures import Occupancy
from gpuless.positions import describe_launch
from gpuless.profile import advice, caches
from gpuless.profile.devices import Device
from gpuless.profile.metrics import metrics_of
from gpuless.profile.stalls import stalls_of
from gpuless.profile.texts import amount, line_text, time
from gpuless.profile.units import SHARED_UNITS, UNITS
from gpuless.wrapping import aligned, wrapped

#: Four of five published times lie between these multiples of the modelled ones.
LOW, HIGH = 0.85, 1.5
#: The same if the model is known to be worse: see `Report.unsure`.
UNSURE_LOW, UNSURE_HIGH = 0.6, 2.5
_LINES, _LEAST_OF_A_LINE = 5, 0.03
_BUSY = 0.6  # if all units work less than this, latency bounds the launch
_FEW_ROWS, _LARGE_ERROR = 5, 0.2  # published times; mean error on these


@dataclass(frozen=True)
class Report:
    """How long a launch would take on a GPU. All times but `measured` are modelled; `print` it."""

    kernel: str
    grid: tuple
    block: tuple
    device: Device
    microseconds: float
    """From the beginning of the launch to its end, on the GPU, with cold caches."""
    low: float
    high: float
    """The range in which a measured time would lie, four times out of five, in microseconds."""
    unsure: tuple
    """Why the range is wide, if it is."""
    limiting_line: tuple
    """The source line that contributes most to what bounds the launch: its file and number."""
    occupancy: Occupancy
    busy: dict
    """The share of the time for which each unit works, by name."""
    l1_hit_rate: float
    l2_hit_rate: float
    dram_bytes: float
    """Read from DRAM and written to it."""
    flops: dict
    """Floating point operations of the launch by type, such as "f32"; a multiply-add counts as two."""
    stalls: dict
    """What a warp spends its time on: shares that sum to 1, by Nsight Compute's names of stall reasons."""
    line_stalls: dict = field(repr=False)
    """The same for each source line, by (file, line); the shares of all lines sum to 1."""
    metrics: dict = field(repr=False)
    """Values that have the meaning of Nsight Compute's metrics, by their names there."""
    advice: tuple
    """What to change, the most important first."""
    modelled: Any = field(repr=False)
    """The results of each step of the model: `gpuless.profile.launches.Modelled`."""
    measured: tuple = ()
    """On a real GPU: its name, and the microseconds that the launch took."""

    def with_measured(self, gpu: str, microseconds: float) -> Report:
        """Return a copy with the time that a real GPU took."""
        return replace(self, measured=(gpu, microseconds))

    def __str__(self) -> str:
        launch = describe_launch(self.kernel, self.grid, self.block)
        text = [*wrapped(f"{launch} on {self.device.name}: {time(self.microseconds)} modelled"), ""]
        rows = [("range", f"{time(self.low)} to {time(self.high)}, four times out of five")]
        if self.measured:
            gpu, microseconds = self.measured
            rows += [("measured", f"{time(microseconds)} on {gpu}")]
        rows += [("limited by", self.limiter), ("occupancy", self._occupancy()), ("busy", self._busy())]
        rows += [("memory", self._memory()), ("warps", self._stalls())]
        rows += [("lines" if i == 0 else "", text_) for i, text_ in enumerate(self._lines())]
        rows += [("advice" if i == 0 else "", text_) for i, text_ in enumerate(self.advice)]
        rows += [("unsure" if i == 0 else "", text_) for i, text_ in enumerate(self.unsure)]
        for name, content in rows:
            text += wrapped(content, first=f"{name:12}", rest=" " * 12)
        return "\n".join(text)

    @property
    def lines(self) -> dict:
        """The share of the time that each source line takes, by (file, line)."""
        return {place: sum(shares.values()) for place, shares in self.line_stalls.items()}

    @property
    def bound(self) -> str:
        """What bounds the launch: the busiest unit, or "latency" if none is busy enough."""
        return _bound(self.busy)

    @property
    def bottleneck(self) -> str:
        """What bounds the launch, in words."""
        return "".join(LIMITS[self.bound]).format(warps=self.occupancy.warps)

    @property
    def limiter(self) -> str:
        """What bounds the launch, and on which line."""
        how = "longest at" if self.bound == "latency" else "most of it for"
        return f"{self.bottleneck}, {how} {line_text(*self.limiting_line)}"

    def plot(self) -> Any:
        """Draw how busy the units are, a roofline, and the time per source line.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from gpuless.profile.plots import plot_report

        return plot_report(self)

    def to_dict(self) -> dict:
        """Return the report as values that JSON can hold."""
        names = "kernel grid block microseconds low high unsure limiter busy measured l1_hit_rate l2_hit_rate"
        names += " dram_bytes flops stalls advice metrics"
        lines = [
            {"file": file, "line": line, "text": linecache.getline(file, line).strip(), "stalls": stalls}
            for (file, line), stalls in self._by_time()
        ]
        same = {name: getattr(self, name) for name in names.split()}
        found = {"modelled": True, "gpu": self.device.name} | same
        return found | {"occupancy": self.occupancy._asdict(), "lines": lines}

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

    def _stalls(self):
        found = sorted(self.stalls.items(), key=lambda stall: -stall[1])
        return ", ".join(f"{reason} {share:.0%}" for reason, share in found if share >= 0.005)

    def _by_time(self):
        shares = self.lines
        return sorted(self.line_stalls.items(), key=lambda line: (-shares[line[0]], line[0]))

    def _lines(self):
        return [
            f"{share:.0%} {max(stalls, key=stalls.get)}, {line_text(*place)}"
            for place, stalls in self._by_time()[:_LINES]
            if (share := sum(stalls.values())) >= _LEAST_OF_A_LINE
        ]


class Comparison(tuple):
    """Reports of one launch on several GPUs; `print` shows them side by side."""

    def __str__(self) -> str:
        first = self[0]
        rows = [
            ("modelled", *(report.device.name for report in self)),
            ("time", *(time(report.microseconds) for report in self)),
            ("  from", *(time(report.low) for report in self)),
            ("  to", *(time(report.high) for report in self)),
            ("occupancy", *(f"{report.occupancy.fraction:.0%}" for report in self)),
        ]
        for unit in (*UNITS, *SHARED_UNITS):
            if any(report.busy.get(unit, 0) >= 0.005 for report in self):
                rows.append((f"{unit} busy", *(f"{report.busy.get(unit, 0):.0%}" for report in self)))
        rows += [
            ("L1 hits", *(f"{report.l1_hit_rate:.0%}" for report in self)),
            ("L2 hits", *(f"{report.l2_hit_rate:.0%}" for report in self)),
            ("DRAM", *(amount(report.dram_bytes) for report in self)),
        ]
        limits = [
            line
            for report in self
            for line in wrapped(report.limiter, first=f"{report.device.name:12}", rest=" " * 12)
        ]
        launch = describe_launch(first.kernel, first.grid, first.block)
        if first.measured:
            gpu, microseconds = first.measured
            launch += f": {time(microseconds)} measured on {gpu}"
        return "\n".join([*wrapped(launch), "", *aligned(rows), "", "limited by", *limits])


def report_of(kernel: Any, taken: Any, device: Device, compiled: Any, modelled: Any) -> Report:
    """Return the `Report` of a modelled launch."""
    prediction, traffic, shape = modelled.prediction, modelled.traffic, modelled.shape
    unsure = _unsure(device, taken, modelled)
    low, high = (UNSURE_LOW, UNSURE_HIGH) if unsure else (LOW, HIGH)
    stalls = stalls_of(device, modelled)
    return Report(
        kernel=kernel.py_func.__name__,
        grid=taken.grid,
        block=taken.block,
        device=device,
        microseconds=prediction.microseconds,
        low=low * prediction.microseconds,
        high=high * prediction.microseconds,
        unsure=unsure,
        limiting_line=_limiting_line(modelled),
        occupancy=modelled.occupancy,
        busy=prediction.busy,
        l1_hit_rate=float(traffic.l1_hit_rate),
        l2_hit_rate=float(traffic.l2_hit_rate),
        dram_bytes=float(traffic.dram_sectors * caches.SECTOR * shape.blocks * shape.warps / traffic.warps),
        flops={
            type_: number * shape.blocks * shape.warps
            for type_, number in sorted(modelled.lanes.flops.items())
        },
        stalls=stalls.shares,
        line_stalls=stalls.lines,
        metrics=metrics_of(device, taken, compiled, modelled, stalls),
        advice=advice.advise(device, compiled, modelled),
        modelled=modelled,
    )


def _unsure(device, taken, modelled):
    """Return why the model may be less accurate than usual."""
    found = []
    if device.rows < _FEW_ROWS:
        found.append(f"the model of the {device.name} was held against {device.rows or 'no'} published times")
    elif device.error > _LARGE_ERROR:
        found.append(
            f"of {device.rows} published times on the {device.name} the model is {device.error:.0%} off"
        )
    if taken.block[0] * taken.block[1] * taken.block[2] < 32:
        found.append("blocks smaller than a warp take up to three times as long as modelled")
    if modelled.prediction.busy.get("atomics", 0) > 0.3:
        found.append("how atomic operations are spread over L2 is not known")
    if modelled.counts.missed:
        places = sorted({line_text(anchor.file, anchor.line) for anchor in modelled.counts.missed})
        found.append(f"the machine code could not be counted on {', '.join(places)}")
    return tuple(found)


def _bound(busy):
    unit = max(busy, key=busy.get)
    return unit if busy[unit] >= _BUSY else "latency"


#: What bounds a launch, by `Report.bound`: its name, and more about it.
LIMITS = {
    "latency": ("latency", ": {warps} warps of an SM wait most of the time"),
    "issue": ("instructions", ": a partition issues one in a cycle"),
    "fma": ("float32 arithmetic", ""),
    "multiply": ("integer multiplication", ""),
    "alu": ("integer arithmetic, comparisons and logic", ""),
    "float64": ("float64 arithmetic", ""),
    "special": ("special functions and conversions", ""),
    "L1": ("L1 and shared memory", ": requests that they take one after the other"),
    "L2": ("L2", ": sectors that SMs ask for"),
    "DRAM": ("DRAM", ": bytes that are read and written"),
    "fill": ("what L1 takes from L2", ""),
    "atomics": ("atomic operations, which L2 does one after the other", ""),
}


def _limiting_line(modelled):
    """Return the line that contributes most to what bounds a launch."""
    prediction, counts = modelled.prediction, modelled.counts
    unit = _bound(prediction.busy)
    if unit == "latency":
        return _most(counts.steps, prediction.chain)
    if unit in UNITS:
        return _most(counts.steps, prediction.costs.demands[:, UNITS.index(unit)] * counts.executed)
    return _most_of_memory(modelled.traffic, unit)


def _most(steps, amounts):
    """Return the line with the largest sum over its instructions."""
    sums = defaultdict(float)
    for step, amount_ in zip(steps, amounts, strict=True):
        sums[step.file, step.line] += amount_
    return max(sorted(sums), key=sums.get)


def _most_of_memory(traffic, unit):
    special = {"DRAM": (caches.DRAM, caches.STORED), "atomics": (caches.ATOMIC_TURNS,)}
    columns = special.get(unit, (caches.L2_LOADS, caches.STORED))
    sums = defaultdict(float)
    for (_, file, line), row in traffic.lines.items():
        sums[file, line] += sum(row[column] for column in columns)
    return max(sorted(sums), key=sums.get)
