"""Writes the record of modelled times, and what shows it: page, picture, guide, the errors of each GPU.

``python -m benchmarks.modelled.page`` rewrites all but the record.
"""

import datetime
import json
import re
import statistics
from collections import Counter
from pathlib import Path

from benchmarks.modelled import predictions
from gpuless.profile.files import write_whole

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("record.json")
PAGE, GUIDE = ROOT / "docs" / "modelled-times.md", ROOT / "docs" / "gpuless.md"
PICTURE = ROOT / "docs" / "images" / "modelled-times.png"
HELD_AGAINST = ROOT / "gpuless" / "profile" / "held_against.py"


def new_record(found: list) -> dict:
    """Return the record of predictions."""
    rows = [predictions.as_recorded(each) for each in found]
    return {
        "date": datetime.date.today().isoformat(),
        "summary": predictions.summarised(rows),
        "ablation": predictions.ablation(found),
        "rows": rows,
    }


def write(record: dict) -> None:
    """Write the record, and all files with its figures."""
    write_whole(RECORD, _text(record))
    write_whole(HELD_AGAINST, held_against(record))
    for path in (PAGE, GUIDE):
        write_whole(path, with_figures(path.read_text(encoding="utf-8"), record))
    draw(record)


def _text(record):
    """Return a record as JSON, a line for each row."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in record["rows"])
    rest = json.dumps(record | {"rows": []}, indent=1)
    return rest.replace('"rows": []', f'"rows": [\n{rows}\n ]') + "\n"


def held_against(record: dict) -> str:
    """Return the source of the module with each GPU's number of rows and mean error."""
    devices = dict.fromkeys(row["device"] for row in record["rows"])
    lines = [
        f'    "{name}": ({record["summary"][name]["rows"]}, {record["summary"][name]["mean error"]:.2f}),'
        for name in sorted(devices)
    ]
    doc = '"""How many published times each GPU was held against, and the mean error there."""'
    comment = "# Written by `cnn-numba bench modelled`, from its record."
    return "\n".join([doc, "", comment, "HELD_AGAINST = {", *lines, "}", ""])


# --- The page and the guide ---------------------------------------------------------------------------------


def with_figures(text: str, record: dict) -> str:
    """Return a page with the record's figures between its marks, which are HTML comments."""
    for name in re.findall(r"<!-- (\w+) -->", text):
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        pattern = f"(?<={re.escape(begin)}).*?(?={re.escape(end)})"
        text = re.sub(pattern, lambda _, name=name: _PARTS[name](record) + "\n", text, flags=re.DOTALL)
    return text


def _percent(share):
    return f"{100 * share:.0f}%"


def _accuracy(record):
    summary = record["summary"]
    given, held = summary["given"], summary["held out"]
    gpus, every = len({row["device"] for row in record["rows"]}), summary["all"]
    return (
        f"[A page](modelled-times.md) compares the model with {every['rows']} published times of kernels on "
        f"{gpus} GPUs.\nOf the {given['rows']} that were known while it was made, the mean error is "
        f"{_percent(given['mean error'])} and the median {_percent(given['median error'])}; of the\n"
        f"{held['rows']} that were looked for afterwards, and on which nothing was fitted, the mean is "
        f"{_percent(held['mean error'])} and the median {_percent(held['median error'])}.\n"
        f"Of two kernels more than a quarter apart the right one is faster in {_percent(every['in order'])} "
        "of the pairs."
    ) + ("" if any(_measured()) else "\nNothing here has been measured on a GPU by us.")


_WITHIN = f"within {predictions.FACTOR}"
_COLUMNS = ("rows", "mean error", "median error", _WITHIN, "in range", "in order")


def _numbers(numbers):
    return [str(numbers["rows"]), *(_percent(numbers[name]) for name in _COLUMNS[1:])]


def _table(rows):
    aligns = ["---", *["---:"] * (len(rows[0]) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], aligns, *rows[1:]])


def _summary(record):
    names = {
        "given": "given",
        "held out": "held out",
        "A100 and H100": "held out, A100 and H100",
        "all": "all",
    }
    return _table(
        [["", *_COLUMNS]] + [[text, *_numbers(record["summary"][name])] for name, text in names.items()]
    )


def _groups(record, key):
    most = Counter(row[key] for row in record["rows"]).most_common()
    rows = [[name, *_numbers(record["summary"][name])] for name, _ in most]
    return _table([[{"device": "GPU"}.get(key, key), *_COLUMNS], *rows])


def _promise(record):
    kept = {name: _percent(record["summary"][name]["in range"]) for name in ("given", "held out", "all")}
    return (
        f"The published time lies in the range of the report for {kept['given']} of the rows given, "
        f"{kept['held out']} of those held out, {kept['all']} of all."
    )


def _ablation(record):
    rows = [["without", "mean error", "median error", _WITHIN, "in order"]]
    for name, numbers in record["ablation"].items():
        rows.append([name, *(_percent(numbers[column]) for column in rows[0][1:])])
    return _table(rows)


def _rows(record):
    """Return all rows, in a table for each family, worst first."""
    parts = []
    for family in dict.fromkeys(row["family"] for row in record["rows"]):
        own = [row for row in record["rows"] if row["family"] == family]
        own.sort(key=lambda row: -max(row["modelled"] / row["published"], row["published"] / row["modelled"]))
        table = [["GPU", "kernel", "published", "modelled", "ratio", "held out"]]
        table += [
            [
                row["gpu"],
                row["name"].replace("|", "/").replace(";", "; "),
                f"{row['published']:,.0f} us",
                f"{row['modelled']:,.0f} us",
                f"{row['modelled'] / row['published']:.2f}",
                "yes" if row["held out"] else "",
            ]
            for row in own
        ]
        aligns = ["---", "---", "---:", "---:", "---:", "---"]
        lines = [f"| {' | '.join(cells)} |" for cells in [table[0], aligns, *table[1:]]]
        parts.append("\n".join([f"### {family[0].upper()}{family[1:]}", "", *lines, ""]))
    return "\n".join(parts).rstrip("\n")


def _date(record):
    return f"Recorded {record['date']}."


def _unwritten(record):
    from benchmarks.modelled.rows import UNWRITTEN

    return "\n".join(f"- {name}: {why}." for name, why in UNWRITTEN.items())


def _measured():
    """Return the paths of records measured on GPUs."""
    return sorted(RECORD.parent.glob("hardware-*.json"))


def _hardware(record):
    """Return a table of the records measured on GPUs."""
    rows = [["GPU", "driver", "date", "rows", "mean error", "median error"]]
    for path in _measured():
        each = json.loads(path.read_text(encoding="utf-8"))
        gpu, ratios = each["machine"]["gpu"], [row["modelled"] / row["median"] for row in each["rows"]]
        errors = [abs(ratio - 1) for ratio in ratios]
        mean, median = statistics.mean(errors), statistics.median(errors)
        numbers = [str(len(errors)), _percent(mean), _percent(median)]
        rows.append([gpu["name"], gpu["driver"], each["date"], *numbers])
    return _table(rows) if len(rows) > 1 else "**Nobody has run it on a GPU yet.**"


def _independent(record):
    """Return the result of the independent check."""
    path = RECORD.with_name("independent.json")
    every = json.loads(path.read_text(encoding="utf-8"))["summary"]["all"]
    return (
        f"{every['rows']} rows; mean error {_percent(every['mean error'])}, median "
        f"{_percent(every['median error'])}, {_percent(every[_WITHIN])} within a factor of "
        f"{predictions.FACTOR}, {_percent(every['in order'])} in order."
    )


_PARTS = {
    "independent": _independent,
    "hardware": _hardware,
    "date": _date,
    "accuracy": _accuracy,
    "summary": _summary,
    "families": lambda record: _groups(record, "family"),
    "gpus": lambda record: _groups(record, "device"),
    "promise": _promise,
    "ablation": _ablation,
    "unwritten": _unwritten,
    "rows": _rows,
}

# --- The picture --------------------------------------------------------------------------------------------


def draw(record: dict) -> None:
    """Draw modelled against published times, with a mark for each family, hollow for rows held out."""
    from matplotlib.figure import Figure

    from benchmarks.plots import COLOURS, FAINT, INK, PAPER, style

    figure = Figure(figsize=(7.2, 6.2), facecolor=PAPER, layout="constrained")
    axes = figure.subplots()
    style(axes, 9, labelsize=8)
    times = [row[which] for row in record["rows"] for which in ("published", "modelled")]
    ends = [0.7 * min(times), 1.4 * max(times)]
    upper, lower = [predictions.FACTOR * end for end in ends], [end / predictions.FACTOR for end in ends]
    axes.fill_between(ends, lower, upper, color=FAINT, alpha=0.45, lw=0)
    axes.plot(ends, ends, color=INK, lw=0.8)
    families = dict.fromkeys(row["family"] for row in record["rows"])
    for number, family in enumerate(families):
        colour, marker = COLOURS[number % len(COLOURS)], "osD^vP"[number // len(COLOURS) * 3 + number % 3]
        for held in (False, True):
            own = [row for row in record["rows"] if (row["family"], row["held out"]) == (family, held)]
            axes.scatter(
                [row["published"] for row in own],
                [row["modelled"] for row in own],
                s=26,
                marker=marker,
                facecolors="none" if held else colour,
                edgecolors=colour,
                linewidths=1.0,
                alpha=0.85,
                label=None if held else family,
            )
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set_xlabel("published, microseconds", fontsize=9)
    axes.set_ylabel("modelled, microseconds", fontsize=9)
    axes.legend(fontsize=8, frameon=False, labelcolor=INK, loc="upper left")
    note = f"grey: within a factor of {predictions.FACTOR}\nhollow: held out"
    axes.text(0.98, 0.03, note, transform=axes.transAxes, ha="right", fontsize=8, color=INK)
    figure.savefig(PICTURE, format="png", dpi=144, facecolor=PAPER, metadata={"Software": None})


if __name__ == "__main__":
    write(json.loads(RECORD.read_text(encoding="utf-8")))
