"""``python -m benchmarks.fast_page`` updates the figures of docs/fast-on-the-cpu.md from layers.json."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, RECORD = ROOT / "docs" / "fast-on-the-cpu.md", ROOT / "benchmarks" / "layers.json"

#: What limits a row of the table of layers; the page explains each.
BOUNDS = {
    ("conv1 + pooling", "forward"): "a sum has only 9 multiply-adds; finding windows, pooling, writing",
    ("conv1 + pooling", "backward"): "all four pixels of a window take part, but only one counts",
    ("conv2 + pooling", "forward"): "multiply-adds, 16 by Winograd instead of the 36 counted; transforms",
    ("conv2 + pooling", "backward"): "a load, and for the images also a store, for each multiply-add",
    ("linear1", "forward"): "the weight, which comes from a far cache; copying panels",
    ("linear1", "backward"): "dead gradients are multiplied, too; matrices larger than the near caches",
    ("linear2", "forward"): "little work: the call, with cold caches",
    ("linear2", "backward"): "little work: the call, with cold caches",
    ("relu1", "backward"): "little work",
    ("loss", "forward"): "little work: the call, with cold caches",
    ("update", ""): "a root and a division for each parameter; arrays in a far cache",
}
_LEAST = 1e-5  # seconds: rows with less are left out


def with_figures(text: str, record: dict) -> str:
    """Return a page with the record's figures between its marks, which are HTML comments."""
    parts = {"machine": _machine(record), "ladder": _ladder(record), "layers": _layers(record)}
    for name, part in parts.items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        assert begin in text, f"the page has no {begin}"
        pattern = f"(?<={re.escape(begin)}\n).*?(?={re.escape(end)})"
        text = re.sub(pattern, lambda _, part=part: part + "\n", text, flags=re.DOTALL)
    return text


def _machine(record):
    peak = record["peak_flops_per_second"] / 1e9
    processor = record["machine"]["processor"].replace("(R)", "")
    about = f"`{record['model']}` with batches of {record['batch_size']} on one core ({processor})"
    return f"Measured {record['date']}: {about}, whose peak is **{peak:.0f} GFLOP/s**."


def _ladder(record):
    rows = [["version", "forward, ms", "backward, ms", "times faster", "share of the peak", "error"]]
    before = None
    for rung in record["ladder"]:
        total = rung["forward"] + rung["backward"]
        faster = f"{before / total:.{0 if before > 10 * total else 1}f}" if before else ""
        figures = [_milliseconds(rung[way]) for way in ("forward", "backward")]
        scaled = f" ({rung['images']} image, scaled)" if rung["images"] < record["batch_size"] else ""
        share, error = _percent(rung["share_of_peak"]), f"{rung['error']:.0e}"
        rows.append([rung["rung"] + scaled, *figures, faster, share, error])
        before = total
    return _markdown(rows)


def _layers(record):
    rows = [["what", "pass", "ms", "useful MFLOP", "GFLOP/s", "share of the peak", "what limits it"]]
    for row in record["stages"] + record["steps"]:
        key = row["name"], row["direction"]
        if row["seconds"] < _LEAST:
            continue
        flops = row.get("flops")
        rows.append([*key, _milliseconds(row["seconds"]), *[""] * 3, BOUNDS.get(key, "")])
        if flops:
            rate = flops / row["seconds"] / 1e9
            rows[-1][3:6] = [f"{flops / 1e6:.1f}", f"{rate:.1f}", _percent(row["share_of_peak"])]
    return _markdown(rows)


def _milliseconds(seconds):
    return f"{1e3 * seconds:,.0f}" if seconds > 0.1 else f"{1e3 * seconds:.2f}"


def _percent(share):
    return f"{share:.0%}" if share >= 0.01 else f"{100 * share:.1g}%"


def _markdown(rows):
    """Return a Markdown table, with text aligned to the left and figures to the right."""
    texts = [any(re.match("[A-Za-z]", cell) for cell in column[1:]) for column in zip(*rows, strict=True)]
    aligns = ["---" if text else "---:" for text in texts]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], aligns, *rows[1:]])


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_figures(page, json.loads(RECORD.read_text())), encoding="utf-8")
