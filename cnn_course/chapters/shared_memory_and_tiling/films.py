"""Animated pictures: loading a halo, waiting at a barrier."""

from matplotlib.patches import Rectangle

from cnn_course.engine import plots

_TILE, _HALO, _GARBAGE = "#8cc2e6", "#f2c773", "#e3e0db"
_LOAD, _WAIT, _SUM, _WRONG = "#8cc2e6", "#d9d5cd", "#a8d5ba", plots.ORANGE


def halo_film(tile=(16, 4), kernel_size=3) -> plots.Film:
    """Draw how the threads of a block load a tile with its halo, wait, and sum over their windows.

    Parameters
    ----------
    tile : tuple of (int, int)
        Threads of the block, x first; one for each output.
    kernel_size : int
        Of a square window; odd.
    """
    (tile_w, tile_h), border = tile, kernel_size - 1
    threads, pixels = tile_w * tile_h, (tile_w + border) * (tile_h + border)
    rounds = -(-pixels // threads)
    steps = [("shared memory holds garbage", 0, None)]
    for number in range(1, rounds + 1):
        loaded = min(threads, pixels - (number - 1) * threads)
        idle = f", {threads - loaded} threads have none" if loaded < threads else ""
        steps.append((f"round {number}: {loaded} threads load a pixel each{idle}", number, None))
    steps.append(("the barrier: every thread has arrived", rounds, "all"))
    steps += [
        (f"thread {thread} sums its {kernel_size**2} pixels", rounds, thread) for thread in (0, threads - 1)
    ]

    frames = []
    for step in steps:
        fig, ax = plots.figure(size=(7.2, 3.1))
        _patch(ax, tile, kernel_size, *step, fontsize=10)
        frames.append(fig)
    still, axes = plots.figure(-(-len(steps) // 2), 2, size=(7.2, 1.75 * (-(-len(steps) // 2))))
    for ax in axes.ravel()[len(steps) :]:
        ax.axis("off")
    for ax, step in zip(axes.ravel(), steps, strict=False):
        _patch(ax, tile, kernel_size, *step, fontsize=5.5)
    return plots.film(
        frames,
        still,
        f"A block of {tile_w} x {tile_h} threads loads {pixels} pixels. Numbers: which thread has loaded a "
        "pixel; ?: garbage. Blue: the pixels in the middle of the windows, yellow: the halo; the patch "
        "begins at its upper left pixel. Purple: the window of one thread.",
        f"A grid of {tile_h + border} rows of {tile_w + border} cells, at first all with a question mark. In "
        f"{rounds} rounds they get the numbers of the threads that load them, row by row. Then a frame "
        "around all of them, the barrier, and after it a small frame around the window of the first thread, "
        "and of the last.",
        colours=24,
    )


def _patch(ax, tile, kernel_size, title, rounds, mark, fontsize):
    """Draw the patch of a tile after some rounds of loading; mark all of it, or one thread's window."""
    (tile_w, tile_h), halo = tile, kernel_size // 2
    width, height, threads = tile_w + 2 * halo, tile_h + 2 * halo, tile_w * tile_h
    ax.set(xlim=(-0.2, width + 0.2), ylim=(height + 0.2, -0.2), aspect="equal")
    ax.axis("off")
    ax.set_title(title, fontsize=max(8, fontsize), color=plots.INK)
    for number in range(width * height):
        row, column = divmod(number, width)
        inside = halo <= row < halo + tile_h and halo <= column < halo + tile_w
        there = number < rounds * threads
        colour = (_TILE if inside else _HALO) if there else _GARBAGE
        ax.add_patch(Rectangle((column, row), 1, 1, facecolor=colour, edgecolor=plots.PAPER, linewidth=1))
        text = str(number % threads) if there else "?"
        ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=fontsize, color=plots.INK)
    frame = {"fill": False, "linewidth": 2.5, "clip_on": False}
    if mark == "all":
        ax.add_patch(Rectangle((0, 0), width, height, edgecolor=plots.INK, **frame))
    elif mark is not None:
        row, column = divmod(mark, tile_w)
        ax.add_patch(Rectangle((column, row), kernel_size, kernel_size, edgecolor=plots.PURPLE, **frame))


def barrier_film(loading=(2, 3, 1, 5), summing=2) -> plots.Film:
    """Draw four warps that load and sum, without a barrier in between and with one.

    Parameters
    ----------
    loading : tuple of int
        How long each warp takes to load.
    summing : int
        How long each takes to sum.
    """
    end = max(loading) + summing
    times = [*sorted({*loading, max(loading) - 1}), end]
    frames = [_schedules(loading, summing, now) for now in times]
    return plots.film(
        frames,
        _schedules(loading, summing, end),
        "Time goes from left to right. Above, nobody waits: three warps sum while others are still loading, "
        "and may read garbage (orange, marked !). Below, with the barrier, the early warps wait, and "
        "all of them sum loaded pixels.",
        "Two charts of four warps each, with a bar for loading and a bar for summing. In the upper one the "
        "sums of three warps begin before the slowest warp has loaded. In the lower one every warp waits at "
        "a dashed line until the slowest has arrived, and then all sum at once.",
        seconds=1.4,
    )


def _schedules(loading, summing, now):
    """Draw what all warps have done until now, as a figure."""
    fig, axes = plots.figure(2, 1, size=(7.2, 3.6), sharex=True)
    last = max(loading)
    for ax, barrier in zip(axes, (False, True), strict=True):
        ax.set(xlim=(0, last + summing), ylim=(len(loading) - 0.4, -0.6), xticks=[])
        ax.set_yticks(range(len(loading)), [f"warp {warp}" for warp in range(len(loading))])
        ax.set_title(
            "with cuda.syncthreads()" if barrier else "without a barrier",
            fontsize=10,
            color=plots.INK,
            loc="left",
        )
        for warp, ready in enumerate(loading):
            start = last if barrier else ready
            _bar(ax, warp, 0, ready, now, _LOAD, "load")
            _bar(ax, warp, ready, start, now, _WAIT, "wait", hatch="//")
            early = start < last
            _bar(
                ax, warp, start, start + summing, now, _WRONG if early else _SUM, "sum !" if early else "sum"
            )
        if barrier:
            ax.axvline(last, color=plots.INK, linestyle="--", linewidth=1.5)
    return fig


def _bar(ax, warp, begin, end, now, colour, text, hatch=None):
    """Draw the part of a bar up to now."""
    width = min(end, now) - begin
    if width <= 0:
        return
    ax.barh(warp, width, left=begin, height=0.7, color=colour, hatch=hatch, edgecolor=plots.PAPER)
    ax.text(
        begin + width / 2,
        warp,
        text,
        ha="center",
        va="center",
        fontsize=9,
        color=plots.INK,
        bbox={"facecolor": colour, "edgecolor": "none", "pad": 1.5},
    )
