"""Loads whose lanes are a stride apart that is known only at launch, in IR.

Such arrays are views of others, such as every second column or a transposed array. When the kernel runs, the
stride decides how to load: neighbours, reversed neighbours and every second element as whole vectors, from
which each lane picks its own; others one by one. A gather would be slowest.
"""

import functools
from typing import NamedTuple

from gpuless.emulator.analysis.lanes import VARYING, WARP
from gpuless.emulator.translate import processor
from gpuless.emulator.translate.masked import load_next
from gpuless.emulator.translate.rows import head, heads_of, on_in_row
from gpuless.emulator.translate.typed import joined
from gpuless.emulator.translate.values import Shape


class Strides(NamedTuple):
    """Lanes a stride apart: the pointer to each row's first lane, and the stride in bytes."""

    pointers: list
    stride: str
    even: str
    """The condition that all addresses are aligned, and no lane is far from its row's first."""


def has_strides(t, address, space):
    """Return whether neighbouring lanes of a row are assumed to be the same multiple of a parameter apart."""
    near = t.operand(address.base).assumed
    if near is VARYING or not near.unit or space == "shared":
        return False
    width = WARP // near.rows
    return near.offsets[:width] == tuple(near.offsets[1] * lane for lane in range(width))


def strides(t, address, bits, far):
    """Return the `Strides` of an address for which `has_strides` is true; lanes must be nearer than `far`."""
    near, size = t.operand(address.base).assumed, bits // 8
    pointers = heads_of(t, address, "global")
    heads = [head(t, pointers, row, near.rows) for row in range(near.rows)]
    stride = t.new(f"mul i64 {t.parameter(near.unit)}, {near.offsets[1]}")
    low = "0"
    for pointer in heads:
        low = t.new(f"or i64 {low}, {t.new(f'ptrtoint ptr {pointer} to i64')}")
    most = far // WARP
    # The conditions on the stride alone come first: LLVM moves them out of loops.
    conditions = [
        t.new(f"icmp ult i64 {t.new(f'add i64 {stride}, {most}')}, {2 * most}"),
        t.new(f"icmp eq i64 {t.new(f'and i64 {stride}, {size - 1}')}, 0"),
        t.new(f"icmp eq i64 {t.new(f'and i64 {low}, {size - 1}')}, 0"),
    ]
    return Strides(heads, stride, t.all_of(*conditions))


def ways(t, found, bits):
    """Return the ways to load if the assumption holds: pairs of a condition and a function that loads.

    Lanes that are off get anything, and memory that only they would read is not touched.
    """
    size = bits // 8
    every = {size: load_next}
    if processor.masks_loads(bits):  # otherwise each lane would be a branch
        every |= {2 * size: _every_second, -size: _backwards}

    def by_rows(load):
        rows, on = len(found.pointers), t.mask_vector()
        parts = [
            load(t, pointer, bits, on_in_row(t, on, row, rows), WARP // rows)
            for row, pointer in enumerate(found.pointers)
        ]
        return joined(t, parts, f"i{bits}")

    strides = [
        (t.new(f"icmp eq i64 {found.stride}, {stride}"), functools.partial(by_rows, load))
        for stride, load in every.items()
    ]
    all_on = t.new(f"icmp eq i32 {t.mask}, -1") if t.masked else None
    return [*strides, (all_on, lambda: _one_by_one(t, found, bits))]


def _one_by_one(t, found, bits):
    """Load for all lanes, from scalar addresses."""
    type_, vector = Shape(WARP).int(bits), "poison"
    width = WARP // len(found.pointers)
    ahead = [t.new(f"mul i64 {found.stride}, {lane}") for lane in range(width)]
    for lane in range(WARP):
        at = t.new(f"getelementptr i8, ptr {found.pointers[lane // width]}, i64 {ahead[lane % width]}")
        one = t.new(f"load i{bits}, ptr {at}, align {bits // 8}")
        vector = t.new(f"insertelement {type_} {vector}, i{bits} {one}, i64 {lane}")
    return vector


def _every_second(t, pointer, bits, on, width):
    halves = []
    for half in range(2):
        # Mask out the elements between the lanes', and those after the last lane's.
        lanes = [width if i % 2 else (half * width + i) // 2 for i in range(width)]
        at = t.new(f"getelementptr i8, ptr {pointer}, i64 {half * width * bits // 8}")
        halves.append(load_next(t, at, bits, t.shuffle(on, "zeroinitializer", "i1", width, lanes), width))
    return t.shuffle(*halves, f"i{bits}", width, range(0, 2 * width, 2))


def _backwards(t, pointer, bits, on, width):
    lanes = range(width - 1, -1, -1)
    last = t.new(f"getelementptr i8, ptr {pointer}, i64 {-(width - 1) * bits // 8}")
    found = load_next(t, last, bits, t.shuffle(on, None, "i1", width, lanes), width)
    return t.shuffle(found, None, f"i{bits}", width, lanes)
