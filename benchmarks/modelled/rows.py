"""The published rows with a kernel, and the launch of each."""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.modelled import convolutions, held_out, kernels, matrices, rungs, scans, tiles
from gpuless.profile.devices import device

#: Published rows without a kernel, and the reason.
UNWRITTEN = {"SGEMM 0: cuBLAS": "its source is not public"}
_AT = " at "  # between a GPU's name and the clock that it was locked to


class Row(NamedTuple):
    """A published time in microseconds, and the same launches.

    `gpu`: with its clock, if that was locked: "A100 PCIe at 0.765 GHz"; `held_out`: whether nothing was
    fitted to it; `launches`: returns for each kernel, grid, block, bytes of dynamic shared memory, arguments.
    """

    gpu: str
    family: str
    name: str
    microseconds: float
    held_out: bool
    launches: Callable

    @property
    def device(self):
        """The `gpuless.profile.devices.Device`."""
        name, _, clock = self.gpu.partition(_AT)
        return device(name, clock=float(clock.removesuffix(" GHz"))) if clock else device(name)

    @property
    def text(self):
        """The text to search for words."""
        return f"{self.gpu} {self.family} {self.name}"


def published():
    """Return the `Row` of each published time with a kernel."""
    found = []
    for name in ("published.csv", "found.csv"):
        with open(Path(__file__).with_name(name), newline="", encoding="utf-8") as file:
            found += [_row(line, name == "found.csv") for line in csv.DictReader(file)]
    return [row for row in found if row is not None]


def _row(line, held_out):
    title, gpu = line["kernel"], line["gpu"].removeprefix("Tesla ").replace("RTX A6000", "A6000")
    if title in UNWRITTEN:
        return None
    for pattern, family, make in _FAMILIES:
        if match := re.match(pattern, title):
            size = line["problem_size"] + ";" + line["launch_config"]
            found = re.findall(r"([A-Z][\w /]*?)=(?:2\^\d+ = )?(\d+)", size)
            numbers = {name.strip(): int(number) for name, number in found}
            if side := re.match(r"(\d+)x", size):
                numbers["N"] = int(side[1])
            launch = make(match[1] if match.groups() else "", numbers)
            time = _microseconds(line)
            return Row(gpu, family, f"{title} {size}", time, held_out, _all_of(launch))
    raise ValueError(f"{title!r} has no kernel, and nothing says why")


def _all_of(launch):
    """Return a function that returns launches as a list, even a single one."""

    def launches():
        found = launch()
        return found if isinstance(found, list) else [found]

    return launches


def _microseconds(line):
    """Return the time of a row, which may be given as a rate."""
    figure, size = float(line["figure"]), line["problem_size"]
    if line["unit"] == "GFLOP/s":
        return 2 * int(re.match(r"(\d+)x", size)[1]) ** 3 / figure / 1e3
    if line["unit"] == "GB/s":
        return int(re.search(r"bytes=(\d+)", size)[1]) / figure / 1e3
    return figure * {"us": 1.0, "ms": 1e3}[line["unit"]]


_arrays = {}


def array(name, size, type_=np.uint32):
    """Return an array on the device, the same one for the same name and size.

    It is full of zeros, or uninitialised if it is very large.
    """
    from numba import cuda

    key = name, size, np.dtype(type_)
    if key not in _arrays:
        _arrays.clear() if sum(a.nbytes for a in _arrays.values()) > 1 << 30 else None
        large = size * key[2].itemsize > 1 << 31
        _arrays[key] = cuda.device_array(size, type_) if large else cuda.to_device(np.zeros(size, type_))
    return _arrays[key]


def _reduction(title, numbers):
    kernel, loads = {
        "Simple Reduction": (kernels.reduce_interleaved, 1),
        "Reduction - Adjacent Threads": (kernels.reduce_adjacent, 1),
        "Reduction - Sequential Addressing": (kernels.reduce_sequential, 1),
        "Reduction - Two Loads per Thread": (kernels.reduce_two_loads, 2),
        "Reduction - Unroll Last Warp": (kernels.reduce_last_warp, 2),
        "Reduction - Completely Unrolled": (kernels.reduce_unrolled, 2),
        "Reduction - Multiple Loads": (kernels.reduce_many_loads, 2),
    }[title]
    n, threads = numbers["Array Size"], numbers["Num Threads"]
    blocks = -(-n // (threads * loads))
    return lambda: (kernel, blocks, threads, 4 * threads, (array("x", n), np.uint32(n), array("y", blocks)))


def _add(title, numbers):
    kernel = {"Not Coalesced": kernels.add_columns, "Coalesced": kernels.add_rows}[title]
    n = numbers["Axis Size"]
    grid = n // 16, n // 16
    return lambda: (
        kernel, grid, (16, 16), 0, (*(array(x, n * n) for x in "xyz"), np.uint32(n), np.uint32(n))
    )  # fmt: skip


def _grey(title, numbers):
    n, side = numbers["Axis Size"], numbers["Num Threads"]
    return lambda: (
        kernels.to_grey, (n // side, n // side), (side, side), 0,
        (array("x", 3 * n * n, np.uint8), array("y", n * n, np.uint8), np.uint32(n), np.uint32(n)),
    )  # fmt: skip


def _product(title, numbers):
    kernel, per_thread, tiles = {
        "Simple Matrix Matrix Multiplication": (kernels.multiply, 1, 0),
        "Matrix Matrix Multiplication with Tiles": (kernels.multiply_tiled, 1, 2),
        # Its grid is four times as wide as necessary.
        "Matrix Matrix Multiplication with Rectangular Tiles": (kernels.multiply_two_columns, 0.5, 3),
    }[title]
    n, side = numbers["Num Rows 1"], numbers["Num Threads"]
    grid = int(n / per_thread) // side, n // side
    size = np.uint32(n)
    return lambda: (
        kernel, grid, (side, side), 4 * tiles * side * side, (*(array(x, n * n) for x in "xyz"), *[size] * 3)
    )  # fmt: skip


def _vector(title, numbers):
    kernel, tiled = {
        "Simple Matrix Vector Multiplication": (kernels.multiply_vector, 0),
        "Matrix Vector Multiplication with Shared Memory": (kernels.multiply_vector_tiled, 1),
    }[title]
    m, n, threads = numbers["Num Rows"], numbers["Num Cols"], numbers["Num Threads"]
    return lambda: (
        kernel, -(-m // threads), threads, 4 * threads * tiled,
        (array("z", m), array("x", m * n), array("y", n), np.uint32(m), np.uint32(n)),
    )  # fmt: skip


def _histogram(title, numbers):
    shared = title == "Histogram Shared Bins"
    kernel = kernels.count_in_shared if shared else kernels.count_in_memory
    n, bins, threads = numbers["Array Size"], numbers["Num Bins"], numbers["Num Threads"]
    return lambda: (
        kernel, -(-n // threads), threads, 4 * bins * shared,
        (array("x", n), array("bins", bins), np.uint32(n), np.uint32(bins)),
    )  # fmt: skip


def _convolution(title, numbers):
    n, width, threads = numbers["Array size"], numbers["Mask width"], numbers["Block dim"]
    sizes = np.uint32(width), np.uint32(n)

    def launch():
        x, y = array("x", n, np.float32), array("y", n, np.float32)
        if title == "1D Basic":
            mask = array("m", width, np.float32)
            return convolutions.convolve, n // threads, threads, 0, (x, mask, y, *sizes)
        kernel, shared = {
            "1D Constant Memory": (convolutions.convolve_constant, 0),
            "1D Tiled": (convolutions.convolve_tiled, 4 * (threads + width - 1)),
            "1D Tiled and Caching": (convolutions.convolve_cached, 4 * threads),
        }[title]
        return kernel, n // threads, threads, shared, (x, y, *sizes)

    return launch


def _scan(title, numbers):
    kernel, size, shared = {
        "Kogge-Stone": (scans.scan_kogge_stone, 512, 1024),
        "Brent-Kung": (scans.scan_brent_kung, 1024, 2048),
        "Three-Phase": (scans.scan_three_phases, 4096, 4096),
    }[title]
    n = 1 << 26  # of the published sizes, the one with this time

    def launch():
        sums = [array(f"sums{level}", -(-n // size**level)) for level in (1, 2, 3)]
        return scans.launches(kernel, array("x", n), array("y", n), sums, size, 4 * shared)

    return launch


_N25 = 1 << 25


def _elementwise(title, numbers):
    kernel, arrays = {
        "ADD": (rungs.add_four, "xyz"),
        "RELU": (rungs.relu_four, "xy"),
        "SIGMOID": (rungs.sigmoid_four, "xy"),
    }[title]
    return lambda: (kernel, _N25 // 1024, 256, 0, tuple(array(x, _N25, np.float32) for x in arrays))


def _sum(title, numbers):
    kernel, shared, per_thread = {
        "v2": (rungs.sum_shared, 1024, 1),
        "v3": (rungs.sum_atomic, 1024, 1),
        "v4": (rungs.sum_shuffled, 0, 1),
        "v5": (rungs.sum_four, 0, 4),
    }[title]
    blocks = _N25 // (256 * per_thread)
    return lambda: (
        kernel, blocks, 256, shared,
        (array("x", _N25, np.float32), np.uint32(_N25), array("y", blocks, np.float32)),
    )  # fmt: skip


def _softmax(title, numbers):
    m, n = 4096, 1024
    kernel, blocks, threads, sizes = {
        "row, shared": (rungs.softmax_rows_shared, m, n, (n,)),
        "row, shfl_xor": (rungs.softmax_rows, m, n, (m, n)),
        "column": (rungs.softmax_columns, n, 256, (m, n)),
    }[title]
    return lambda: (
        kernel, blocks, threads, 0,
        (*(array(x, m * n, np.float32) for x in "xy"), *(np.uint32(size) for size in sizes)),
    )  # fmt: skip


def _ladder(title, numbers):
    kernel, rows, columns, block = {
        "1": (matrices.product_naive, 32, 32, (32, 32)),
        "2": (matrices.product_coalesced, 32, 32, 1024),
        "3": (matrices.product_shared, 32, 32, 1024),
        "4": (matrices.product_column, 64, 64, 512),
        "5": (matrices.product_square, 128, 128, 256),
        "6": (tiles.product_vector, 128, 128, 256),
        "7": (tiles.product_linear, 128, 128, 256),
        "8": (tiles.product_padded, 128, 128, 256),
        "9": (tiles.product_deep, 128, 128, 256),
        "10": (tiles.product_warps, 128, 128, 128),
        "11": (tiles.product_buffers, 128, 256, 256),
        "naive": (matrices.product_coalesced, 32, 32, 1024),
        "v2": (matrices.product_shared, 32, 32, 1024),
        "v6": (tiles.product_vector, 128, 128, 256),
    }[title]
    n = numbers["N"]
    factors = np.float32(0.5), np.float32(3.0)
    return lambda: (
        kernel, (n // columns, n // rows), block, 0,
        (*(array(x, n * n, np.float32) for x in "xyz"), np.uint32(n), *factors),
    )  # fmt: skip


def _transpose(title, numbers):
    # In spite of their names, v0 writes neighbours, and v1 and v2 read them. Numba has no __ldg, which on a
    # T4 loads through the same cache.
    kernel = {
        "v0": matrices.transpose_writing,
        "v1": matrices.transpose_reading,
        "v2": matrices.transpose_reading,
        "v3": matrices.transpose_shared,
        "v4": matrices.transpose_padded,
        "v5": matrices.transpose_swizzled,
    }[title]
    n = 4096
    arrays = array("x", n * n, np.float32), array("y", n * n, np.float32)
    return lambda: (kernel, (n // 32, n // 32), (32, 32), 0, (*arrays, np.uint32(n)))


def _sum_of(title, numbers):
    type_, name = title.split(": ", 1)
    kernel, per_thread = getattr(held_out, f"SUMS_OF_{type_.upper()}")[name]
    threads = {"float32": 256, "float64": 128 if name.startswith("4") else 256, "int32": 512}[type_]
    n = numbers["N"]

    def launch():
        x, size, launches = array("x", n, type_), n, []
        while True:
            blocks = -(-size // (threads * per_thread))
            out = array(f"sums{len(launches)}", blocks, type_)
            launches.append((kernel, blocks, threads, 0, (x, np.uint32(size), out)))
            # The rest is added by a single block, by several launches, or by the host.
            if blocks == 1 or type_ == "float32" or per_thread == 12 or name == "kernel_2":
                return launches
            if type_ == "int32":
                last = out, np.uint32(blocks), array("sum", 1, type_)
                return [*launches, (kernel, 1, threads, 0, last)]
            x, size = out, blocks

    return launch


def _scan_of_blocks(title, numbers):
    kernel, threads, per_thread = held_out.SCANS[title]
    eighth = numbers["N"] // 8  # at a time, to save memory

    def launch():
        x, y = array("x", eighth, np.int32), array("y", eighth, np.int32)
        return [(kernel, eighth // (threads * per_thread), threads, 0, (x, y, np.uint32(eighth)))] * 8

    return launch


def _tiles(title, numbers):
    n = numbers["N"]
    return lambda: (
        held_out.TILES[title], (n // 32, n // 32), (32, 8), 0,
        (array("x", n * n, np.float32), array("y", n * n, np.float32), np.uint32(n)),
    )  # fmt: skip


def _add_floats(title, numbers):
    n = numbers["N"]
    kernel, per_thread = {"float": (held_out.add_floats, 1), "float4": (rungs.add_four, 4)}[title]
    arrays = "xyz"
    return lambda: (
        kernel, n // (256 * per_thread), 256, 0, tuple(array(x, n, np.float32) for x in arrays)
    )  # fmt: skip


_FAMILIES = (
    (r"PMPP reduction: (.*?) \(", "reduction", _reduction),
    (r"PMPP array_add: (.*?) \(", "elementwise", _add),
    (r"PMPP image_to_grayscale", "elementwise", _grey),
    (r"PMPP mat_mat_mul: (.*?) \(", "product", _product),
    (r"PMPP mat_vec_mul: (.*?) \(", "matrix and vector", _vector),
    (r"PMPP histogram: (.*?) \(", "histogram", _histogram),
    (r"PMPP convolution: Convolution (.*?) \(", "convolution", _convolution),
    (r"PMPP scan: Hierarchical Scan (.*?) \(", "scan", _scan),
    (r"(?:elementwise )?(ADD|RELU|SIGMOID) float4", "elementwise", _elementwise),
    (r"sum (v[2-5])", "reduction", _sum),
    (r"softmax (.*)", "softmax", _softmax),
    (r"SGEMM ([1-9]|1[01]|v\d|naive)\b", "product of float32", _ladder),
    (r"sum of (.*)", "reduction", _sum_of),
    (r"scan of blocks: (.*)", "scan", _scan_of_blocks),
    (r"tiles of 32x32: (.*)", "transpose", _tiles),
    (r"add of float32: (.*)", "elementwise", _add_floats),
    (r"transpose (v[0-5])", "transpose", _transpose),
)
