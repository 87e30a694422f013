"""A picture of a report: how busy the units are, a roofline, the time per source line."""

from __future__ import annotations

import linecache
import os
from typing import Any

from gpuless.importing import optional
from gpuless.positions import describe_launch
from gpuless.profile.caches import SECTOR
from gpuless.profile.stalls import REASONS
from gpuless.profile.texts import time
from gpuless.profile.units import SHARED_UNITS, UNITS

# The background is opaque, as pages may have any colour.
_PAPER, _INK, _FAINT, _GRID = "#fbfaf7", "#2b2d33", "#77787f", "#e6e4de"
_SM, _SHARED, _MARK = "#0072b2", "#009e73", "#d55e00"
_COLOURS = dict(
    zip(
        REASONS,
        ("#3f8f3f", "#b9b7b0", "#d55e00", "#e9a23b", "#7b5aa6", "#56b4e9", "#0072b2", "#b3669e", "#8a7a00"),
        strict=True,
    )
)
_LINES, _CHARACTERS, _LEAST = 8, 44, 0.005
_WIDEST = 64.0  # the roofline's right end in flops per byte, unless the launch has more
_BOTTOM = 1e-3  # its lower end, as a share of the peak


def plot_report(report: Any) -> Any:
    """Draw a `gpuless.profile.report.Report` and return the figure."""
    Figure = optional("matplotlib.figure", "pictures").Figure

    lines = _lines(report)
    # Sizes in inches: bars have the same height in every picture.
    units = [unit for unit in (*UNITS, *SHARED_UNITS) if report.busy.get(unit, 0) >= _LEAST]
    upper, lower = max(2.4, 0.26 * len(units) + 0.7), 0.26 * len(lines) + 0.7
    figure = Figure(figsize=(9, upper + lower + 1.1), facecolor=_PAPER, layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=(upper, lower + 0.5))
    above, below = parts
    left, right = above.subplots(1, 2, width_ratios=(1, 1.25))
    _draw_units(left, report, units)
    _draw_roofline(right, report)
    _draw_lines(below.subplots(), lines)
    for part in (above, below):
        part.set_facecolor(_PAPER)
    launch = describe_launch(report.kernel, report.grid, report.block)
    between = f"{time(report.microseconds)} modelled, {time(report.low)} to {time(report.high)}"
    figure.suptitle(f"{launch} on {report.device.name}: {between}", fontsize=10, color=_INK)
    return figure


def _dress(axes, title):
    axes.set_facecolor(_PAPER)
    axes.set_title(title, fontsize=9, color=_INK, loc="left")
    axes.tick_params(labelsize=8, length=0, colors=_INK)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_units(axes, report, units):
    """Draw the share of the time for which each unit works."""
    shares = [100 * report.busy[unit] for unit in units]
    colours = [_SM if unit in UNITS else _SHARED for unit in units]
    axes.barh(range(len(units)), shares, color=colours, height=0.7)
    axes.axvline(100, color=_FAINT, linewidth=0.8, linestyle=":")
    for at, share in enumerate(shares):
        on = {"facecolor": _PAPER, "edgecolor": "none", "pad": 1}
        axes.text(share + 1.5, at, f"{share:.0f}%", va="center", fontsize=8, color=_INK, bbox=on)
    axes.set_yticks(range(len(units)), units)
    axes.set_xlim(0, 115)
    axes.set_xticks([])
    axes.invert_yaxis()
    _dress(axes, "busy, of the time: an SM's units, what SMs share")


def _draw_roofline(axes, report):
    """Draw a roofline, and where the launch is."""
    device = report.device
    peaks = {"float32": device.fma, "float64": device.float64}
    peaks = {name: device.sms * device.clock * 2 * 128 / cycles for name, cycles in peaks.items()}
    bandwidth, top = device.dram * device.dram_share, peaks["float32"]
    flops = sum(report.flops.values())
    at, done = flops / max(report.dram_bytes, SECTOR), flops / report.microseconds / 1e3
    left, right = min(0.05, at / 2 or 0.05), max(_WIDEST, 4 * top / bandwidth, 2 * at)
    axes.set(
        xscale="log", yscale="log", xlim=(left, right), ylim=(min(_BOTTOM * top, done / 3 or top), 2.5 * top)
    )
    axes.plot([left, top / bandwidth], [left * bandwidth, top], color=_SHARED, linewidth=1.8)
    of_axes = {"transform": axes.transAxes, "fontsize": 8}
    axes.text(0.03, 0.93, f"DRAM, {bandwidth:.0f} GB/s", va="top", color=_SHARED, **of_axes)
    for name, peak in peaks.items():
        axes.plot([peak / bandwidth, right], [peak, peak], color=_SM, linewidth=1.8)
        axes.text(right, peak * 1.12, f"{name}, {_speed(peak)} ", ha="right", fontsize=8, color=_SM)
    if flops:
        _draw_point(axes, report, at, done, at > (left * right) ** 0.5)
    else:
        axes.text(0.97, 0.05, "no floating point operations", ha="right", color=_INK, **of_axes)
    axes.grid(which="major", color=_GRID, linewidth=0.7)
    axes.minorticks_off()
    _dress(axes, "roofline: Gflop/s by flops per byte of DRAM")


def _draw_point(axes, report, at, done, to_the_left):
    """Draw the launch's modelled point, with the range of its time."""
    slow, fast = (done * report.microseconds / end for end in (report.high, report.low))
    axes.errorbar(
        [at],
        [done],
        yerr=[[done - slow], [fast - done]],
        fmt="o",
        markersize=7,
        color=_MARK,
        capsize=3,
        zorder=3,
    )
    side, away = ("right", -9) if to_the_left else ("left", 9)
    axes.annotate(
        _speed(done), (at, done), (away, -3), textcoords="offset points", ha=side, fontsize=8, color=_INK
    )


def _speed(gflops):
    return f"{gflops / 1e3:.3g} Tflop/s" if gflops >= 1000 else f"{gflops:.3g} Gflop/s"


def _lines(report):
    """Return the lines that take longest: label, share by reason."""
    lines = report.lines
    order = sorted(lines, key=lambda place: (-lines[place], place))
    shown = [place for place in order[:_LINES] if lines[place] >= _LEAST]
    found = [(_label(*place), report.line_stalls[place]) for place in shown]
    rest = [report.line_stalls[place] for place in order if place not in shown]
    whole = {reason: sum(stalls[reason] for stalls in rest) for reason in REASONS}
    return [*found, ("other lines", whole)] if sum(whole.values()) >= _LEAST else found


def _label(file, line):
    text = linecache.getline(file, line).strip() or os.path.basename(file) or "a library"
    short = text if len(text) <= _CHARACTERS else text[: _CHARACTERS - 1] + "…"
    return f"{short}  {line}".replace("$", r"\$")


def _draw_lines(axes, lines):
    """Draw each line's share of the time, by what warps do there."""
    from matplotlib.patches import Patch

    ends = [0.0] * len(lines)
    shown = [reason for reason in REASONS if any(stalls[reason] >= _LEAST for _, stalls in lines)]
    for reason in shown:
        widths = [100 * stalls[reason] for _, stalls in lines]
        axes.barh(range(len(lines)), widths, left=ends, color=_COLOURS[reason], height=0.7)
        ends = [end + width for end, width in zip(ends, widths, strict=True)]
    for at, (_, stalls) in enumerate(lines):
        axes.text(
            ends[at] + 0.6, at, f"{100 * sum(stalls.values()):.0f}%", va="center", fontsize=8, color=_INK
        )
    axes.set_yticks(range(len(lines)), [label for label, _ in lines], family="monospace")
    axes.set_xlim(0, 1.08 * max(ends, default=1))
    axes.set_xticks([])
    axes.invert_yaxis()
    _dress(axes, "time of a warp by source line, and what it does")
    handles = [Patch(color=_COLOURS[reason], label=reason) for reason in shown]
    axes.figure.legend(
        handles=handles, loc="outside lower center", ncols=5, fontsize=8, frameon=False, labelcolor=_INK
    )
