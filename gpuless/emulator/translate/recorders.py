"""IR functions that record memory requests, and the format of the recording."""

from gpuless.emulator.translate.counters import BANKS, GATHER, PASSED, SCATTER, WORD
from gpuless.emulator.translate.layout import ARENA_SPAN, OFFSET
from gpuless.emulator.translate.values import ALL
from gpuless.limits import WARP

#: The header of a thread's counters: the address of its buffer, the buffer's size in words, the words in use,
#: and the stride of blocks whose shared memory is examined. `PASSED` follows.
BUFFER, ROOM, USED, STRIDE = range(PASSED)
#: The maximum number of words of a request.
LONGEST = 2 + WARP
#: The first word of a request has the index of its site, the number of sectors, the number of lanes, and a
#: bit that is set if the sectors are consecutive, so that only the first follows. The second word is the
#: warp's number in the grid.
SECTORS_AT, LANES_AT, RUN = 16, 24, 1 << 31
#: The access widths for which the deliveries of shared memory are counted.
WIDTHS = (4, 8, 16)

NUMBER = f"""define internal i64 @block.number(ptr %ctx) #0 {{
  %at.x = getelementptr i8, ptr %ctx, i64 {OFFSET["ctaid.x"]}
  %at.y = getelementptr i8, ptr %ctx, i64 {OFFSET["ctaid.y"]}
  %at.z = getelementptr i8, ptr %ctx, i64 {OFFSET["ctaid.z"]}
  %at.nx = getelementptr i8, ptr %ctx, i64 {OFFSET["nctaid.x"]}
  %at.ny = getelementptr i8, ptr %ctx, i64 {OFFSET["nctaid.y"]}
  %x32 = load i32, ptr %at.x
  %y32 = load i32, ptr %at.y
  %z32 = load i32, ptr %at.z
  %nx32 = load i32, ptr %at.nx
  %ny32 = load i32, ptr %at.ny
  %x = zext i32 %x32 to i64
  %y = zext i32 %y32 to i64
  %z = zext i32 %z32 to i64
  %nx = zext i32 %nx32 to i64
  %ny = zext i32 %ny32 to i64
  %planes = mul i64 %z, %ny
  %rows = add i64 %planes, %y
  %before = mul i64 %rows, %nx
  %number = add i64 %before, %x
  ret i64 %number
}}
"""
_SPACE = f"""  %at.buffer = getelementptr i64, ptr %counts, i64 {BUFFER}
  %buffer = load ptr, ptr %at.buffer
  %at.used = getelementptr i64, ptr %counts, i64 {USED}
  %used = load i64, ptr %at.used
  %at.room = getelementptr i64, ptr %counts, i64 {ROOM}
  %room = load i64, ptr %at.room
  %needed = add i64 %used, {LONGEST}
  %full = icmp ugt i64 %needed, %room
  %record = getelementptr i32, ptr %buffer, i64 %used
  %second = getelementptr i32, ptr %record, i64 1
  %third = getelementptr i32, ptr %record, i64 2
"""
_HEAD = """  %block = call i64 @block.number(ptr %ctx)
  %block32 = trunc i64 %block to i32
  %first.warp = mul i32 %block32, {warps}
  %stream = add i32 %first.warp, %warp
  store i32 %stream, ptr %second
"""
_FULL = "no.room:\n  store i64 %room, ptr %at.used\n  br label %out\nout:\n  ret void\n}\n"
PIECE = (
    """define internal void @record.piece(ptr %ctx, ptr %counts, i32 %warp, i64 %address, i64 %span, """
    "i32 %site, i32 %lanes) #1 {\n"
    + _SPACE
    + "  br i1 %full, label %no.room, label %write\nwrite:\n"
    + _HEAD
    + f"""  %low = and i64 %address, {ARENA_SPAN - 1}
  %high = add i64 %low, %span
  %begin = lshr i64 %low, 5
  %end = lshr i64 %high, 5
  %less = sub i64 %end, %begin
  %n = add i64 %less, 1
  %n32 = trunc i64 %n to i32
  %sectors = shl i32 %n32, {SECTORS_AT}
  %lanes.there = shl i32 %lanes, {LANES_AT}
  %some = or i32 %sectors, %lanes.there
  %more = or i32 %some, %site
  %all = or i32 %more, {RUN - (1 << 32)}
  store i32 %all, ptr %record
  %begin32 = trunc i64 %begin to i32
  store i32 %begin32, ptr %third
  %after = add i64 %used, 3
  store i64 %after, ptr %at.used
  br label %out
"""
    + _FULL
)
LANES = (
    f"define internal void @record.lanes(ptr %ctx, ptr %counts, i32 %warp, {ALL.int(64)} %addresses, "
    "i32 %mask, i32 %site) #1 {\nentry:\n"
    f"  %places = alloca {ALL.int(32)}, align 64\n"
    + _SPACE
    + """  %none = icmp eq i32 %mask, 0
  br i1 %none, label %out, label %some
some:
  br i1 %full, label %no.room, label %write
write:
"""
    + _HEAD
    + f"""  %low = and {ALL.int(64)} %addresses, splat (i64 {ARENA_SPAN - 1})
  %wide = lshr {ALL.int(64)} %low, splat (i64 5)
  %sectors = trunc {ALL.int(64)} %wide to {ALL.int(32)}
  store {ALL.int(32)} %sectors, ptr %places
  br label %next
next:
  %rest = phi i32 [ %mask, %write ], [ %less, %next ]
  %done = phi i32 [ 0, %write ], [ %n, %next ]
  %lane = call i32 @llvm.cttz.i32(i32 %rest, i1 true)
  %place = getelementptr i32, ptr %places, i32 %lane
  %sector = load i32, ptr %place
  %target = getelementptr i32, ptr %third, i32 %done
  store i32 %sector, ptr %target
  %one = insertelement {ALL.int(32)} poison, i32 %sector, i64 0
  %every = shufflevector {ALL.int(32)} %one, {ALL.int(32)} poison, <{WARP} x i32> zeroinitializer
  %same = icmp eq {ALL.int(32)} %sectors, %every
  %bits = bitcast <{WARP} x i1> %same to i32
  %others = xor i32 %bits, -1
  %less = and i32 %rest, %others
  %n = add i32 %done, 1
  %last = icmp eq i32 %less, 0
  br i1 %last, label %end, label %next
end:
  %lanes = call i32 @llvm.ctpop.i32(i32 %mask)
  %lanes.there = shl i32 %lanes, {LANES_AT}
  %counted = shl i32 %n, {SECTORS_AT}
  %head = or i32 %lanes.there, %counted
  %whole = or i32 %head, %site
  store i32 %whole, ptr %record
  %n64 = zext i32 %n to i64
  %behind = add i64 %used, 2
  %after = add i64 %behind, %n64
  store i64 %after, ptr %at.used
  br label %out
"""
    + _FULL
)


def deliveries_counted(width, name="deliveries"):
    """Return the function that counts like `deliveries` in `recording`, for arbitrary lanes.

    In each round every bank delivers to all lanes that want the same piece: lanes write their pieces to a
    table indexed by bank, and those that find their own are done. For `turns` they write their lane number
    instead, so that one lane per bank is done.
    """
    vector, flags = ALL.int(32), f"<{WARP} x i1>"
    groups, where = BANKS * WORD // width, f"<{WARP} x ptr> align 4 %pointers, {flags} %on"
    lanes = "<" + ", ".join(f"i32 {lane}" for lane in range(WARP)) + ">"
    wanted = f"{vector} {lanes if name == 'turns' else '%pieces'}"
    return f"""define internal i64 @{name}.{width}({ALL.int(64)} %addresses, i32 %mask) #1 {{
entry:
  %table = alloca {vector}, align 64
  %short = trunc {ALL.int(64)} %addresses to {vector}
  %pieces = lshr {vector} %short, splat (i32 {width.bit_length() - 1})
  %banks = and {vector} %pieces, splat (i32 {groups - 1})
  %pointers = getelementptr i32, ptr %table, {vector} %banks
  br label %next
next:
  %rest = phi i32 [ %mask, %entry ], [ %less, %next ]
  %done = phi i64 [ 0, %entry ], [ %n, %next ]
  %on = bitcast i32 %rest to {flags}
  call void @{SCATTER}({wanted}, {where})
  %there = call {vector} @{GATHER}({where}, {vector} zeroinitializer)
  %same = icmp eq {wanted}, %there
  %bits = bitcast {flags} %same to i32
  %others = xor i32 %bits, -1
  %less = and i32 %rest, %others
  %n = add i64 %done, 1
  %last = icmp eq i32 %less, 0
  br i1 %last, label %end, label %next
end:
  ret i64 %n
}}
"""


def _add(number, amount):
    return f"""  %at.{number} = getelementptr i64, ptr %first, i64 {number}
  %before.{number} = load i64, ptr %at.{number}
  %sum.{number} = add i64 %before.{number}, {amount}
  store i64 %sum.{number}, ptr %at.{number}
"""


def _counted(name, functions):
    """Return the function that counts the requests of a site and sums the results of some functions."""
    return (
        f"define internal void @{name}(ptr %ctx, ptr %counts, {ALL.int(64)} %addresses, i32 %mask, "
        "i64 %number) #1 {\n"
        f"""  %block = call i64 @block.number(ptr %ctx)
  %at.stride = getelementptr i64, ptr %counts, i64 {STRIDE}
  %stride = load i64, ptr %at.stride
  %left = urem i64 %block, %stride
  %passed.over = icmp ne i64 %left, 0
  %none = icmp eq i32 %mask, 0
  %nothing = or i1 %passed.over, %none
  br i1 %nothing, label %out, label %look
look:
  %first = getelementptr i64, ptr %counts, i64 %number
"""
        + _add(0, "1")
        + "".join(
            f"  %n.{i} = call i64 @{function}({ALL.int(64)} %addresses, i32 %mask)\n" + _add(i, f"%n.{i}")
            for i, function in enumerate(functions, 1)
        )
        + "  br label %out\nout:\n  ret void\n}\n"
    )


#: The functions for loads and stores in shared memory, and for atomic operations.
WIDTHS_COUNTED = _counted("count.widths", [f"deliveries.{width}" for width in WIDTHS])
TURNS_COUNTED = _counted("count.turns", ["deliveries.4", "turns.4", "turns.8"])
