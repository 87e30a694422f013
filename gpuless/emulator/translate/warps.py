"""Instructions of a warp or a block as a whole, in IR: shuffles, votes, barriers; and calls."""

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import UNIFORM, VARYING, WARP
from gpuless.emulator.ptx import BITS
from gpuless.emulator.ptx.instructions import listed, split_call
from gpuless.emulator.translate.layout import BARRIERS
from gpuless.emulator.translate.masked import gather
from gpuless.emulator.translate.typed import Integers, call_int
from gpuless.emulator.translate.values import ALL, LANES, ONE, Value, translates

# --- Shuffles and votes -------------------------------------------------------------------------------------


@translates("shfl")
def _shfl(t, instruction):
    target, a, b, c = instruction.operands[:4]
    names = listed(target)
    mode = next(part for part in instruction.opcode if part in ("up", "down", "bfly", "idx"))
    data = t.vector(t.operand(a, "b32"), 32)
    by, clamp = t.operand(b, "u32"), t.operand(c, "u32")
    constant = all(value.kind is not VARYING and value.kind.constant for value in (by, clamp))
    result, inside = (_constant_shuffle if constant else _shuffle)(t, mode, data, by, clamp)
    t.write(names[0], Value(VARYING, None, result))
    if len(names) > 1:
        t.write(names[1], Value(VARYING, None, inside))


def _source(mode, lane, by, clamp):
    """Return (the lane to read from, whether it is in range): PTX ISA, shfl.sync."""
    by, end, segment = by & 31, clamp & 31, clamp >> 8 & 31
    last, first = lane & segment | end & ~segment & 31, lane & segment
    source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": first | by & ~segment & 31}[mode]
    inside = source >= last if mode == "up" else source <= last
    return (source if inside else lane), inside


def _constant_shuffle(t, mode, data, by, clamp):
    found = [_source(mode, lane, by.kind.offsets[lane], clamp.kind.offsets[lane]) for lane in range(WARP)]
    flags = ", ".join(f"i1 {str(bool(inside)).lower()}" for _, inside in found)
    result = t.shuffle(data, None, "i32", WARP, [source for source, _ in found])
    return result, f"<{flags}>"


def _shuffle(t, mode, data, by, clamp):
    i = Integers(t, ALL, 32)
    by, clamp = i("and", t.vector(by, 32), 31), t.vector(clamp, 32)
    end, segment = i("and", clamp, 31), i("and", i("lshr", clamp, 8), 31)
    other = i("xor", segment, 31)
    first = i("and", LANES, segment)
    last = i("or", first, i("and", end, other))
    if mode == "idx":
        source = i("or", first, i("and", by, other))
    else:
        source = i({"up": "sub", "down": "add", "bfly": "xor"}[mode], LANES, by)
    inside = i("icmp sge" if mode == "up" else "icmp sle", source, last)
    source = i.select(inside, source, LANES)
    return permute(t, data, source, 32), inside


def permute(t, data, source, bits):
    """Return, for each lane, the number in another lane, given by a vector of lane numbers."""
    slot = f"%permute.{bits}"
    t.slots[slot] = ALL.int(bits)
    t.line(f"store {ALL.int(bits)} {data}, ptr {slot}")
    pointers = t.new(f"getelementptr i{bits}, ptr {slot}, {ALL.int(32)} {source}")
    return gather(t, pointers, bits, "splat (i1 true)")


def _members(t, operand):
    """Return (`Shape`, mask of members): the lanes in the operand's mask that are on."""
    value = t.operand(operand, "b32")
    if lanes.uniform(value.kind):
        return ONE, t.new(f"and i32 {t.mask}, {value.scalar}")
    return ALL, t.new(f"and {ALL.int(32)} {t.splat(t.mask, 'i32')}, {t.vector(value, 32)}")


@translates("vote")
def _vote(t, instruction):
    target, predicate = instruction.operands[:2]
    mode = next(part for part in instruction.opcode if part in ("all", "any", "uni", "ballot"))
    s, here = _members(t, instruction.operands[2]) if len(instruction.operands) > 2 else (ONE, t.mask)
    value = t.operand(predicate, "pred")
    if lanes.uniform(value.kind):
        bits = t.new(f"select i1 {value.scalar}, i32 -1, i32 0")
    else:
        bits = t.mask_of(t.vector(value, 1))
    i = Integers(t, s, 32)
    result = yes = i("and", bits if s is ONE else t.splat(bits, "i32"), here)
    if mode == "any":
        result = i("icmp ne", yes, 0)
    elif mode != "ballot":
        result = i("icmp eq", yes, here)
        if mode == "uni":
            result = i.of(1)("or", result, i("icmp eq", yes, 0))
    t.write(target, Value(UNIFORM, result) if s is ONE else Value(VARYING, None, result))


@translates("activemask")
def _activemask(t, instruction):
    t.write(instruction.operands[0], Value(UNIFORM, t.new(f"or i32 {t.mask}, 0")))


@translates("elect")
def _elect(t, instruction):
    number, flag = instruction.operands[0]
    s, here = _members(t, instruction.operands[1])
    i = Integers(t, ALL, 32)
    first = i.call("cttz", _every(t, s, here), "false")
    t.write(number, Value(VARYING, None, first))
    t.write(flag, Value(VARYING, None, i("icmp eq", LANES, first)))


def _every(t, s, value):
    return t.splat(value, "i32") if s.lanes == 1 else value


_REDUCTIONS = {"add": ("add", "0"), "and": ("and", "-1"), "or": ("or", "0"), "xor": ("xor", "0")}
_REDUCTIONS |= {"max.s": ("smax", str(-(1 << 31))), "min.s": ("smin", str((1 << 31) - 1))}
_REDUCTIONS |= {"max.u": ("umax", "0"), "min.u": ("umin", "-1")}


@translates("redux")
def _redux(t, instruction):
    opcode = instruction.opcode
    operation = opcode[2]
    key = operation if operation in _REDUCTIONS else f"{operation}.{opcode[-1][0]}"
    word, neutral = _REDUCTIONS[key]
    s, here = _members(t, instruction.operands[2])
    data, vector = t.vector(t.operand(instruction.operands[1], "b32"), 32), ALL.int(32)
    name = f"llvm.vector.reduce.{word}.v{WARP}i32"
    t.module.declare(f"i32 @{name}({vector})")
    if s is ALL:
        data = t.new(f"freeze {vector} {data}")
        groups = _reduce_groups(t, name, word, neutral)
        result = t.new(f"call {vector} @{groups}({vector} {data}, {vector} {here})")
        t.write(instruction.operands[0], Value(VARYING, None, result))
        return
    chosen = Integers(t, ALL, 32).select(t.mask_vector(here), data, int(neutral))
    t.write(instruction.operands[0], Value(UNIFORM, t.new(f"call i32 @{name}({vector} {chosen})")))


def _reduce_groups(t, reduce, word, neutral):
    """Return the name of a function that reduces, for each lane, the numbers in its group of lanes."""
    name, vector = f"redux.{word}", ALL.int(32)
    t.module.define(
        name,
        f"define internal {vector} @{name}({vector} %data, {vector} %groups) #1 {{\nentry:\n"
        f"  br label %next\nnext:\n"
        f"  %lane = phi i32 [ 0, %entry ], [ %following, %next ]\n"
        f"  %result = phi {vector} [ zeroinitializer, %entry ], [ %more, %next ]\n"
        f"  %group = extractelement {vector} %groups, i32 %lane\n"
        f"  %flags = bitcast i32 %group to <{WARP} x i1>\n"
        f"  %chosen = select <{WARP} x i1> %flags, {vector} %data, {vector} splat (i32 {neutral})\n"
        f"  %one = call i32 @{reduce}({vector} %chosen)\n"
        f"  %more = insertelement {vector} %result, i32 %one, i32 %lane\n"
        f"  %following = add i32 %lane, 1\n  %done = icmp eq i32 %following, {WARP}\n"
        f"  br i1 %done, label %end, label %next\nend:\n  ret {vector} %more\n}}\n",
    )
    return name


def _matching(t, bits):
    """Return the name of a function that finds, for each lane, the lanes with the same number.

    It has a fast path if all lanes have the same number; for 64 bits, also if the upper halves are the same.
    """
    name, vector, found = f"match.b{bits}", ALL.int(bits), ALL.int(32)
    otherwise = "each"
    if bits == 64:
        otherwise = "halves"
        halves = (
            f"halves:\n  %shifted = lshr {vector} %data, splat (i64 32)\n"
            f"  %high = trunc {vector} %shifted to {found}\n  %low = trunc {vector} %data to {found}\n"
            f"{_same_as_first(found, 'high')}  %whole.low = icmp eq i32 %high.same, %mask\n"
            f"  br i1 %whole.low, label %narrow, label %each\nnarrow:\n"
            f"  %by.low = call {found} @{_matching(t, 32)}({found} %low, i32 %mask)\n  ret {found} %by.low\n"
        )
    t.module.declare("i32 @llvm.cttz.i32(i32, i1)")
    t.module.define(
        name,
        f"define internal {found} @{name}({vector} %data, i32 %mask) #1 {{\nentry:\n"
        f"  %given = alloca {vector}, align 64\n  %results = alloca {found}, align 64\n"
        f"  %first = call i32 @llvm.cttz.i32(i32 %mask, i1 true)\n"
        f"{_same_as_first(vector, 'data')}  %all = icmp eq i32 %data.same, %mask\n"
        f"  br i1 %all, label %alike, label %{otherwise}\nalike:\n"
        f"  %mask.one = insertelement {found} poison, i32 %mask, i64 0\n"
        f"  %everywhere = shufflevector {found} %mask.one, {found} poison, <{WARP} x i32> zeroinitializer\n"
        f"  ret {found} %everywhere\n{halves if bits == 64 else ''}"
        f"each:\n  store {vector} %data, ptr %given\n  br label %next\nnext:\n"
        f"  %lane = phi i32 [ 0, %each ], [ %more, %next ]\n"
        f"  %at = getelementptr i{bits}, ptr %given, i32 %lane\n  %x = load i{bits}, ptr %at\n"
        f"  %x.one = insertelement {vector} poison, i{bits} %x, i64 0\n"
        f"  %x.every = shufflevector {vector} %x.one, {vector} poison, <{WARP} x i32> zeroinitializer\n"
        f"  %equal = icmp eq {vector} %data, %x.every\n  %bits = bitcast <{WARP} x i1> %equal to i32\n"
        f"  %same = and i32 %bits, %mask\n  %to = getelementptr i32, ptr %results, i32 %lane\n"
        f"  store i32 %same, ptr %to\n  %more = add i32 %lane, 1\n"
        f"  %done = icmp eq i32 %more, {WARP}\n  br i1 %done, label %end, label %next\nend:\n"
        f"  %found = load {found}, ptr %results\n  ret {found} %found\n}}\n",
    )
    return name


def _same_as_first(vector, name):
    """Return IR for a mask of the lanes that have the same number as lane `%first`."""
    element = vector.split()[-1][:-1]
    return (
        f"  %{name}.x = extractelement {vector} %{name}, i32 %first\n"
        f"  %{name}.one = insertelement {vector} poison, {element} %{name}.x, i64 0\n"
        f"  %{name}.every = shufflevector {vector} %{name}.one, {vector} poison,"
        f" <{WARP} x i32> zeroinitializer\n"
        f"  %{name}.equal = icmp eq {vector} %{name}, %{name}.every\n"
        f"  %{name}.bits = bitcast <{WARP} x i1> %{name}.equal to i32\n"
        f"  %{name}.same = and i32 %{name}.bits, %mask\n"
    )


@translates("match")
def _match(t, instruction):
    opcode = instruction.opcode
    bits = BITS[opcode[-1]]
    target, data, members = instruction.operands
    names = listed(target)
    s, here = _members(t, members)
    frozen = t.new(f"freeze {ALL.int(bits)} {t.vector(t.operand(data, opcode[-1]), bits)}")
    found = t.new(f"call {ALL.int(32)} @{_matching(t, bits)}({ALL.int(bits)} {frozen}, i32 {t.mask})")
    everybody = _every(t, s, here)
    i = Integers(t, ALL, 32)
    found = i("and", found, everybody)
    if "any" in opcode:
        t.write(names[0], Value(VARYING, None, found))
        return
    same = i("icmp eq", found, everybody)
    found = i.select(same, everybody, "zeroinitializer")
    t.write(names[0], Value(VARYING, None, found))
    if len(names) > 1:
        t.write(names[1], Value(VARYING, None, same))


# --- Barriers -----------------------------------------------------------------------------------------------


@translates("bar", "barrier")
def _bar(t, instruction):
    opcode = instruction.opcode
    if "warp" in opcode:
        return  # the lanes of a warp run in step
    if "cluster" in opcode:
        if "wait" in opcode:  # a block is a cluster by itself, and waits for all its threads here
            t.module.uses_barriers = True
            t.line(f"call void @barrier(ptr %ctx, i32 %warp, i32 {BARRIERS - 1}, i32 0)")
        return
    reduction = "red" in opcode
    operands = instruction.operands[1:] if reduction else instruction.operands
    predicate = operands[-1] if reduction else None
    operands = operands[:-1] if reduction else operands
    number = _barrier(t, operands[0]) if operands else "0"
    expected = _uniform(t, operands[1]) if len(operands) > 1 else "0"
    t.module.uses_barriers = True
    if "arrive" in opcode:
        t.line(f"call void @arrive(ptr %ctx, i32 {number})")
        return
    if not reduction:
        t.line(f"call void @barrier(ptr %ctx, i32 %warp, i32 {number}, i32 {expected})")
        return
    kind = next(part for part in opcode if part in ("popc", "and", "or"))
    value = t.operand(predicate, "pred")
    yes = t.mask_of(t.vector(value, 1))
    if kind == "and":  # none is false
        yes = t.new(f"xor i32 {yes}, -1")
    here = t.new(f"and i32 {yes}, {t.mask}")
    count = call_int(t, ONE, "ctpop", 32, here)
    total = t.new(f"call i32 @tally(ptr %ctx, i32 %warp, i32 {number}, i32 {expected}, i32 {count})")
    if kind != "popc":
        total = t.new(f"icmp {'eq' if kind == 'and' else 'ne'} i32 {total}, 0")
    t.write(instruction.operands[0], Value(UNIFORM, total))


def _barrier(t, operand):
    """Return the number of a barrier; write a check that ends the kernel if there is no such barrier."""
    number = _uniform(t, operand)
    if number[0] != "%":
        if int(number) >= BARRIERS - 1:
            t.refuse(f"a block has {BARRIERS - 1} barriers, from 0 on")
        return number
    wrong, right = t.fresh("wrong"), t.fresh("right")
    none = t.new(f"icmp uge i32 {number}, {BARRIERS - 1}")
    t.line(f"br i1 {none}, label %{wrong}, label %{right}, !prof !1")
    t.label(wrong)
    t.module.declare("void @llvm.trap()")
    t.line("call void @llvm.trap()")
    t.line("unreachable")
    t.label(right)
    return number


def _uniform(t, operand):
    """Return the number in the first lane that is on."""
    value = t.operand(operand, "u32")
    if lanes.uniform(value.kind):
        return value.scalar
    first = call_int(t, ONE, "cttz", 32, t.mask, "true")
    return t.new(f"extractelement {ALL.int(32)} {t.vector(value, 32)}, i32 {first}")


@translates("membar", "fence")
def _fence(t, instruction):
    t.line("fence seq_cst")


@translates("nanosleep")
def _sleep(t, instruction):
    t.module.uses_barriers = True
    t.line("call void @yield(ptr %ctx, i32 %warp)")


@translates("griddepcontrol", "setmaxnreg", "pmevent", "brkpt")
def _nothing(t, instruction):
    """Do nothing: hints to hardware have no effect."""


@translates("mapa", "getctarank")
def _mapa(t, instruction):
    """Map a shared address to a block of the cluster: each block is a cluster by itself."""
    target, source = instruction.operands[:2]
    bits = t.function.registers[target]
    own = instruction.opcode[0] == "mapa"
    operand = t.operand(source if own else "0", f"u{bits}"), bits
    t.set(lambda s, a: a if own else s.literal(0, "i32"), operand)


@translates("createpolicy")
def _createpolicy(t, instruction):
    """Return 0: cache policies have no effect."""
    t.set(lambda s: s.literal(0, "i64"))


@translates("trap")
def _trap(t, instruction):
    t.module.declare("void @llvm.trap()")
    t.line("call void @llvm.trap()")


# --- Calls --------------------------------------------------------------------------------------------------


@translates("call")
def _call(t, instruction):
    results, name, given = split_call(instruction)
    t.module.call(t, name, results, given)
