"""Atomic operations on memory, in IR."""

from gpuless.emulator.analysis.lanes import VARYING, WARP
from gpuless.emulator.ptx import BITS
from gpuless.emulator.ptx.instructions import listed
from gpuless.emulator.translate.access import narrowed
from gpuless.emulator.translate.addresses import place, pointers_of, space_of
from gpuless.emulator.translate.typed import Typed
from gpuless.emulator.translate.values import ALL, ONE, Value, translates

_ATOMIC = {"and": "and", "or": "or", "xor": "xor", "exch": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap"}


@translates("atom", "red")
def _atom(t, instruction):
    opcode = instruction.opcode
    if "async" in opcode:
        t.refuse()
    type_ = next(part for part in reversed(opcode) if part in BITS)
    operation = next(part for part in opcode[1:] if part in _ATOMIC or part in ("add", "min", "max", "cas"))
    operands = instruction.operands if opcode[0] == "red" else instruction.operands[1:]
    if any("cache_hint" in part for part in opcode):
        operands = operands[:-1]
    where = place(t, operands[0], space_of(instruction), BITS[type_] // 8)
    targets = listed(instruction.operands[0]) if opcode[0] == "atom" else ()
    # Of several numbers next to each other each is changed by itself.
    for i, given in enumerate(zip(*map(listed, operands[1:]), strict=True)):
        old = _change(t, operation, type_, pointers_of(t, where, i * BITS[type_] // 8), given)
        if targets:
            t.write(targets[i], Value(VARYING, None, old))


def _change(t, operation, type_, pointers, given):
    """Write an atomic operation on what lies at the address of each lane; return what was there before."""
    bits = BITS[type_]
    values = [
        t.vector(narrowed(t, t.operand(name, type_), t.function.registers.get(name, bits), bits), bits)
        for name in given
    ]
    name = _atomic_function(t, operation, type_, bits, len(values))
    arguments = ", ".join(f"{ALL.int(bits)} {value}" for value in values)
    mask = t.mask if t.masked else "-1"
    return t.new(f"call {ALL.int(bits)} @{name}(<{WARP} x ptr> {pointers}, {arguments}, i32 {mask})")


def _atomic_function(t, operation, type_, bits, count):
    """Return the name of a function that does an atomic operation lane by lane."""
    name = f"atom.{operation}.{type_}.{count}"
    int_ = f"i{bits}"
    vector = ALL.int(bits)
    if operation == "cas":
        step = (
            f"  %a = extractelement {vector} %v0, i32 %lane\n  %b = extractelement {vector} %v1, i32 %lane\n"
            f"  %pair = cmpxchg ptr %p, {int_} %a, {int_} %b seq_cst seq_cst\n"
            f"  %old = extractvalue {{ {int_}, i1 }} %pair, 0\n"
        )
    elif type_.startswith("bf") or type_.endswith("x2"):
        step = _exchanging(t, operation, type_, vector)
    elif type_.startswith(("f", "bf")):
        kind = {"f16": "half", "f32": "float", "f64": "double"}[type_]
        step = (
            f"  %bits = extractelement {vector} %v0, i32 %lane\n  %x = bitcast {int_} %bits to {kind}\n"
            f"  %before = atomicrmw f{operation} ptr %p, {kind} %x seq_cst\n"
            f"  %old = bitcast {kind} %before to {int_}\n"
        )
    else:
        word = _ATOMIC.get(operation) or (
            operation if operation == "add" else operation if type_[0] == "s" else "u" + operation
        )
        step = (
            f"  %x = extractelement {vector} %v0, i32 %lane\n"
            f"  %old = atomicrmw {word} ptr %p, {int_} %x seq_cst\n"
        )
    given = ", ".join(f"{vector} %v{i}" for i in range(count))
    t.module.declare("i32 @llvm.cttz.i32(i32, i1)")
    t.module.define(
        name,
        f"define internal {vector} @{name}(<{WARP} x ptr> %ps, {given}, i32 %mask) #1 {{\nentry:\n"
        f"  br label %next\nnext:\n"
        f"  %rest = phi i32 [ %mask, %entry ], [ %less, %next ]\n"
        f"  %result = phi {vector} [ zeroinitializer, %entry ], [ %more, %next ]\n"
        f"  %lane = call i32 @llvm.cttz.i32(i32 %rest, i1 true)\n"
        f"  %p = extractelement <{WARP} x ptr> %ps, i32 %lane\n{step}"
        f"  %more = insertelement {vector} %result, {int_} %old, i32 %lane\n"
        f"  %one = sub i32 %rest, 1\n  %less = and i32 %rest, %one\n"
        f"  %done = icmp eq i32 %less, 0\n  br i1 %done, label %end, label %next\nend:\n"
        f"  ret {vector} %more\n}}\n",
    )
    return name


def _exchanging(t, operation, type_, vector):
    """Return a step for numbers that no instruction changes in memory: try until nobody has come between."""
    f = Typed(t, ONE, type_)
    outside, t.lines = t.lines, []
    x, y = f.to_float("%seen"), f.to_float("%given")
    if operation == "add":
        found = t.new(f"fadd {f.float} {x}, {y}")
    else:
        found = f.call(operation + "num", x, y)
    new = f.to_int(found)
    body, t.lines = "\n".join(t.lines), outside
    name = f"change.{operation}.{type_}"
    t.module.define(
        name,
        f"define internal {f.int} @{name}(ptr %p, {f.int} %given) {{\nentry:\n"
        f"  %first = load atomic {f.int}, ptr %p monotonic, align {f.bits // 8}\n  br label %try\ntry:\n"
        f"  %seen = phi {f.int} [ %first, %entry ], [ %there, %try ]\n{body}\n"
        f"  %pair = cmpxchg ptr %p, {f.int} %seen, {f.int} {new} seq_cst seq_cst\n"
        f"  %there = extractvalue {{ {f.int}, i1 }} %pair, 0\n"
        f"  %done = extractvalue {{ {f.int}, i1 }} %pair, 1\n"
        f"  br i1 %done, label %end, label %try\nend:\n  ret {f.int} %there\n}}\n",
    )
    return (
        f"  %x = extractelement {vector} %v0, i32 %lane\n  %old = call {f.int} @{name}(ptr %p, {f.int} %x)\n"
    )
