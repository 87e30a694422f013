"""IR functions that count sectors and wavefronts, and the layout of a thread's counters."""

from gpuless.emulator.translate.layout import ARENA_SPAN
from gpuless.emulator.translate.values import ALL
from gpuless.limits import WARP

WORD, BANKS = 4, 32  # of shared memory; a word is in bytes
#: The header of a thread's counters: the addresses of the maps of sectors that were read and written, the
#: numbers of the first and the last sector, and how many barriers were passed.
READ_MAP, WRITTEN_MAP, FIRST, LAST, PASSED, HEADER = range(6)
SPARE = 2 * WARP  # entries after the last sector, for wild addresses: they are counted before they fault

GATHER = f"llvm.masked.gather.v{WARP}i32.v{WARP}p0"
SCATTER = f"llvm.masked.scatter.v{WARP}i32.v{WARP}p0"
_ADD = """
  %at = getelementptr i64, ptr %counts, i64 %number
  %before = load i64, ptr %at
  %sum = add i64 %before, %n
  store i64 %sum, ptr %at
"""


def _header(name, field, type_="i64"):
    return (
        f"  %at.{name} = getelementptr i64, ptr %counts, i64 {field}\n"
        f"  %{name} = load {type_}, ptr %at.{name}, !invariant.load !0\n"
    )


def _marks(maps, sector, type_="i8", one="1"):
    """Return IR that marks one or more consecutive sectors in maps."""
    text = (
        f"  %{sector}.behind = sub i64 %{sector}, %first.sector\n"
        f"  %{sector}.place = call i64 @llvm.umin.i64(i64 %{sector}.behind, i64 %last.sector)\n"
    )
    for map_ in maps:
        text += (
            f"  %{sector}.at.{map_} = getelementptr i8, ptr %map.{map_}, i64 %{sector}.place\n"
            f"  store {type_} {one}, ptr %{sector}.at.{map_}, align 1\n"
        )
    return text


def _maps(maps):
    pieces = [_header("first.sector", FIRST), _header("last.sector", LAST)]
    return "".join(pieces + [_header(f"map.{map_}", map_, "ptr") for map_ in maps])


def sectors_of_piece(name, maps, least):
    """Return the function for lanes that access all sectors between the first and the last."""
    return (
        f"define internal void @{name}(ptr %counts, i64 %address, i64 %span, i64 %number) #0 {{\n"
        + _maps(maps)
        + f"  %low = and i64 %address, {ARENA_SPAN - 1}\n  %high = add i64 %low, %span\n"
        f"  %begin = lshr i64 %low, 5\n  %end = lshr i64 %high, 5\n"
        f"  %less = sub i64 %end, %begin\n  %n = add i64 %less, 1\n"
        + _marks(maps, "begin", f"<{least} x i8>", "splat (i8 1)")
        + (_marks(maps, "end") if least else "")
        + _ADD
        + "  ret void\n}\n"
    )


def sectors(name, maps):
    """Return the function for arbitrary lanes: it processes one distinct sector after the other."""
    vector = ALL.int(64)
    return (
        f"define internal void @{name}(ptr %counts, {vector} %addresses, i32 %mask, i64 %number) #1 {{\n"
        "entry:\n" + _maps(maps) + f"  %places = alloca {vector}, align 64\n"
        f"  %low = and {vector} %addresses, splat (i64 {ARENA_SPAN - 1})\n"
        f"  %sectors = lshr {vector} %low, splat (i64 5)\n"
        f"  store {vector} %sectors, ptr %places\n"
        "  %none = icmp eq i32 %mask, 0\n  br i1 %none, label %out, label %next\n"
        "next:\n"
        "  %rest = phi i32 [ %mask, %entry ], [ %less, %next ]\n"
        "  %done = phi i64 [ 0, %entry ], [ %n, %next ]\n"
        "  %lane = call i32 @llvm.cttz.i32(i32 %rest, i1 true)\n"
        "  %place = getelementptr i64, ptr %places, i32 %lane\n"
        "  %sector = load i64, ptr %place\n"
        f"  %one = insertelement {vector} poison, i64 %sector, i64 0\n"
        f"  %every = shufflevector {vector} %one, {vector} poison, <{WARP} x i32> zeroinitializer\n"
        f"  %same = icmp eq {vector} %sectors, %every\n"
        f"  %bits = bitcast <{WARP} x i1> %same to i32\n"
        "  %others = xor i32 %bits, -1\n  %less = and i32 %rest, %others\n"
        "  %n = add i64 %done, 1\n"
        + _marks(maps, "sector")
        + "  %last = icmp eq i32 %less, 0\n  br i1 %last, label %end, label %next\nend:"
        + _ADD
        + "  br label %out\nout:\n  ret void\n}\n"
    )


def wavefronts(name, unit, apart):
    """Return the function that counts the wavefronts of shared memory for arbitrary lanes.

    In each wavefront every bank delivers one word to all lanes that want it. The lanes write their words to a
    table indexed by bank, and those that find their own word in it are done.
    """
    parts, int_ = unit // WORD, ALL.int(32)
    size, flags = WARP // parts, f"<{WARP} x i1>"
    own = ", ".join(f"i32 {lane}" for lane in range(WARP))
    begin = ", ".join(f"i32 {lane // size * size}" for lane in range(WARP))
    groups = [((1 << size) - 1) << first for first in range(0, WARP, size)]

    def present(rest):
        text = f"  %{rest}.0 = add i64 0, 0\n"
        for i, group in enumerate(groups):
            text += (
                f"  %{rest}.in.{i} = and i32 %{rest}, {group if group < 1 << 31 else group - (1 << 32)}\n"
                f"  %{rest}.some.{i} = icmp ne i32 %{rest}.in.{i}, 0\n"
                f"  %{rest}.one.{i} = zext i1 %{rest}.some.{i} to i64\n"
                f"  %{rest}.{i + 1} = add i64 %{rest}.{i}, %{rest}.one.{i}\n"
            )
        return text

    where = f"<{WARP} x ptr> align 4 %pointers, {flags} %on"
    return (
        f"define internal void @{name}(ptr %counts, {ALL.int(64)} %addresses, i32 %mask, i64 %number) #1 {{\n"
        f"entry:\n  %table = alloca {int_}, align 64\n"
        f"  %short = trunc {ALL.int(64)} %addresses to {int_}\n"
        f"  %units = lshr {int_} %short, splat (i32 {unit.bit_length() - 1})\n"
        f"  %banks = and {int_} %units, splat (i32 {size - 1})\n"
        f"  %slots = add {int_} %banks, <{begin}>\n"
        f"  %pointers = getelementptr i32, ptr %table, {int_} %slots\n"
        f"  %words = add {int_} {f'<{own}>' if apart else '%units'}, zeroinitializer\n"
        + present("mask")
        + "  %none = icmp eq i32 %mask, 0\n  br i1 %none, label %out, label %next\n"
        "next:\n"
        "  %rest = phi i32 [ %mask, %entry ], [ %less, %next ]\n"
        "  %done = phi i64 [ 0, %entry ], [ %n, %next ]\n"
        f"  %on = bitcast i32 %rest to {flags}\n"
        f"  call void @{SCATTER}({int_} %words, {where})\n"
        f"  %there = call {int_} @{GATHER}({where}, {int_} zeroinitializer)\n"
        f"  %same = icmp eq {int_} %there, %words\n"
        f"  %bits = bitcast {flags} %same to i32\n"
        "  %others = xor i32 %bits, -1\n  %less = and i32 %rest, %others\n"
        + present("rest")
        + f"  %n = add i64 %done, %rest.{parts}\n"
        "  %last = icmp eq i32 %less, 0\n  br i1 %last, label %end, label %next\nend:"
        + _ADD
        + "  %at.least = getelementptr i64, ptr %at, i64 1\n"
        "  %least = load i64, ptr %at.least\n"
        f"  %least.sum = add i64 %least, %mask.{parts}\n"
        "  store i64 %least.sum, ptr %at.least\n"
        "  br label %out\nout:\n  ret void\n}\n"
    )


PARTING = f"""define internal i64 @count.parting({ALL.int(32)} %ways, i32 %mask) #1 {{
  %lane = call i32 @llvm.cttz.i32(i32 %mask, i1 true)
  %first = extractelement {ALL.int(32)} %ways, i32 %lane
  %one = insertelement {ALL.int(32)} poison, i32 %first, i64 0
  %every = shufflevector {ALL.int(32)} %one, {ALL.int(32)} poison, <{WARP} x i32> zeroinitializer
  %other = icmp ne {ALL.int(32)} %ways, %every
  %bits = bitcast <{WARP} x i1> %other to i32
  %here = and i32 %bits, %mask
  %some = icmp ne i32 %here, 0
  %n = zext i1 %some to i64
  ret i64 %n
}}
"""
