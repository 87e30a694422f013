"""Gathers and scatters: loads and stores at arbitrary addresses, in IR.

Processors gather faster by 32-bit offsets than by 64-bit addresses. And if the vector of a sum is invariant
in a loop, a check before the loop finds whether all lanes read the same number, or numbers that are near
enough to be loaded together.
"""

import functools

from gpuless.emulator.translate import processor
from gpuless.emulator.translate.doubts import either
from gpuless.emulator.translate.layout import ARENA_SPAN
from gpuless.emulator.translate.masked import gather, load_next, scatter
from gpuless.emulator.translate.typed import joined
from gpuless.emulator.translate.values import ALL, Shape
from gpuless.limits import WARP

_NAMES = {32: ("dpi", 16), 64: ("dpq", 8)}  # suffixes of LLVM's intrinsics, and the lanes of one
_WINDOW = 64  # how many 32-bit numbers are loaded together; each lane picks its own
_NEAR = 1 << 30  # bytes


def _pointer(t, number, offset):
    """Return a pointer to an address in the arena."""
    address = t.new(f"add i64 {number}, {offset}") if offset else number
    inside = t.new(f"and i64 {address}, {ARENA_SPAN - 1}")
    return t.new(f"getelementptr i8, ptr %arena, i64 {inside}")


def _indices(t, given, offset):
    """Return a pointer, a vector of signed 32-bit indices, and their scale."""
    pointer, index = _pointer(t, given.number, offset), given.narrow
    if not given.signed:
        index = t.new(f"xor {ALL.int(32)} {index}, splat (i32 {-(1 << 31)})")
        pointer = t.new(f"getelementptr i8, ptr {pointer}, i64 {1 << 31 + given.shift}")
    return pointer, index, 1 << given.shift


def _parts(t, vector, type_, width):
    """Return a vector split into parts of `width` lanes."""
    starts = range(0, WARP, width)
    if vector.startswith(("splat", "zero")):
        return [vector for _ in starts]
    return [t.shuffle(vector, None, type_, WARP, range(at, at + width)) for at in starts]


def can_index(bits):
    """Return whether the processor can gather numbers of this width by 32-bit offsets."""
    return bits in _NAMES and processor.embeds_rounding()


def _gather_indexed(t, pointer, index, scale, bits):
    name, width = _NAMES[bits]
    part, flags = Shape(width).int(bits), Shape(width).int(1)
    name = f"llvm.x86.avx512.mask.gather.{name}.512"
    t.module.declare(f"{part} @{name}({part}, ptr, {Shape(width).int(32)}, {flags}, i32 immarg)")
    found = []
    for i, on in zip(_parts(t, index, "i32", width), _parts(t, t.mask_vector(), "i1", width), strict=True):
        given = f"{part} zeroinitializer, ptr {pointer}, {Shape(width).int(32)} {i}, {flags} {on}"
        found.append(t.new(f"call {part} @{name}({given}, i32 {scale})"))
    return joined(t, found, f"i{bits}")


def scatter_sum(t, given, bits, vector, offset, pointers):
    """Store each lane's number at its address, given as a `Sum` or, by `pointers`, as pointers."""
    if given is None or given.narrow is None or not can_index(bits):
        scatter(t, pointers(), bits, vector)
        return
    pointer, index, scale = _indices(t, given, offset)
    name, width = _NAMES[bits]
    part, flags, where = Shape(width).int(bits), Shape(width).int(1), Shape(width).int(32)
    name = f"llvm.x86.avx512.mask.scatter.{name}.512"
    t.module.declare(f"void @{name}(ptr, {flags}, {where}, {part}, i32 immarg)")
    whole = (t.mask_vector(), "i1"), (index, "i32"), (vector, f"i{bits}")
    for on, i, piece in zip(*(_parts(t, *each, width) for each in whole), strict=True):
        t.line(f"call void @{name}(ptr {pointer}, {flags} {on}, {where} {i}, {part} {piece}, i32 {scale})")


def gather_sum(t, given, bits, offset, pointers, steady):
    """Load a number for each lane from its address, given as a `Sum` or, by `pointers`, as pointers.

    `steady`: whether the vector of the sum is invariant in the loop.
    """
    if given is None:
        return gather(t, pointers(), bits)
    if given.narrow is not None and can_index(bits):
        return _gather_indexed(t, *_indices(t, given, offset), bits)
    if not steady:
        return gather(t, pointers(), bits)
    t.mask_vector()
    near, first, index, span = _nearness(t, given.spread(t))
    number = t.new(f"add i64 {given.number}, {first}")
    same = t.all_of(near, t.new(f"icmp eq i32 {span}, 0"))

    def one():
        pointer = _pointer(t, number, offset)
        return [t.splat(t.new(f"load i{bits}, ptr {pointer}, align {bits // 8}"), f"i{bits}")]

    def others():
        if not can_index(bits):
            return [gather(t, pointers(), bits)]

        def far():
            return [gather(t, pointers(), bits)]

        near_by = functools.partial(_gather_near, t, number, index, span, bits, offset)
        return either(t, near, [far, near_by], ALL.int(bits), 1)

    return either(t, same, [others, one], ALL.int(bits), 1)[0]


def _nearness(t, vector):
    """Return whether all lanes are near each other, the smallest, the distances from it, their maximum."""
    int_, narrow = ALL.int(64), ALL.int(32)
    vector = t.new(f"freeze {int_} {vector}")
    first = t.new(f"extractelement {int_} {vector}, i64 0")
    apart = t.new(f"sub {int_} {vector}, {t.splat(first, 'i64')}")
    ahead = t.new(f"add {int_} {apart}, splat (i64 {_NEAR})")
    within = t.new(f"icmp ult {int_} {ahead}, splat (i64 {2 * _NEAR})")
    near = t.new(f"icmp eq i32 {t.new(f'bitcast <{WARP} x i1> {within} to i32')}, -1")
    apart = t.new(f"trunc {int_} {apart} to {narrow}")
    least = _reduced(t, "smin", apart)
    index = t.new(f"sub {narrow} {apart}, {t.splat(least, 'i32')}")
    first = t.new(f"add i64 {first}, {t.new(f'sext i32 {least} to i64')}")
    return near, first, index, _reduced(t, "umax", index)


def _reduced(t, word, vector):
    name = f"llvm.vector.reduce.{word}.v{WARP}i32"
    t.module.declare(f"i32 @{name}({ALL.int(32)})")
    return t.new(f"call i32 @{name}({ALL.int(32)} {vector})")


def _gather_near(t, number, index, span, bits, offset):
    """Load from addresses at these distances from a number; all at once from a window if possible."""

    def apart():
        return [_gather_indexed(t, _pointer(t, number, offset), index, 1, bits)]

    if bits != 32:
        return apart()
    low = t.new(f"and i32 {_reduced(t, 'or', index)}, 3")
    whole = t.new(f"icmp eq i32 {low}, 0")
    few = t.all_of(whole, t.new(f"icmp ult i32 {span}, {4 * _WINDOW}"))
    pieces = [apart, lambda: [_load_window(t, _pointer(t, number, offset), index)]]
    return either(t, few, pieces, ALL.int(32), 1)


def _wanted(t, index):
    """Return a 64-bit mask of the numbers in a window that lanes which are on read."""
    wide, flags = ALL.int(64), ALL.int(1)
    bit = t.new(f"shl {wide} splat (i64 1), {t.new(f'zext {ALL.int(32)} {index} to {wide}')}")
    name = f"llvm.vector.reduce.or.v{WARP}i64"
    t.module.declare(f"i64 @{name}({wide})")

    def of(bits):
        return t.new(f"call i64 @{name}({wide} {bits})")

    def of_some():
        return [of(t.new(f"select {flags} {t.mask_vector()}, {wide} {bit}, {wide} zeroinitializer"))]

    if not t.masked:
        return of(bit)
    # For all lanes it is invariant in the loop.
    return either(t, t.new(f"icmp eq i32 {t.mask}, -1"), [of_some, lambda: [of(bit)]], "i64", 1)[0]


def _load_window(t, pointer, index):
    """Load the wanted numbers of a window of neighbouring numbers; each lane picks its own."""
    index = t.new(f"lshr {ALL.int(32)} {index}, splat (i32 2)")
    on = t.new(f"bitcast i64 {_wanted(t, index)} to <{_WINDOW} x i1>")
    loaded = []
    for at in range(0, _WINDOW, 16):
        part = t.shuffle(on, None, "i1", _WINDOW, range(at, at + 16))
        loaded.append(load_next(t, t.new(f"getelementptr i8, ptr {pointer}, i64 {4 * at}"), 32, part, 16))
    pick, half = "llvm.x86.avx512.vpermi2var.d.512", Shape(16).int(32)
    t.module.declare(f"{half} @{pick}({half}, {half}, {half})")
    found = []
    for places in _parts(t, index, "i32", 16):
        low, high = (
            t.new(f"call {half} @{pick}({half} {loaded[i]}, {half} {places}, {half} {loaded[i + 1]})")
            for i in (0, 2)
        )
        far = t.new(f"icmp ugt {half} {places}, splat (i32 31)")
        found.append(t.new(f"select <16 x i1> {far}, {half} {high}, {half} {low}"))
    return t.shuffle(*found, "i32", 16, range(WARP))
