"""The independent check: modelled times of kernels that the model was never compared with before.

``python -m benchmarks.modelled.independent [words ...]`` predicts every row of ``independent.csv``, or
those whose kernel has all of the words, prints modelled/published and writes both to ``independent.json``.

The rows were chosen and the kernels written before any prediction, without a look at the model. Neither are
changed to make errors smaller.
"""

import argparse
import csv
import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import gpuless
from benchmarks.modelled.predictions import summarised
from gpuless.profile.files import write_whole

_ROWS = Path(__file__).with_name("independent.csv")
RECORD = Path(__file__).with_name("independent.json")


class Published(NamedTuple):
    """A published time in microseconds, with its GPU and family; `name` is that of its launch."""

    gpu: str
    family: str
    name: str
    microseconds: float
    grade: str


class Launch(NamedTuple):
    """A launch, and its size relative to the published one."""

    kernel: Callable
    grid: int | tuple
    block: int | tuple
    arguments: tuple
    shared: int = 0
    scale: float = 1.0
    """The published launch's work divided by this one's, which has smaller arrays than gigabytes."""


def published(path: Path = _ROWS) -> list[Published]:
    """Return the rows, in the order of the file."""
    with open(path, newline="", encoding="utf-8") as file:
        return [_published(line) for line in csv.DictReader(file)]


def _published(line):
    name, figure = line["kernel"], float(line["figure"])
    family = name.split()[0]
    if line["unit"] == "GB/s":
        # Bytes read and written as the sources count them.
        moved = {"stencil": 16 * (2**27 + 2), "triad": 24 * (2**27 + 2), "scan": 8 * 2**30}[family]
        microseconds = moved / figure / 1e3
    else:
        microseconds = figure * {"us": 1.0, "ms": 1e3}[line["unit"]]
    return Published(line["gpu"], family, name, microseconds, line["grade"])


def launches() -> dict[str, Callable[[], Launch]]:
    """Return functions that make the launches, by the names of rows."""
    from benchmarks.modelled import independent_kernels as kernels, independent_sums as sums

    return {
        "stencil of 3 points float64": lambda: _stream(kernels.stencil, 2, 1024, 0),
        "triad float64": lambda: _stream(kernels.triad, 3, 1024, 0),
        "triad float64 at low occupancy": lambda: _stream(kernels.triad, 3, 128, 48 << 10),
        "convolution in shared memory 16x16 1 a thread": lambda: _convolution(16, 16, 1),
        "convolution in shared memory 32x8 1 a thread": lambda: _convolution(32, 8, 1),
        "convolution in shared memory 64x4 4 a thread": lambda: _convolution(64, 4, 4),
        "point in polygon 1 a thread": lambda: _polygon(kernels.polygon, 1),
        "point in polygon 4 a thread": lambda: _polygon(kernels.polygon_of_four, 4),
        "scan of blocks in global memory": lambda: _scan(kernels.scan_in_memory, 512, 1),
        "scan of blocks in shared memory": lambda: _scan(kernels.scan_in_shared, 512, 1),
        "scan of blocks by shuffles": lambda: _scan(kernels.scan_by_shuffles, 256, 1),
        "scan of blocks by shuffles 4 a thread": lambda: _scan(kernels.scan_four_by_shuffles, 128, 4),
        "transpose naive": lambda: _transpose(kernels.transpose, 32),
        "transpose tiled": lambda: _transpose(kernels.transpose_by_tiles(32, 32), 32),
        "transpose tiled padded": lambda: _transpose(kernels.transpose_by_tiles(32, 33), 32),
        "transpose tiled 4 a thread": lambda: _transpose(kernels.transpose_four_by_tiles(32), 8),
        "transpose tiled padded 4 a thread": lambda: _transpose(kernels.transpose_four_by_tiles(33), 8),
        "transpose of tiles of 16 padded": lambda: _small_transpose(kernels.transpose_by_tiles(16, 17)),
        "histogram in global memory": lambda: _histogram(kernels.histogram_in_memory),
        "histogram in shared memory": lambda: _histogram(kernels.histogram_in_shared),
        "softmax online a thread a row": lambda: _softmax(kernels.softmax_by_threads, 4),
        "softmax online a block a row": lambda: _softmax(kernels.softmax_by_blocks, 1024),
        "product coalesced": lambda: _product(sums.product, 4096, scaled=True),
        "product in shared memory": lambda: _product(sums.product_in_shared, 4096, 1024, scaled=True),
        "product in shared memory bounds checked": lambda: _product(
            sums.product_checked, 2048, (32, 32), False
        ),
        "sums of rows a thread a row": lambda: _rows(sums.rows_by_threads),
        "sums of rows a block a row": lambda: _rows(sums.rows_by_blocks),
        "sums of rows by shuffles": lambda: _rows(sums.rows_by_shuffles),
        "dot product of blocks": lambda: _dot(sums.dot_product),
    }


def _on_device(*arrays):
    from numba import cuda

    return tuple(cuda.to_device(array) for array in arrays)


def _floats(*shape):
    return np.random.default_rng(len(shape)).random(shape, np.float32)


def _stream(kernel, arrays, block, shared):
    n = 2**25 + 2
    arguments = *_on_device(*(np.ones(n) for _ in range(arrays))), np.uint32(n)
    return Launch(kernel, n // block + 1, block, arguments, shared, (2**27 + 2) / n)


def _convolution(width, height, per_thread):
    from benchmarks.modelled.independent_convolution import SIDE, convolution

    n, border = 4096, SIDE - 1
    arguments = *_on_device(np.zeros(n * n, np.float32), _floats((n + border) ** 2)), np.uint32(n)
    grid = n // width, n // (height * per_thread)
    return Launch(convolution(width, height, per_thread), grid, (width, height), arguments)


def _polygon(kernel, per_thread):
    n = 20_000_000
    points = np.random.default_rng(2).standard_normal((n, 2), np.float32)
    arguments = *_on_device(np.zeros(n, np.int32), points), np.uint32(n)
    return Launch(kernel, -(-n // (256 * per_thread)), 256, arguments)


def _scan(kernel, block, per_thread):
    n = 2**28
    values = np.random.default_rng(0).integers(0, 100, n, np.int32)
    arguments = *_on_device(values, np.zeros(n, np.int32)), np.uint32(n)
    return Launch(kernel, n // (block * per_thread), block, arguments, scale=2**30 / n)


def _transpose(kernel, height):
    n = 16384
    arguments = *_on_device(*(np.zeros(n * n, np.float32) for _ in "xy")), np.uint32(n)
    return Launch(kernel, (n // 32, n // 32), (32, height), arguments, scale=(32768 / n) ** 2)


def _small_transpose(kernel):
    n = 1024
    arguments = *_on_device(*(np.zeros(n * n, np.float32) for _ in "xy")), np.uint32(n)
    return Launch(kernel, (n // 16, n // 16), (16, 16), arguments)


def _histogram(kernel):
    n = 2**30
    data = np.random.default_rng(0).integers(0, 256, n, np.uint8)
    data, bins = _on_device(data, np.zeros(256, np.int32))
    return Launch(kernel, 132 * 32, 512, (data, np.uint32(n), bins))


def _softmax(kernel, grid):
    rows, columns = 1024, 65536
    arrays = _on_device(10 * _floats(rows * columns) - 5, np.zeros(rows * columns, np.float32))
    if grid == rows:
        return Launch(kernel, grid, 256, (*arrays, np.uint32(columns)), 2 * 4 * 256)
    return Launch(kernel, grid, 256, (*arrays, np.uint32(columns), np.uint32(rows * columns)))


def _product(kernel, n, block=(32, 32), scaled=False):
    arguments = *_on_device(*(_floats(n * n) for _ in "abc")), np.uint32(n)
    if scaled:
        arguments = *arguments, np.float32(0.5), np.float32(3.0)
    return Launch(kernel, (n // 32, n // 32), block, arguments)


def _rows(kernel):
    n = 10000
    arrays = _on_device(np.ones(n * n, np.float32), np.zeros(n, np.float32))
    return Launch(kernel, 1, 512, (*arrays, np.uint32(n), np.uint32(n)))


def _dot(kernel):
    n = 65536
    arrays = _on_device(np.ones(n, np.float32), np.full(n, 2, np.float32), np.zeros(256, np.float32))
    return Launch(kernel, 256, 256, (*arrays, np.uint32(n)))


def predicted(rows: list[Published], launch: Launch) -> list[dict]:
    """Return the records of the rows of one launch on several GPUs."""
    configured = launch.kernel[launch.grid, launch.block, 0, launch.shared]
    reports = gpuless.profile(configured, [row.gpu for row in rows])(*launch.arguments)
    return [_record(row, report, launch.scale) for row, report in zip(rows, reports, strict=True)]


def _record(row, report, scale):
    modelled = report.microseconds * scale
    return {
        "gpu": row.gpu,
        "family": row.family,
        "kernel": row.name,
        "grade": row.grade,
        "published": round(row.microseconds, 3),
        "modelled": round(modelled, 3),
        "ratio": round(modelled / row.microseconds, 3),
        "low": round(report.low * scale, 3),
        "high": round(report.high * scale, 3),
        "limiter": report.limiter,
    }


def summary_of(rows: list[dict]) -> dict:
    """Return the errors of a record's rows by family, by GPU, and of all."""
    keys = "gpu", "family", "published", "modelled"
    return summarised(
        [{key: row[key] for key in keys} for row in rows], lambda row: (row["family"], row["gpu"])
    )


def main() -> None:
    """Predict the rows, print them and a summary."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    words = parser.parse_args().words
    gpuless.select()  # before the kernels import numba.cuda
    groups, make = defaultdict(list), launches()
    for row in published():
        if all(word in row.name for word in words):
            groups[row.name].append(row)
    if not groups:
        parser.error(f"no kernel has all of {' '.join(words)}")
    record = (
        json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {"changes": [], "rows": []}
    )
    known = {(row["gpu"], row["kernel"]): row for row in record["rows"]}
    for name, rows in groups.items():
        for each in predicted(rows, make[name]()):
            known[each["gpu"], name] = each
            times = f"{each['published']:11.1f} us published {each['modelled']:11.1f} modelled"
            print(f"{each['gpu']:11}{times} {each['ratio']:5.2f}  {name}", flush=True)
    record["rows"] = [known[key] for row in published() if (key := (row.gpu, row.name)) in known]
    record["summary"] = summary_of(record["rows"])
    print(", ".join(f"{key} {value:.3g}" for key, value in record["summary"]["all"].items()))
    write_whole(RECORD, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
