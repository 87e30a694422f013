"""Masked loads and stores, for the lanes that are on, in IR."""

from gpuless.emulator.translate.values import ALL, Shape
from gpuless.limits import WARP


def gather(t, pointers, bits, mask=None, otherwise="poison", width=WARP):
    """Load from the address of each lane that is on, or that is in `mask`."""
    type_, flags, pointers_ = Shape(width).int(bits), f"<{width} x i1>", f"<{width} x ptr>"
    name = f"llvm.masked.gather.v{width}i{bits}.v{width}p0"
    t.module.declare(f"{type_} @{name}({pointers_}, {flags}, {type_})")
    where = f"{pointers_} align {bits // 8} {pointers}"
    return t.new(f"call {type_} @{name}({where}, {flags} {mask or t.mask_vector()}, {type_} {otherwise})")


def scatter(t, pointers, bits, vector):
    """Store the number of each lane that is on at its address."""
    name = f"llvm.masked.scatter.v{WARP}i{bits}.v{WARP}p0"
    t.module.declare(f"void @{name}({ALL.int(bits)}, <{WARP} x ptr>, <{WARP} x i1>)")
    where = f"<{WARP} x ptr> align {bits // 8} {pointers}, <{WARP} x i1> {t.mask_vector()}"
    t.line(f"call void @{name}({ALL.int(bits)} {vector}, {where})")


def load_next(t, pointer, bits, on, width=WARP):
    """Load from neighbouring addresses for the lanes in the mask `on`."""
    type_ = Shape(width).int(bits)
    name = f"llvm.masked.load.v{width}i{bits}.p0"
    t.module.declare(f"{type_} @{name}(ptr, <{width} x i1>, {type_})")
    given = f"ptr align {bits // 8} {pointer}, <{width} x i1> {on}, {type_} poison"
    return t.new(f"call {type_} @{name}({given})")


def store_next(t, pointer, bits, vector, on, width=WARP):
    """Store to neighbouring addresses for the lanes in the mask `on`."""
    type_ = Shape(width).int(bits)
    name = f"llvm.masked.store.v{width}i{bits}.p0"
    t.module.declare(f"void @{name}({type_}, ptr, <{width} x i1>)")
    t.line(f"call void @{name}({type_} {vector}, ptr align {bits // 8} {pointer}, <{width} x i1> {on})")
