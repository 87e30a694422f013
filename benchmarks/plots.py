"""Pictures of benchmark records: ladders, the roofline and epochs.

All contents come from the record; the title has device and date. A PNG does not know the theme of its page,
so each has a light background with dark ink.
"""

import json
from pathlib import Path

from cnn_numba.whole_files import written_whole

PAPER, INK, FAINT = "#fbfaf7", "#2b2d33", "#c9c7c1"
# Okabe and Ito's colours, distinct for any colour vision, in the order of use.
COLOURS = ("#0072b2", "#e08a00", "#009e73", "#d55e00", "#b3669e", "#56b4e9")
OURS, THEIRS = COLOURS[0], COLOURS[1]
# A mark for each size of case, in the order of the legend.
_MARKERS = {"first layer": "v", "course": "o", "medium": "s", "large": "^"}
_DPI = 144


def plot_records(paths, folder):
    """Draw the records in some files; each picture is named after its file.

    Parameters
    ----------
    paths : sequence of path
        JSON files that `cnn-numba bench ops` or `bench epoch` has written.
    folder : path
        Created if it is missing.

    Returns
    -------
    list of Path
        The pictures.

    Raises
    ------
    ValueError
        If a file has no record, or one that cannot be drawn.
    """
    records = {Path(path): _read(path) for path in paths}
    written = []
    for path, record in records.items():
        written += write(record, folder, path.stem)
    return written


def _read(path):
    try:
        record = json.loads(Path(path).read_text())
        return figures(record) and record
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def write(record: dict, folder: str | Path, name: str) -> list[Path]:
    """Draw a record into ``FOLDER/NAME-...png``."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for part, draw in figures(record).items():
        written.append(folder / f"{'-'.join(filter(None, (name, part)))}.png")
        figure = draw()
        with written_whole(written[-1]) as file:
            figure.savefig(file, format="png", dpi=_DPI, facecolor=figure.get_facecolor())
    return written


def figures(record: dict) -> dict:
    """Return the pictures of a record as functions without arguments, by name.

    Raises
    ------
    ValueError
        If there is nothing to draw.

    Examples
    --------
    >>> figures({"benchmark": "ops-static"})
    Traceback (most recent call last):
        ...
    ValueError: this record has what the compiler made of the kernels, and no times; take them on a GPU: ...
    """
    kind = record.get("benchmark") if isinstance(record, dict) else None
    if kind == "ops-static":
        raise ValueError(
            "this record has what the compiler made of the kernels, and no times; take them on a GPU: "
            "cnn-numba bench ops"
        )
    if kind == "epoch":
        return {"": lambda: plot_epochs(record)}
    if kind != "ops":
        raise ValueError(f"there are pictures of the records ops and epoch, not of {kind or 'anything else'}")
    operations = dict.fromkeys(result["operation"] for result in record["results"])
    ladders = {name: lambda name=name: plot_ladder(record, name) for name in operations}
    return ladders | {"roofline": lambda: plot_roofline(record)}


# --- The three pictures ------------------------------------------------------------------------------------


def plot_ladder(record, operation):
    """Draw the rungs of one operation as bars, a panel for each shape, with PyTorch as lines.

    Parameters
    ----------
    record : dict
        Of the benchmark "ops".
    operation : str

    Returns
    -------
    matplotlib.figure.Figure
    """
    results = [result for result in record["results"] if result["operation"] == operation]
    rungs = list(dict.fromkeys(who for result in results for who in result["contenders"] if is_ours(who)))
    columns = 3 if len(results) == 3 else min(2, len(results))
    rows = -(-len(results) // columns)
    title, size = f"{operation} on {_device(record)}", (7.2, 0.7 + rows * (1.2 + 0.32 * len(rungs)))
    figure, panels = _figure(title, rows, columns, size, sharey=True)
    for axes, result in zip(panels.flat, results, strict=False):
        unit, contenders = result["measure"], result["contenders"]
        rates = {who: figures[unit] for who, figures in contenders.items() if "median" in figures}
        longest = max(rates.values())
        for place, rung in enumerate(rungs):
            value = rates.get(rung, 0)
            axes.barh(place, value, color=OURS, height=0.62)
            label = f"{value:,.0f}" if rung in rates else _why_not(contenders[rung])
            _write_behind(axes, value, place, label, longest)
        theirs = {who: rate for who, rate in rates.items() if not is_ours(who)}
        for (who, rate), style in zip(theirs.items(), ("-", "--"), strict=False):
            axes.axvline(rate, color=THEIRS, linestyle=style, label=who)
        values = "\n".join(f"{who}: {rate:,.0f}" for who, rate in theirs.items())
        _set_bars(axes, rungs, longest, f"{unit}\n{values}")
        axes.set_title(f"{result['size']}: {_wrapped(result['shape'])}", fontsize=8)
    panels.flat[0].invert_yaxis()
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, **_LEGEND)
    return figure


def plot_roofline(record):
    """Draw every rung under the measured roof of its device.

    Parameters
    ----------
    record : dict
        Of the benchmark "ops".

    Returns
    -------
    matplotlib.figure.Figure
    """
    import numpy as np
    from matplotlib.lines import Line2D

    results, roof = record["results"], record["roof"]
    figure, panels = _figure(f"Roofline of {_device(record)}", 1, 1, (7.2, 4.6))
    axes = panels.flat[0]
    peak, bandwidth = roof["flops_per_second"] / 1e9, roof["bytes_per_second"] / 1e9
    intensities = [result["flops"] / result["bytes"] for result in results]
    ends = min(*intensities, peak / bandwidth) / 2, 2 * max(*intensities, peak / bandwidth)
    x = np.array([ends[0], peak / bandwidth, ends[1]])
    axes.plot(x, np.minimum(peak, x * bandwidth), color=INK, linewidth=1.5)
    axes.annotate(f"{peak:,.0f} GFLOP/s", (ends[1], peak), (-4, 4), ha="right", **_NOTE)
    middle = (ends[0] * peak / bandwidth) ** 0.5
    axes.annotate(f"{bandwidth:,.0f} GB/s", (middle, middle * bandwidth), (-6, 4), ha="right", **_NOTE)
    colours = dict(zip(dict.fromkeys(r["operation"] for r in results), COLOURS, strict=False))
    for result, intensity in zip(results, intensities, strict=True):
        rates = [t["GFLOP/s"] for who, t in result["contenders"].items() if is_ours(who) and "median" in t]
        for rate in rates:
            axes.plot(
                *(intensity, rate),
                marker=_MARKERS.get(result["size"], "D"),
                markersize=7,
                linestyle="",
                color=colours[result["operation"]],
                # The best rung of a ladder is filled.
                markerfacecolor=colours[result["operation"]] if rate == max(rates) else "none",
            )
    axes.set(xscale="log", yscale="log", ylabel="GFLOP/s")
    axes.set_xlabel("intensity: operations for each byte that has to be moved")
    axes.grid(color=FAINT, linewidth=0.5, alpha=0.6)
    marks = {name: {"color": colour, "marker": "o"} for name, colour in colours.items()}
    marks |= {size: {"color": INK, "marker": marker} for size, marker in _MARKERS.items()}
    marks |= {"not the best rung": {"color": INK, "marker": "o", "markerfacecolor": "none"}}
    handles = [Line2D([], [], linestyle="", label=name, **mark) for name, mark in marks.items()]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1), **_LEGEND)
    return figure


def plot_epochs(record):
    """Draw the seconds of an epoch, the median as a bar and every sample as a dot.

    If a record has processor time, that is drawn, as it does not include other programs.

    Parameters
    ----------
    record : dict
        Of the benchmark "epoch".

    Returns
    -------
    matplotlib.figure.Figure
    """
    results = record["results"]
    timed = "processor_" if all("processor_seconds" in result for result in results) else ""
    # The order of a result with all contenders, if there is one.
    fullest_first = sorted(results, key=lambda result: -len(result["seconds"]))
    contenders = list(dict.fromkeys(who for result in fullest_first for who in result["seconds"]))
    part = f"{record['images']:,} images" if "images" in record else "An epoch"
    title = f"{part} of {record['model']} on {_device(record)}"
    figure, panels = _figure(title, 1, len(results), (7.2, 1.6 + 0.3 * len(contenders)), sharey=True)
    for axes, result in zip(panels.flat, results, strict=True):
        samples, medians = result[f"{timed}seconds"], result[f"{timed}medians"]
        longest = max(map(max, samples.values()))
        for place, who in enumerate(contenders):
            seconds = samples.get(who, [])
            if not seconds:
                _write_behind(axes, 0, place, "not on this machine", longest)
                continue
            axes.barh(place, medians[who], color=OURS if is_ours(who) else THEIRS, height=0.62)
            dots = {"color": INK, "markersize": 4, "markeredgecolor": PAPER, "zorder": 3}
            axes.plot(seconds, [place] * len(seconds), "o", **dots)
            _write_behind(axes, max(seconds), place, f"{medians[who]:.3g} s", longest)
        axes.set_title(f"batch {result['batch_size']}", fontsize=8)
        _set_bars(axes, contenders, longest, "seconds of the processor" if timed else "seconds")
    panels.flat[0].invert_yaxis()
    figure.supxlabel("bars: medians; dots: every one that was timed", fontsize=8, color=INK)
    return figure


# --- Helpers -----------------------------------------------------------------------------------------------

_LEGEND = {"frameon": False, "fontsize": 8, "labelcolor": INK}
_NOTE = {"textcoords": "offset points", "fontsize": 8, "color": INK}


def _figure(title, rows, columns, size, **subplots):
    """Return a figure with its title, and its axes as an array."""
    # Imported here, as it takes half a second and measuring does not need it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, facecolor=PAPER, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, **subplots)
    figure.suptitle(title, fontsize=10, color=INK)
    for axes in panels.flat:
        style(axes, 8, labelsize=8)
    return figure, panels


def style(axes, fontsize, **ticks):
    """Set the colours of axes, and the font size of their labels and title; `ticks` go to `tick_params`."""
    axes.set_facecolor(PAPER)
    axes.tick_params(colors=INK, **ticks)
    for name, spine in axes.spines.items():
        spine.set_visible(name in ("left", "bottom"))
        spine.set_color(FAINT)
    for label in (axes.xaxis.label, axes.yaxis.label, axes.title):
        label.set(color=INK, fontsize=fontsize)


def _device(record):
    machine = record["machine"]
    name = machine["gpu"]["name"] if "gpu" in machine else f"{machine['processor']}, {threads(machine)}"
    return f"{name}, {record['date']}"


def threads(machine):
    """Return the number of threads in a record, in words."""
    return f"{machine['threads']} thread{'s' * (machine['threads'] != 1)}"


def is_ours(who):
    """Return whether a contender of a record is ours, not PyTorch's."""
    return not who.lower().startswith("pytorch")  # lower case in the CPU's records


def _why_not(figures):
    return "wrong result" if "wrong" in figures else "not for this shape"


def _wrapped(shape):
    """Break the text of a shape into two lines."""
    for separator in (" to ", " by ", ", "):
        head, found, tail = shape.partition(separator)
        if found:
            return f"{head}{separator.rstrip()}\n{tail}"
    return shape


def _write_behind(axes, value, place, text, longest):
    """Write text after the end of a bar."""
    # On a background, as a line may cross it.
    paper = {"facecolor": PAPER, "edgecolor": "none", "pad": 1}
    axes.text(value + 0.03 * longest, place, text, va="center", fontsize=8, color=INK, bbox=paper)


def _set_bars(axes, names, longest, label):
    """Label the bars, and leave room for the text after them."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    axes.set(xlim=(0, 1.35 * longest), yticks=range(len(names)), yticklabels=names)
    axes.set_xlabel(label, fontsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.tick_params(axis="y", length=0)
