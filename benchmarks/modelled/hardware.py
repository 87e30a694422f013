"""Measures the rows' kernels on this machine's GPU, for ``bench modelled --hardware``.

The model needs the emulated GPU, which runs in a separate process: in one process Numba uses only one of the
two GPUs.
"""

import json
import re
from pathlib import Path

import numpy as np

from benchmarks.processes import answer_of
from benchmarks.records import new_record, text_table
from cnn_numba import device
from cnn_numba.device.usable import driver_status
from gpuless.profile.devices import DEVICES
from gpuless.profile.files import write_whole


def bench_hardware(words=(), repeats=20):
    """Measure the rows' kernels with CUDA events, and model them on the same GPU.

    Parameters
    ----------
    words : sequence of str
        Words that a row's GPU, family and name must contain.
    repeats : int
        Timed launches of each, after three untimed ones; the median counts.

    Returns
    -------
    dict
        The record: for each launch the median, the least and the largest time, and the modelled one, all in
        microseconds; GPU, driver, versions and date.

    Raises
    ------
    RuntimeError
        If there is no real GPU, or the model does not know it.
    ValueError
        If no row has all of these words.
    """
    if not device.hardware():
        raise RuntimeError(f"there is no GPU to measure on ({device.SELECTION.reason})")
    record = new_record("modelled", gpu=True)
    name = record["machine"]["gpu"]["name"]
    known = device_named(name)
    measured = {row.name: times for row, times in measure(_rows(words), repeats)}
    modelled = _modelled(known, words)
    rows = [{"name": name, **times, "modelled": modelled[name]} for name, times in measured.items()]
    print(text_table([["measured", "modelled", "ratio", "row"], *map(_texts, rows)], left=0))
    return record | {"modelled as": known, "rows": rows}


def _texts(row):
    ratio = f"{row['modelled'] / row['median']:.2f}"
    return [f"{row['median']:,.1f} us", f"{row['modelled']:,.1f} us", ratio, row["name"]]


def _rows(words):
    """Return rows of different launches."""
    from benchmarks.modelled.rows import published

    found = {row.name: row for row in published() if all(word in row.text for word in words)}
    if not found:
        raise ValueError(f"no row has all of {' '.join(words)}")
    return list(found.values())


def measure(rows, repeats):
    """Yield each row with its times in microseconds, except rows that need more memory than there is."""
    for row in rows:
        try:
            launches = row.launches()
            seconds = device.seconds(lambda launches=launches: _launch(launches), repeats)
        except Exception as error:
            if driver_status(error) != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            print(f"left out, as the GPU has too little memory: {row.name}")
            continue
        times = np.array(seconds) * 1e6
        yield (
            row,
            {"median": float(np.median(times)), "least": float(times.min()), "largest": float(times.max())},
        )


def _launch(launches):
    for kernel, grid, block, shared, arguments in launches:
        kernel[grid, block, device.current_stream(), shared](*arguments)


def _modelled(known, words):
    """Return modelled microseconds on a GPU by the names of rows."""
    return answer_of(["-m", "benchmarks.modelled", "--on", known, *words], GPULESS="emulator")


def device_named(name: str) -> str:
    """Return the modelled GPU with the name of NVIDIA's driver.

    Raises
    ------
    RuntimeError
        If no modelled GPU matches.

    Examples
    --------
    >>> device_named("NVIDIA A100-SXM4-80GB"), device_named("NVIDIA H100 80GB HBM3"), device_named("Tesla T4")
    ('A100 SXM', 'H100 SXM', 'T4')
    """
    words = set(re.findall(r"\w+", re.sub(r"SXM\d|HBM3", "SXM", name.upper())))
    fitting = [known for known in DEVICES if set(known.upper().split()) <= words]
    if not fitting:
        raise RuntimeError(f"the GPU {name!r} is not modelled, only {', '.join(DEVICES)}")
    return max(fitting, key=len)


def write(record: dict) -> Path:
    """Write a record beside the modelled one; return its path."""
    path = Path(__file__).with_name(f"hardware-{record['modelled as'].replace(' ', '-').lower()}.json")
    write_whole(path, json.dumps(record, indent=2) + "\n")
    return path
