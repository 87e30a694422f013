"""Asynchronous copies, and barriers in memory (`mbarrier`) that wait for them, in IR.

Here a copy is made at once, so no wait is necessary, and a missing wait is not detected. An `mbarrier` is 64
bits of shared memory in a format that PTX leaves open; here it has the pending arrivals (20 bits), the
arrivals of a phase (20), the expected bytes (23, signed), and the parity of the phase.
"""

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import UNIFORM, VARYING, WARP
from gpuless.emulator.ptx import Address
from gpuless.emulator.translate.access import load, store
from gpuless.emulator.translate.addresses import place, pointers_of, space_of
from gpuless.emulator.translate.layout import SHARED_SPAN
from gpuless.emulator.translate.masked import gather
from gpuless.emulator.translate.typed import Integers, call_int
from gpuless.emulator.translate.values import ALL, ONE, Value, translates

_INT, _LONG = ALL.int(32), ALL.int(64)


# --- Copies -------------------------------------------------------------------------------------------------


@translates("cp")
def _cp(t, instruction):
    opcode = instruction.opcode
    if opcode[1] != "async" or "tensor" in opcode:
        t.refuse()
    elif opcode[2] in ("ca", "cg"):
        _copy(t, instruction)
    elif opcode[2] == "mbarrier":
        # Without `noinc` the arrival is added to those expected: nothing changes.
        if "noinc" in opcode:
            _update(t, instruction, instruction.operands[0], _numbers(1), _numbers(0), "false")
    elif opcode[2] == "bulk":
        _copy_bulk(t, instruction)
    elif opcode[2] not in ("commit_group", "wait_group", "wait_all"):
        t.refuse()


def _copy(t, instruction):
    """Copy 4, 8 or 16 bytes for each lane, the last of them as zeros if an operand says so."""
    target, source, size, *rest = instruction.operands
    size = int(size, 0)
    hint = any("cache_hint" in part for part in instruction.opcode)
    rest = rest[:-1] if hint else rest
    target = place(t, target, "shared", size)
    source = place(t, source, "global", size)
    if not rest or rest[0] == str(size):
        store(t, target, 32, load(t, source, 32, size // 4))
        return
    if t.function.registers.get(rest[0], 32) == 1:  # a predicate: whether to copy zeros
        skipped = t.vector(t.operand(rest[0], "pred"), 1)
        wanted = t.new(f"select {ALL.int(1)} {skipped}, {_INT} zeroinitializer, {_INT} {_numbers(size)}")
    else:
        wanted = t.vector(t.operand(rest[0], "u32"), 32)
    words = [_word(t, pointers_of(t, source, 4 * i), wanted, i) for i in range(size // 4)]
    store(t, target, 32, words)


def _word(t, pointers, wanted, i):
    """Return one word of the source, with zeros beyond the wanted bytes."""
    int_, long = Integers(t, ALL, 32), Integers(t, ALL, 64)
    rest = int_.call("umin", int_.call("usub.sat", wanted, 4 * i), 4)
    there = Integers(t, ALL, 1)("and", int_("icmp ne", rest, "zeroinitializer"), t.mask_vector())
    word = gather(t, pointers, 32, there, "zeroinitializer")
    bits = long.resized(int_("shl", rest, 3), 32)
    kept = long("sub", long("shl", 1, bits), 1)
    return Value(VARYING, None, int_("and", word, int_.resized(kept, 64)))


def _copy_bulk(t, instruction):
    """Copy as many bytes as each lane's operand says, and count them at the mbarrier, if there is one."""
    opcode, operands = instruction.opcode, instruction.operands
    if len(operands) < 3 or "prefetch" in opcode:
        return  # a wait for copies, or a hint
    spaces = [part for part in opcode if part.startswith("shared") or part == "global"]
    target, source = (
        pointers_of(t, place(t, operand, "shared" if space.startswith("shared") else "global"))
        for operand, space in zip(operands[:2], spaces, strict=True)
    )
    sizes = t.vector(t.operand(operands[2], "u32"), 32)
    t.module.declare("void @llvm.memcpy.p0.p0.i32(ptr, ptr, i32, i1)")

    def copy(lane):
        to, origin = (
            t.new(f"extractelement <{WARP} x ptr> {pointers}, i32 {lane}") for pointers in (target, source)
        )
        size = t.new(f"extractelement {_INT} {sizes}, i32 {lane}")
        for pointer, space in zip((to, origin), spaces, strict=True):
            if space.startswith("shared"):
                size = _within_shared(t, pointer, size)
        t.line(f"call void @llvm.memcpy.p0.p0.i32(ptr {to}, ptr {origin}, i32 {size}, i1 false)")

    _for_each_lane(t, copy)
    if len(operands) > 3 and isinstance(operands[3], Address):
        _update(t, instruction, operands[3], _numbers(0), _negative(t, sizes), "false")


def _within_shared(t, pointer, size):
    """Return a size that doesn't reach beyond the addresses of the block's shared memory."""
    root, at = t.new("ptrtoint ptr %shared to i64"), t.new(f"ptrtoint ptr {pointer} to i64")
    room = t.new(f"sub i64 {SHARED_SPAN}, {t.new(f'sub i64 {at}, {root}')}")
    return call_int(t, ONE, "umin", 32, size, t.new(f"trunc i64 {room} to i32"))


def _for_each_lane(t, write):
    """Write a loop over the lanes that are on."""
    t.slots["%lanes.left"] = "i32"
    again, after = t.fresh("lane"), t.fresh("lanes")
    t.line(f"store i32 {t.mask}, ptr %lanes.left")
    t.line(f"br label %{again}")
    t.label(again)
    left = t.new("load i32, ptr %lanes.left")
    write(call_int(t, ONE, "cttz", 32, left, "true"))
    less = t.new(f"and i32 {left}, {t.new(f'sub i32 {left}, 1')}")
    t.line(f"store i32 {less}, ptr %lanes.left")
    t.line(f"br i1 {t.new(f'icmp eq i32 {less}, 0')}, label %{after}, label %{again}")
    t.label(after)


def _numbers(number):
    return f"splat (i32 {number})"


def _negative(t, vector):
    return t.new(f"sub {_INT} zeroinitializer, {vector}")


# --- Barriers in memory -------------------------------------------------------------------------------------

_UPDATE = """
define internal i64 @mbarrier(ptr %ctx, ptr %at, i32 %count, i32 %bytes, i1 %drop) {
  %old = load i64, ptr %at, align 8
  %arrivals = and i32 %count, 1048575
  %n = zext i32 %arrivals to i64
  %left = sub i64 %old, %n
  %pending = and i64 %left, 1048575
  %high = lshr i64 %old, 20
  %all = and i64 %high, 1048575
  %gone = select i1 %drop, i64 %n, i64 0
  %fewer = sub i64 %all, %gone
  %expected = and i64 %fewer, 1048575
  %more = zext i32 %bytes to i64
  %higher = lshr i64 %old, 40
  %sum = add i64 %higher, %more
  %missing = and i64 %sum, 8388607
  %phase = and i64 %old, -9223372036854775808
  %rest = or i64 %pending, %missing
  %complete = icmp eq i64 %rest, 0
  %other = xor i64 %phase, -9223372036854775808
  %new.phase = select i1 %complete, i64 %other, i64 %phase
  %new.pending = select i1 %complete, i64 %expected, i64 %pending
  %middle = shl i64 %expected, 20
  %upper = shl i64 %missing, 40
  %a = or i64 %new.phase, %new.pending
  %b = or i64 %middle, %upper
  %new = or i64 %a, %b
  store i64 %new, ptr %at, align 8
  call void @made_progress(ptr %ctx)
  ret i64 %old
}
"""


@translates("mbarrier")
def _mbarrier(t, instruction):
    what = instruction.opcode[1]
    operands = list(instruction.operands)
    if what == "init":
        count = t.new(f"zext {_INT} {t.vector(t.operand(operands[1], 'u32'), 32)} to {_LONG}")
        begin = t.new(f"or {_LONG} {count}, {t.new(f'shl {_LONG} {count}, splat (i64 20)')}")
        store(t, _at(t, instruction, operands[0]), 64, [Value(VARYING, None, begin)])
    elif what == "pending_count":
        state = t.vector(t.operand(operands[1], "b64"), 64)
        count = t.new(f"and {_LONG} {state}, splat (i64 1048575)")
        t.write(operands[0], Value(VARYING, None, t.new(f"trunc {_LONG} {count} to {_INT}")))
    elif what in ("test_wait", "try_wait"):
        _wait(t, instruction)
    elif what in ("arrive", "arrive_drop", "expect_tx", "complete_tx"):
        _arrive(t, instruction)
    elif what != "inval":
        t.refuse()


def _at(t, instruction, address):
    return place(t, address, space_of(instruction), 8)


def _arrive(t, instruction):
    """Write an update of an mbarrier: arrivals, bytes that are expected or have arrived."""
    opcode, operands = instruction.opcode, list(instruction.operands)
    target = None if isinstance(operands[0], Address) else operands.pop(0)
    address, *given = operands
    given = t.vector(t.operand(given[0], "u32"), 32) if given else None
    count, bytes_ = given or _numbers(1), _numbers(0)
    if opcode[1] in ("expect_tx", "complete_tx"):
        count, bytes_ = _numbers(0), given if opcode[1] == "expect_tx" else _negative(t, given)
    elif "expect_tx" in opcode:
        count, bytes_ = _numbers(1), given
    drop = "true" if opcode[1] == "arrive_drop" else "false"
    state = _update(t, instruction, address, count, bytes_, drop)
    if target is not None:
        t.write(target, Value(VARYING, None, state))


def _update(t, instruction, address, count, bytes_, drop):
    """Update the mbarrier of each lane, one lane after the other; return the old states."""
    t.module.uses_barriers = True
    t.module.define("mbarrier", _UPDATE)
    pointers = pointers_of(t, _at(t, instruction, address))
    t.slots["%mbarrier.states"] = _LONG

    def change(lane):
        at = t.new(f"extractelement <{WARP} x ptr> {pointers}, i32 {lane}")
        numbers = [t.new(f"extractelement {_INT} {vector}, i32 {lane}") for vector in (count, bytes_)]
        given = f"ptr %ctx, ptr {at}, i32 {numbers[0]}, i32 {numbers[1]}, i1 {drop}"
        state = t.new(f"call i64 @mbarrier({given})")
        t.line(f"store i64 {state}, ptr {t.new(f'getelementptr i64, ptr %mbarrier.states, i32 {lane}')}")

    _for_each_lane(t, change)
    return t.new(f"load {_LONG}, ptr %mbarrier.states")


def _wait(t, instruction):
    """Test whether a phase is over; if not, let the other warps run once, or until it is over.

    Only `try_wait` without a time limit waits until then, if no other lanes of its own warp could end it.
    """
    target, address, by, *limit = instruction.operands
    patient = instruction.opcode[1] == "try_wait" and not limit
    where = _at(t, instruction, address)
    parity = "parity" in instruction.opcode
    width = 32 if parity else 64
    value = t.operand(by, f"b{width}")
    t.module.uses_barriers = True
    alike = where.pointers is None and where.distances == lanes.ZERO and lanes.uniform(value.kind)
    s = ONE if alike else ALL
    phase = value.scalar if alike else t.vector(value, width)
    if parity:
        phase = Integers(t, s, 1).resized(phase, 32)
    else:
        phase = Integers(t, s, 64)("icmp slt", phase, 0)

    def look():
        state = load(t, where, 64, 1, "volatile ")[0]
        now = Integers(t, s, 64)("icmp slt", state.scalar if alike else t.vector(state, 64), 0)
        done = Integers(t, s, 1)("xor", now, phase)
        if alike:
            return done, done
        waiting = t.new(f"and i32 {t.mask}, {t.new(f'xor i32 {t.mask_of(done)}, -1')}")
        return done, t.new(f"icmp eq i32 {waiting}, 0")

    ask, turn, once, end = (t.fresh(name) for name in ("ask", "turn", "once", "asked"))
    t.line(f"br label %{ask}")
    t.label(ask)
    _, everybody = look()
    t.line(f"br i1 {everybody}, label %{end}, label %{turn}")
    t.label(turn)
    if patient:
        wait = t.fresh("wait")
        t.line(f"br i1 {t.alone()}, label %{wait}, label %{once}")
        t.label(wait)
        t.line("call void @give_way(ptr %ctx, i32 %warp)")
        t.line(f"br label %{ask}")
        t.label(once)
    t.line("call void @yield(ptr %ctx, i32 %warp)")
    t.line(f"br label %{end}")
    t.label(end)
    done, _ = look()
    t.write(target, Value(UNIFORM, done) if alike else Value(VARYING, None, done))
