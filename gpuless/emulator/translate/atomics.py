"""Atomic operations on memory, in IR."""

from gpuless.emulator.analysis.lanes import VARYING, WARP
from gpuless.emulator.ptx import BITS
from gpuless.emulator.ptx.instructions import listed
from gpuless.emulator.translate.access import narrowed
from gpuless.emulator.translate.addresses import place, pointers_of, space_of
from gpuless.emulator.translate.typed import Integers, Typed
from gpuless.emulator.translate.values import ALL, FLOATS, ONE, Value, translates

#: LLVM's names of operations that are the same for signed and unsigned numbers.
_ATOMIC = {"add": "add", "and": "and", "or": "or", "xor": "xor"}
_ATOMIC |= {"exch": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap"}


@translates("atom", "red")
def _atom(t, instruction):
    opcode = instruction.opcode
    if "async" in opcode:
        t.refuse()
    type_ = next(part for part in reversed(opcode) if part in BITS)
    operation = next(part for part in opcode[1:] if part in _ATOMIC or part in ("min", "max", "cas"))
    operands = instruction.operands if opcode[0] == "red" else instruction.operands[1:]
    if any("cache_hint" in part for part in opcode):
        operands = operands[:-1]
    where = place(t, operands[0], space_of(instruction), BITS[type_] // 8)
    targets = listed(instruction.operands[0]) if opcode[0] == "atom" else ()
    asked = any(t.analysis.is_read(name) for name in targets)
    # A vector of numbers is changed one number at a time.
    for i, given in enumerate(zip(*map(listed, operands[1:]), strict=True)):
        old = _change(t, operation, type_, pointers_of(t, where, i * BITS[type_] // 8), given, asked)
        if asked:
            t.write(targets[i], Value(VARYING, None, old))


def _change(t, operation, type_, pointers, given, asked):
    """Write an atomic operation at the address of each lane; return the old values.

    If not `asked`, the result may be anything.
    """
    bits = BITS[type_]
    values = [
        t.vector(narrowed(t, t.operand(name, type_), t.function.registers.get(name, bits), bits), bits)
        for name in given
    ]
    name = _atomic_function(t, operation, type_, bits, len(values), asked)
    arguments = ", ".join(f"{ALL.int(bits)} {value}" for value in values)
    mask = t.mask if t.masked else "-1"
    return t.new(f"call {ALL.int(bits)} @{name}(<{WARP} x ptr> {pointers}, {arguments}, i32 {mask})")


def _atomic_function(t, operation, type_, bits, count, asked):
    """Return the name of a function that performs an atomic operation lane by lane.

    First it combines lanes at the same address, as long as the next lane shares its address with others.
    """
    name = f"atom.{operation}.{type_}.{count}{'.asked' if asked else ''}"
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
    elif type_[0] == "f":
        kind = FLOATS[bits]
        step = (
            f"  %bits = extractelement {vector} %v0, i32 %lane\n  %x = bitcast {int_} %bits to {kind}\n"
            f"  %before = atomicrmw f{operation} ptr %p, {kind} %x seq_cst\n"
            f"  %old = bitcast {kind} %before to {int_}\n"
        )
    else:
        word = _ATOMIC.get(operation) or ("" if type_[0] == "s" else "u") + operation
        step = (
            f"  %x = extractelement {vector} %v0, i32 %lane\n"
            f"  %old = atomicrmw {word} ptr %p, {int_} %x seq_cst\n"
        )
    given = ", ".join(f"{vector} %v{i}" for i in range(count))
    t.module.declare("i32 @llvm.cttz.i32(i32, i1)")
    together = _together(t, operation, type_, bits, asked)
    begin = f"  br label %{'group' if together else 'each'}\n"
    if together:
        begin += _GROUP.format(vector=vector, together=together)
        rest, result = "[ %left, %group ]", "[ %had, %group ]"
    else:
        rest, result = "[ %mask, %entry ]", "[ zeroinitializer, %entry ]"
    t.module.define(
        name,
        f"define internal {vector} @{name}(<{WARP} x ptr> %ps, {given}, i32 %mask) #1 {{\nentry:\n{begin}"
        f"each:\n  %rest = phi i32 {rest}, [ %less, %each.end ]\n"
        f"  %result = phi {vector} {result}, [ %more, %each.end ]\n"
        f"  %lane = call i32 @llvm.cttz.i32(i32 %rest, i1 true)\n"
        f"  %p = extractelement <{WARP} x ptr> %ps, i32 %lane\n{step}  br label %each.end\neach.end:\n"
        f"  %more = insertelement {vector} %result, {int_} %old, i32 %lane\n"
        f"  %one = sub i32 %rest, 1\n  %less = and i32 %rest, %one\n"
        f"  %done = icmp eq i32 %less, 0\n  br i1 %done, label %end, label %each\nend:\n"
        f"  %found = phi {vector} [ %more, %each.end ]{', [ %have, %group.end ]' if together else ''}\n"
        f"  ret {vector} %found\n}}\n",
    )
    return name


# All lanes at the address of the first remaining lane at once; if it is alone, lane by lane from there on.
_GROUP = """group:
  %left = phi i32 [ %mask, %entry ], [ %remain, %group.end ]
  %had = phi {vector} [ zeroinitializer, %entry ], [ %have, %group.end ]
  %first = call i32 @llvm.cttz.i32(i32 %left, i1 true)
  %at = extractelement <32 x ptr> %ps, i32 %first
  %at.one = insertelement <32 x ptr> poison, ptr %at, i64 0
  %at.every = shufflevector <32 x ptr> %at.one, <32 x ptr> poison, <32 x i32> zeroinitializer
  %same.any = icmp eq <32 x ptr> %ps, %at.every
  %same.frozen = freeze <32 x i1> %same.any
  %same.bits = bitcast <32 x i1> %same.frozen to i32
  %same = and i32 %same.bits, %left
  %same.less = sub i32 %same, 1
  %same.others = and i32 %same, %same.less
  %alone = icmp eq i32 %same.others, 0
  br i1 %alone, label %each, label %together
together:
  %on = bitcast i32 %same to <32 x i1>
{together}  br label %group.end
group.end:
  %have = select <32 x i1> %on, {vector} %olds, {vector} %had
  %remain = xor i32 %left, %same
  %none = icmp eq i32 %remain, 0
  br i1 %none, label %end, label %group
"""
_IDENTITIES = {"add": 0, "or": 0, "xor": 0, "and": -1, "umin": -1, "umax": 0}


def _together(t, operation, type_, bits, asked):
    """Return IR that changes the number at `%at` for all lanes that are `%on`, "" if it is impossible.

    It sets `%olds` to what each lane would find if the lanes came one after the other.
    """
    word = operation if operation not in ("min", "max") else ("s" if type_[0] == "s" else "u") + operation
    outside, t.lines = t.lines, []
    if operation == "add" and type_ in ("f32", "f64"):
        _add_in_turn(t, bits, asked)
    elif type_[0] in "usb" and type_[1:].isdigit() and word in ("smin", "smax", *_IDENTITIES):
        _combine(t, word, bits, asked)
    body, t.lines = "\n".join(t.lines), outside
    return body + "\n" if body else ""


def _combine(t, word, bits, asked):
    """Write one atomic operation with the combined numbers of all lanes."""
    i, vector = Integers(t, ALL, bits), ALL.int(bits)
    least = -(1 << (bits - 1))
    identity = {"smin": -1 - least, "smax": least}.get(word, _IDENTITIES.get(word))
    given = i.select("%on", "%v0", identity)
    in_memory, infix = word.replace("smin", "min").replace("smax", "max"), word in ("add", "and", "or", "xor")

    def join(x, y):
        return i(word, x, y) if infix else i.call(word, x, y)

    name = f"llvm.vector.reduce.{word}.v{WARP}i{bits}"
    t.module.declare(f"i{bits} @{name}({vector})")
    total = t.new(f"call i{bits} @{name}({vector} {given})")
    before = t.new(f"atomicrmw {in_memory} ptr %at, i{bits} {total} seq_cst")
    found = t.splat(before, f"i{bits}")
    if asked:  # combine with the lanes before
        nothing = i.number(identity)
        running = t.shuffle(nothing, given, f"i{bits}", WARP, range(WARP - 1, 2 * WARP - 1))
        for step in (1, 2, 4, 8, 16):
            places = range(WARP - step, 2 * WARP - step)
            running = join(running, t.shuffle(nothing, running, f"i{bits}", WARP, places))
        found = join(found, running)
    t.line(f"%olds = or {vector} {found}, zeroinitializer")


def _add_in_turn(t, bits, asked):
    """Add the floating point numbers of all lanes to a number in memory, one after the other."""
    kind, vector = ALL.float(bits), ALL.int(bits)
    one, zero = FLOATS[bits], "-0.0"
    numbers = t.new(f"bitcast {vector} %v0 to {kind}")
    # Adding -0 changes nothing.
    given = t.new(f"select <{WARP} x i1> %on, {kind} {numbers}, {kind} splat ({one} {zero})")
    t.line(f"%begin = load atomic i{bits}, ptr %at monotonic, align {bits // 8}\n  br label %try\ntry:")
    t.line(f"%seen = phi i{bits} [ %begin, %together ], [ %there, %try ]")
    total, olds = t.new(f"bitcast i{bits} %seen to {one}"), "poison"
    if asked:
        for lane in range(WARP):
            olds = t.new(f"insertelement {kind} {olds}, {one} {total}, i64 {lane}")
            x = t.new(f"extractelement {kind} {given}, i64 {lane}")
            total = t.new(f"fadd {one} {total}, {x}")
    else:
        name = f"llvm.vector.reduce.fadd.v{WARP}f{bits}"
        t.module.declare(f"{one} @{name}({one}, {kind})")
        total, olds = t.new(f"call {one} @{name}({one} {total}, {kind} {given})"), "zeroinitializer"
    changed = t.new(f"bitcast {one} {total} to i{bits}")
    t.line(f"%olds = bitcast {kind} {olds} to {vector}")
    t.line(f"%pair.all = cmpxchg ptr %at, i{bits} %seen, i{bits} {changed} seq_cst seq_cst")
    t.line(f"%there = extractvalue {{ i{bits}, i1 }} %pair.all, 0")
    t.line(f"%stored = extractvalue {{ i{bits}, i1 }} %pair.all, 1")
    t.line("br i1 %stored, label %added, label %try\nadded:")


def _exchanging(t, operation, type_, vector):
    """Return a step for types without an atomic instruction: a loop with compare-and-swap."""
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
