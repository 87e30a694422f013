"""Animated pictures: what a warp's request moves, and what a warp does at a branch."""

from matplotlib.patches import Rectangle

from cnn_course.engine import plots

_ASKED, _MOVED, _OUTSIDE = "#3f86b5", "#f2c773", "#e3e0db"
_BOTH, _IF, _ELSE, _OFF = "#cfcbc3", "#8cc2e6", "#f2b56b", "#f4f2ed"
_WARP, _SECTOR = 32, 8


def coalescing_film(strides=(1, 2, 4, 8)) -> plots.Film:
    """Draw which sectors a warp's request moves, for each stride between neighbouring threads."""
    lines = max(strides)  # of 32 numbers each
    frames = []
    for stride in strides:
        fig, ax = plots.figure(size=(7.2, 0.6 + 0.2 * lines))
        _request(ax, stride, lines, numbered=True)
        frames.append(fig)
    still, axes = plots.figure(-(-len(strides) // 2), 2, size=(7.2, 0.3 * len(strides) + 0.2 * lines))
    for ax, stride in zip(axes.ravel(), strides, strict=True):
        _request(ax, stride, lines, numbered=False)
    descriptions = "; ".join(f"stride {stride}: {_sectors(stride)} sectors" for stride in strides)
    return plots.film(
        frames,
        still,
        "One request of a warp. Blue with a number: what that lane reads. Yellow: what is moved with it and "
        "not used. Lines are 128 bytes, cut into four sectors.",
        f"Memory as {lines} lines of 32 squares, a thin gap after every eighth. The 32 numbered squares move "
        f"further apart from frame to frame, and more of memory lights up around them: {descriptions}.",
        colours=24,
    )


def _sectors(stride):
    return len({lane * stride // _SECTOR for lane in range(_WARP)})


def _request(ax, stride, lines, numbered):
    """Draw memory, and what a request with this stride asks for and moves."""
    asked = {lane * stride: lane for lane in range(_WARP)}
    moved = {number // _SECTOR for number in asked}
    ax.set(xlim=(-0.3, 33.5), ylim=(lines + 0.2, -0.2))
    ax.axis("off")
    share = _WARP / (_SECTOR * len(moved))
    title = f"threads {plots.counted(stride, 'number')} apart: {len(moved)} sectors, {share:.0%} used"
    ax.set_title(title, fontsize=10 if numbered else 8.5, color=plots.INK, loc="left")
    for number in range(lines * _WARP):
        row, column = divmod(number, _WARP)
        x = column + 0.4 * (column // _SECTOR)
        colour = _ASKED if number in asked else _MOVED if number // _SECTOR in moved else _OUTSIDE
        ax.add_patch(Rectangle((x, row), 1, 1, facecolor=colour, edgecolor=plots.PAPER, linewidth=0.8))
        if numbered and number in asked:
            lane = str(asked[number])
            ax.text(x + 0.5, row + 0.52, lane, ha="center", va="center", fontsize=6.5, color="white")


def divergence_film() -> plots.Film:
    """Draw a warp at a branch: once its lanes go both ways, once all go the same way."""
    steps = 4
    return plots.film(
        [_branches(now) for now in range(1, steps + 1)],
        _branches(steps),
        "A warp at if and else, step by step. Left: even lanes take one branch, odd lanes the other, so the "
        "warp runs both, with half of its lanes switched off (pale). Right: all lanes take the same one.",
        "Two charts of 32 lanes, time downwards. On the left four steps: all lanes test; every other lane "
        "runs the first branch; the others run the second; all go on. On the right three: all lanes test, "
        "run the first branch, and go on, one step earlier.",
        seconds=1.6,
        colours=24,
    )


def _branches(now):
    """Draw the first steps of both warps, as a figure."""
    fig, axes = plots.figure(1, 2, size=(7.2, 2.1))
    lanes = range(_WARP)
    even = [lane % 2 == 0 for lane in lanes]
    everyone, nobody = [True] * _WARP, [False] * _WARP
    split = [("test", _BOTH, everyone), ("if", _IF, even)]
    split += [("else", _ELSE, [not each for each in even]), ("after", _BOTH, everyone)]
    alike = [("test", _BOTH, everyone), ("if", _IF, everyone), ("after", _BOTH, everyone)]
    alike += [("free", _OFF, nobody)]
    titles = "even and odd lanes split", "all lanes go the same way"
    for ax, title, rows in zip(axes, titles, (split, alike), strict=True):
        ax.set(xlim=(-0.3, _WARP + 0.3), ylim=(len(rows) + 0.1, -0.1))
        ax.spines[:].set_visible(False)
        ax.set_title(title, fontsize=10, color=plots.INK, loc="left")
        ax.set_xticks([0.5, _WARP - 0.5], labels=["lane 0", "lane 31"])
        ax.set_yticks([row + 0.5 for row in range(len(rows))], labels=[name for name, *_ in rows])
        ax.tick_params(length=0)
        for row, (_, colour, active) in enumerate(rows[:now]):
            for lane in lanes:
                face = colour if active[lane] else _OFF
                place = Rectangle((lane + 0.06, row + 0.12), 0.88, 0.76, facecolor=face, edgecolor="#d9d5cd")
                place.set_linewidth(0.5)
                ax.add_patch(place)
    return fig
