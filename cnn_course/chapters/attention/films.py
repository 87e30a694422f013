"""An animation of the online softmax: a row that arrives key by key, as in tiled attention."""

from typing import NamedTuple

import numpy as np

from cnn_course.engine import plots

_KEYS = "#8cc2e6", "#f2c773", "#a8d5ba", "#d8b4dc", "#f0b3a1", "#cfd3d8", "#c9d88a", "#b7b6ea"
_ROW = 0.62


class State(NamedTuple):
    """A query's state after a key; `average` isn't divided by `total` yet."""

    largest: np.float32
    factor: np.float32
    weights: np.ndarray
    total: np.float32
    average: np.ndarray


def online_states(scores, values) -> list[State]:
    """Return what a thread of tiled attention has after each key, in its float32 arithmetic.

    Parameters
    ----------
    scores : array_like, shape (n,)
    values : array_like, shape (n, d)

    Examples
    --------
    >>> first, second = online_states([0, np.log(2)], [[1], [4]])
    >>> float(first.total), float(second.factor), float(second.total), second.average.tolist()
    (1.0, 0.5, 1.5, [4.5])
    """
    largest, total, average = np.float32(-np.inf), np.float32(0), np.zeros(np.shape(values)[1], np.float32)
    weights, states = np.zeros(0, np.float32), []
    for score, value in zip(np.float32(scores), np.float32(values), strict=True):
        new = max(largest, score)
        factor, weight = np.exp(largest - new), np.exp(score - new)
        total, average = total * factor + weight, average * factor + weight * value
        weights, largest = np.append(weights * factor, weight), new
        states.append(State(largest, factor, weights, total, average))
    return states


def online_film(scores, values, expected) -> plots.Film:
    """Draw the online softmax of one query, key by key.

    Parameters
    ----------
    scores : array_like, shape (n,)
        At most eight keys.
    values : array_like, shape (n, d)
        The first two features are shown.
    expected : array_like, shape (d,)
        The average from a kernel that reads the whole row at once.
    """
    states = online_states(scores, values)
    rows = range(1, len(states) + 2)
    rises = [j for j in range(1, len(states)) if states[j].factor < 1]
    shown = "; ".join(
        f"key {j}, score {score:.2f}: largest {state.largest:.2f}, sum {state.total:.2f}"
        for j, (score, state) in enumerate(zip(scores, states, strict=True))
    )
    factors = " and ".join(f"{states[j].factor:.2f} at key {j}" for j in rises)
    return plots.film(
        [_rows(scores, states, expected, upto) for upto in rows],
        _rows(scores, states, expected, rows[-1]),
        f"The {len(states)} keys of one query arrive one after the other. Left: the scores; the line shows "
        "the largest so far, an orange dot a new largest. Middle: each key's part of the sum, in its own "
        "colour. When the largest score rises, one factor shrinks all earlier parts. Right: that factor, the "
        "sum, and two features of the weighted values, which shrink too. Last row: the division by the sum, "
        "once.",
        f"A row for each key. {shown}. The earlier sums are multiplied by {factors}. After the last key the "
        f"average begins with {_two(states[-1].average / states[-1].total)}, the kernel's with "
        f"{_two(np.asarray(expected))}.",
        colours=48,
    )


def _two(numbers):
    return ", ".join(f"{number:.2f}".replace("-", "\N{MINUS SIGN}") for number in numbers[:2])


def _rows(scores, states, expected, upto):
    """Draw the first rows as a figure: one for each key, then the result."""
    keys = len(states)
    fig, (left, middle, right) = plots.figure(
        1, 3, size=(7.2, 0.9 + 0.42 * (keys + 1)), sharey=True, width_ratios=(1.6, 2.6, 2.3)
    )
    seen = min(upto, keys)
    left.set(ylim=(keys + 0.6, -0.6), xlim=(min(scores) - 0.4, max(scores) + 0.4))
    left.set_yticks(range(keys + 1), [*(f"key {j}" for j in range(keys)), "the end"])
    middle.set(xlim=(0, 1.02 * max(state.total for state in states)))
    right.set(xlim=(0, 1))
    right.axis("off")
    left.set_title("scores $s$, largest $m$", fontsize=9.5, color=plots.INK, loc="left")
    middle.set_title(r"the sum $\ell$", fontsize=9.5, color=plots.INK, loc="left")
    left.tick_params(axis="y", length=0)
    middle.tick_params(axis="y", length=0)
    _say(right, -0.85, "factor", r"$\ell$", "$a$")
    line = np.repeat([state.largest for state in states[:seen]], 2)
    left.plot(line, np.arange(2 * seen) // 2 + np.tile([-0.5, 0.5], seen), color=plots.INK, linewidth=1.2)
    for j, (score, state) in enumerate(zip(scores[:seen], states, strict=False)):
        left.plot(score, j, "o", color=plots.ORANGE if score == state.largest else plots.BLUE, markersize=6)
        _bar(middle, j, state.weights)
        if j:
            _shrink(middle, j, states[j - 1].weights, state.weights[:-1])
        rises = j > 0 and state.factor < 1
        factor = rf"$\times$ {state.factor:.2f}" if rises else ""
        _say(right, j, factor, f"{state.total:.2f}", f"({_two(state.average)}, …)")
    if upto > keys:
        _result(middle, right, keys, states[-1], expected)
    return fig


def _bar(ax, row, weights):
    """Draw the terms of a sum as a stacked bar, each with its key's number if it fits."""
    begin = 0
    for key, weight in enumerate(weights):
        ax.barh(row, weight, left=begin, height=_ROW, color=_KEYS[key], edgecolor=plots.PAPER, linewidth=0.8)
        if weight > 0.05 * ax.get_xlim()[1]:
            ax.text(begin + weight / 2, row, str(key), ha="center", va="center", fontsize=8, color=plots.INK)
        begin += weight


def _shrink(ax, row, before, after):
    """Connect the ends of the parts in the previous row with those in this row."""
    for old, new in zip(np.cumsum(before), np.cumsum(after), strict=True):
        ax.plot([old, new], [row - 1 + _ROW / 2, row - _ROW / 2], color=plots.FAINT, linewidth=1)


def _say(ax, row, factor, total, average):
    """Write a row of the right panel."""
    ax.text(0, row, factor, va="center", fontsize=9, color=plots.ORANGE if row >= 0 else plots.INK)
    ax.text(0.28, row, total, va="center", fontsize=9, color=plots.INK)
    ax.text(0.5, row, average, va="center", fontsize=9, color=plots.INK)


def _result(middle, right, row, last, expected):
    """Draw the division after the last key, and the kernel's result."""
    _bar(middle, row, last.weights / last.total)
    middle.text(1.03, row, r"divided by $\ell$: the weights", va="center", fontsize=8.5, color=plots.INK)
    _say(right, row, "", r"$a\,/\,\ell$", f"({_two(last.average / last.total)}, …)")
    _say(right, row + 0.6, "", "kernel", f"({_two(np.asarray(expected))}, …)")
