"""An animation of double buffering: tiles are multiplied while the next ones are loaded."""

from typing import NamedTuple

from cnn_course.engine import plots

_LOAD, _STORE, _HOLD, _MULTIPLY = "#a8d2ec", "#388ac2", "#dcebf5", "#f2c773"
# Durations in arbitrary units: only the order matters.
_LOADING, _STORING, _MULTIPLYING = 3, 1, 3


class Bar(NamedTuple):
    """An interval in which a block does something, or a pair of tiles holds a step."""

    lane: str
    begin: float
    length: float
    colour: str
    text: str


def one_pair(steps: int) -> tuple[list[Bar], list[float]]:
    """Return the bars of a block with one pair of tiles, and the times of its barriers.

    Examples
    --------
    >>> len(one_pair(3)[1])
    6
    """
    bars, barriers, now = [], [], 0
    for step in range(1, steps + 1):
        bars += _filled("tiles", step, now)
        now += _LOADING + _STORING
        bars += _multiplied("tiles", step, now)
        barriers += [now, now + _MULTIPLYING]
        now += _MULTIPLYING
    return bars, barriers


def two_pairs(steps: int) -> tuple[list[Bar], list[float]]:
    """Return the same for two pairs: the next step is loaded while this one is multiplied.

    Examples
    --------
    >>> len(two_pairs(3)[1])
    3
    """
    pairs = ("tiles A", "tiles B")
    bars, barriers, now = _filled(pairs[0], 1, 0), [], _LOADING + _STORING
    for step in range(1, steps + 1):
        barriers.append(now)
        bars += _multiplied(pairs[(step - 1) % 2], step, now)
        if step < steps:
            bars += _filled(pairs[step % 2], step + 1, now)
            now += max(_LOADING, _MULTIPLYING) + _STORING
    return bars, barriers


def _filled(tiles, step, now):
    return [
        Bar("load", now, _LOADING, _LOAD, f"{step}"),
        Bar(tiles, now + _LOADING, _STORING, _STORE, ""),
    ]


def _multiplied(tiles, step, now):
    return [
        Bar(tiles, now, _MULTIPLYING, _HOLD, f"{step}"),
        Bar("multiply", now, _MULTIPLYING, _MULTIPLY, f"{step}"),
    ]


def buffers_film(steps=3) -> plots.Film:
    """Draw a block that multiplies tile by tile: with one pair of tiles, and with two.

    Parameters
    ----------
    steps : int
        Their number.
    """
    bars, barriers = one_pair(steps)
    times = sorted({bar.begin + bar.length for bar in [*bars, *two_pairs(steps)[0]]})
    frames = [_schedules(steps, now) for now in times]
    return plots.film(
        frames,
        _schedules(steps, times[-1]),
        "Time goes from left to right, not to scale; the numbers count the steps. Above, with one pair of "
        "tiles, loads and multiplications take turns. Below, the block multiplies from one pair while it "
        "loads the next numbers, then stores them into the other pair (dark). Vertical lines are barriers.",
        "Two charts with a lane for loads, one for each pair of tiles and one for multiplications. Above, "
        f"{steps} loads and {steps} multiplications follow one another, with {len(barriers)} barriers. "
        f"Below, every load but the first runs beside a multiplication; there are {steps} barriers, and all "
        "is done earlier.",
        seconds=1.2,
        colours=32,
    )


def _schedules(steps, now):
    """Draw a block's work until `now`, both ways, as a figure."""
    fig, axes = plots.figure(2, 1, size=(7.2, 3.8), sharex=True, height_ratios=[3, 4])
    titles = "one pair of tiles: two barriers a step", "two pairs: one barrier a step"
    end = one_pair(steps)[1][-1]
    for ax, title, schedule in zip(axes, titles, (one_pair, two_pairs), strict=True):
        bars, barriers = schedule(steps)
        lanes = sorted(
            {bar.lane for bar in bars}, key=["load", "tiles", "tiles A", "tiles B", "multiply"].index
        )
        for bar in bars:
            _draw(ax, lanes.index(bar.lane), bar, now)
        ax.vlines(
            [at for at in barriers if at <= now], -0.5, len(lanes) - 0.5, color=plots.INK, linewidth=1.5
        )
        ax.set(xlim=(0, end + 0.2), ylim=(len(lanes) - 0.4, -0.6), xticks=[])
        ax.set_yticks(range(len(lanes)), lanes)
        ax.tick_params(axis="y", length=0)
        ax.set_title(title, fontsize=10, color=plots.INK, loc="left")
    return fig


def _draw(ax, lane, bar, now):
    """Draw the part of a bar before `now`."""
    length = min(bar.begin + bar.length, now) - bar.begin
    if length > 0:
        ax.barh(lane, length, left=bar.begin, height=0.8, color=bar.colour, edgecolor=plots.PAPER)
        ax.text(bar.begin + length / 2, lane, bar.text, ha="center", va="center", fontsize=9, color=plots.INK)
