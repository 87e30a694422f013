"""Operations of lanes and warps, all kinds of memory and calls, against what each thread should see."""

import random
import re

import numpy as np
import pytest
from ptx_programs import HEAD, results, run, threads

from gpuless.emulator import ptx
from gpuless.emulator.ptx import PtxError
from gpuless.emulator.run import launch
from gpuless.emulator.translate.module import ModuleTranslator
from gpuless.limits import RUNNING

MASK = 0xFFFFFFFF
STORE = "st.global.u32 [%out], %x9;"


def column(*values):
    return np.array(values, np.uint32)


def read(target, index="%t", array="%a0"):
    """Return PTX that reads a number of 32 bits from an array."""
    return f"mul.wide.u32 %y50, {index}, 4; add.s64 %y51, {array}, %y50; ld.global.u32 {target}, [%y51];"


# --- Shuffles ----------------------------------------------------------------------------------------------


def shuffled(mode, lane, by, c):
    """Return (source lane, predicate) from the tables of the PTX manual."""
    by, clamp, segment = by & 31, c & 31, c >> 8 & 31
    most = (lane & segment) | (clamp & ~segment & 31)
    least = lane & segment
    if mode == "up":
        j = lane - by
        inside = j >= most
    elif mode == "down":
        j = lane + by
        inside = j <= most
    elif mode == "bfly":
        j = lane ^ by
        inside = j <= most
    else:
        j = least | (by & ~segment & 31)
        inside = j <= most
    return (j if inside else lane), inside


@pytest.mark.parametrize("form", ["constant", "lanes"])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode, form):
    rng = random.Random(mode + form)
    for width in (32, 16, 8, 2):
        c = (32 - width) << 8 | (0 if mode == "up" else 31)
        by = [rng.randrange(40) for _ in range(32)] if form == "lanes" else [rng.randrange(33)] * 32
        operand = "%x2" if form == "lanes" else str(by[0])
        body = "mad.lo.s32 %x1, %t, 3, 100; "
        body += f"{read('%x2')} shfl.sync.{mode}.b32 %x3|%p1, %x1, {operand}, {c}, -1;"
        found, _ = results(
            body + f"selp.u32 %x4, 1000, 0, %p1; add.s32 %x9, %x3, %x4; {STORE}", [column(*by)]
        )
        wanted = [shuffled(mode, lane, by[lane], c) for lane in range(32)]
        assert found == [100 + 3 * source + 1000 * inside for source, inside in wanted]


def test_a_shuffle_sums_half_a_warp():
    body = "setp.ge.u32 %p1, %t, 16;\n@%p1 bra END;\nadd.s32 %x9, %t, 1;\n"
    for step in (8, 4, 2, 1):
        body += f"shfl.sync.bfly.b32 %x1, %x9, {step}, 4127, 65535; add.s32 %x9, %x9, %x1;\n"
    assert results(body + STORE + "\nEND:")[0] == [136] * 16 + [0] * 16


# --- Votes -------------------------------------------------------------------------------------------------

HELD = [0, 5, 5, 9, 0, 7, 5, 9, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 3, 1, 4, 1, 5, 9, 2, 6]
GROUPS = {  # which lanes vote together: written in PTX, and as the members of a lane's group
    "all": ("mov.u32 %x5, -1;", lambda lane: range(32)),
    "groups of eight": (
        "and.b32 %x6, %t, 24; shl.b32 %x5, 255, %x6;",
        lambda lane: range(lane & 24, (lane & 24) + 8),
    ),
    "groups of the warp's second row": (
        "shr.u32 %x6, %t, 4; mul.lo.s32 %x6, %x6, 16; shl.b32 %x5, 65535, %x6;",
        lambda lane: range(lane & 16, (lane & 16) + 16),
    ),
}


def bits(lanes):
    return sum(1 << lane for lane in lanes)


@pytest.mark.parametrize("block", [32, 64])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("mode", ["ballot.b32", "all.pred", "any.pred", "uni.pred"])
def test_votes(mode, group, block):
    written, members = GROUPS[group]
    body = f"and.b32 %t, %t, 31; {written} {read('%x1')} and.b32 %x2, %x1, 1; setp.eq.u32 %p1, %x2, 1;"
    if mode == "ballot.b32":
        body += "vote.sync.ballot.b32 %x9, %p1, %x5;"
    else:
        body += f"vote.sync.{mode} %p2, %p1, %x5; selp.u32 %x9, 1, 0, %p2;"

    def wanted(lane):
        yes = [other for other in members(lane) if HELD[other] & 1]
        counts = {"all.pred": len(yes) == len(members(lane)), "any.pred": bool(yes)}
        counts |= {"ballot.b32": bits(yes), "uni.pred": len(yes) in (0, len(members(lane)))}
        return int(counts[mode])

    assert results(body + STORE, [column(*HELD)], block)[0] == [wanted(i % 32) for i in range(block)]


def test_votes_of_diverged_lanes():
    body = f"{read('%x1')} setp.gt.u32 %p1, %x1, 4;\n@%p1 bra MORE;\n"
    body += "activemask.b32 %x9; setp.eq.u32 %p2, %x1, 1; "
    body += "vote.sync.ballot.b32 %x3, %p2, %x9; xor.b32 %x9, %x9, %x3;\n"
    body += "bra END;\nMORE: activemask.b32 %x9;\nEND: " + STORE
    more, ones = bits(i for i in range(32) if HELD[i] > 4), bits(i for i in range(32) if HELD[i] == 1)
    wanted = [more if n > 4 else (MASK ^ more) ^ ones for n in HELD]
    assert results(body, [column(*HELD)])[0] == wanted


@pytest.mark.parametrize("group", GROUPS)
def test_match(group):
    written, members = GROUPS[group]
    body = f"{written} {read('%x1')} match.any.sync.b32 %x9, %x1, %x5;"
    wanted = [bits(o for o in members(i) if HELD[o] == HELD[i]) for i in range(32)]
    assert results(body + STORE, [column(*HELD)])[0] == wanted
    body = f"{written} {read('%x1')} cvt.u64.u32 %y1, %x1; match.all.sync.b64 %x8|%p1, %y1, %x5;"
    body += "selp.u32 %x7, 0, 7, %p1; xor.b32 %x9, %x8, %x7;"
    same = [len({HELD[o] for o in members(i)}) == 1 for i in range(32)]
    wanted = [bits(members(i)) if one else 7 for i, one in enumerate(same)]
    assert results(body + STORE, [column(*HELD)])[0] == wanted


@pytest.mark.parametrize("upper", [lambda i: 7, lambda i: i % 3, lambda i: i], ids=["same", "three", "own"])
@pytest.mark.parametrize("lower", [lambda i: 5, lambda i: i * 13 % 7, lambda i: 31 - i])
@pytest.mark.parametrize("group", GROUPS)
def test_match_looks_at_both_halves(group, lower, upper):
    written, members = GROUPS[group]
    given = np.array([upper(i) << 32 | lower(i) for i in range(32)], np.uint64)
    body = f"{written} mul.wide.u32 %y1, %t, 8; add.s64 %y2, %a0, %y1; ld.global.u64 %y3, [%y2];"
    body += f"setp.eq.u32 %p1, %t, 9;\n@%p1 bra OFF;\nmatch.any.sync.b64 %x9, %y3, %x5; {STORE}\nOFF:"
    there = {i: [o for o in members(i) if o != 9] for i in range(32) if i != 9}
    found = results(body, [given])[0]
    assert [found[i] for i in there] == [bits(o for o in there[i] if given[o] == given[i]) for i in there]


@pytest.mark.parametrize("group", GROUPS)
def test_reductions_in_a_warp(group):
    written, members = GROUPS[group]
    numbers = [n * 0x11111111 & MASK for n in HELD]
    signed = [n - (1 << 32) if n >> 31 else n for n in numbers]
    cases = {"add.u32": lambda k: sum(numbers[i] for i in k), "min.u32": lambda k: min(numbers[i] for i in k)}
    cases |= {"max.s32": lambda k: max(signed[i] for i in k), "min.s32": lambda k: min(signed[i] for i in k)}
    cases |= {"or.b32": lambda k: np.bitwise_or.reduce([numbers[i] for i in k])}
    cases |= {"and.b32": lambda k: np.bitwise_and.reduce([numbers[i] for i in k])}
    cases |= {"xor.b32": lambda k: np.bitwise_xor.reduce([numbers[i] for i in k])}
    for name, function in cases.items():
        body = f"{written} {read('%x1')} redux.sync.{name} %x9, %x1, %x5; {STORE}"
        wanted = [int(function(members(i))) & MASK for i in range(32)]
        assert results(body, [column(*numbers)])[0] == wanted, name


def test_one_lane_is_elected():
    body = "setp.lt.u32 %p1, %t, 5;\n@%p1 bra END;\nmov.u32 %x5, -32; "
    body += "elect.sync %x1|%p2, %x5; mov.u32 %x9, 1000;"
    body += "@%p2 mov.u32 %x9, 2000; add.s32 %x9, %x9, %x1; " + STORE + "\nEND:"
    assert results(body)[0] == [0] * 5 + [2005] + [1005] * 26


# --- Barriers ----------------------------------------------------------------------------------------------

SHARED = ".shared .align 8 .b8 s[8192];"
SLOT = "shl.b32 %x40, %t, 2; mov.u32 %x41, s; add.s32 %x40, %x41, %x40;"


@pytest.mark.parametrize("block", [32, 64, 96, 100, 1024])
def test_all_warps_meet_at_a_barrier(block):
    body = f"{SLOT} st.shared.u32 [%x40], %t; bar.sync 0; sub.s32 %x1, {block - 1}, %t; shl.b32 %x1, %x1, 2;"
    body += f"add.s32 %x1, %x41, %x1; ld.shared.u32 %x9, [%x1]; {STORE}"
    found, _ = results(body, block=block, grid=3, variables=SHARED)
    assert found == [block - 1 - i for i in range(block)] * 3


def test_barriers_with_numbers_and_counts():
    """Warps 0 and 1 exchange through one barrier, 2 and 3 through another, repeatedly."""
    body = f"{SLOT} shr.u32 %x1, %t, 6; add.s32 %x2, %x1, 1; mov.u32 %x9, %t; xor.b32 %x3, %t, 32;"
    body += "shl.b32 %x3, %x3, 2; add.s32 %x3, %x41, %x3; mov.u32 %x5, 5;\nAGAIN: st.shared.u32 [%x40], %x9;"
    body += "bar.sync %x2, 64; ld.shared.u32 %x4, [%x3]; bar.sync %x2, 64; add.s32 %x9, %x4, 1;"
    body += f"sub.s32 %x5, %x5, 1; setp.ne.u32 %p1, %x5, 0;\n@%p1 bra AGAIN;\n{STORE}"
    assert results(body, block=128, variables=SHARED)[0] == [(i ^ 32) + 5 for i in range(128)]


@pytest.mark.parametrize("kind", ["popc.u32", "and.pred", "or.pred"])
@pytest.mark.parametrize("limit", [0, 1, 50, 95, 96])
def test_reductions_at_barriers(kind, limit):
    body = f"setp.lt.u32 %p1, %t, {limit}; "
    if kind == "popc.u32":
        body += "bar.red.popc.u32 %x9, 0, %p1;"
    else:
        body += f"bar.red.{kind} %p2, 0, %p1; selp.u32 %x9, 1, 0, %p2;"
    wanted = {"popc.u32": limit, "and.pred": int(limit == 96), "or.pred": int(limit > 0)}[kind]
    assert results(body + STORE, block=96)[0] == [wanted] * 96


def test_a_producer_arrives_and_a_consumer_waits():
    """Warp 1 produces, warp 0 consumes: "full" and "empty" are barriers at which one of them only arrives."""
    body = f"{SLOT} mov.u32 %x9, 0; mov.u32 %x5, 0; setp.ge.u32 %p1, %t, 32;\n@%p1 bra MAKE;\n"
    body += "USE: bar.sync 1, 64; ld.shared.u32 %x1, [%x40+128]; add.s32 %x9, %x9, %x1; bar.arrive 2, 64;"
    body += f"add.s32 %x5, %x5, 1; setp.lt.u32 %p2, %x5, 4;\n@%p2 bra USE;\n{STORE}\nret;\n"
    body += "MAKE: mad.lo.s32 %x2, %x5, 100, %t; st.shared.u32 [%x40], %x2; bar.arrive 1, 64; bar.sync 2, 64;"
    body += "add.s32 %x5, %x5, 1; setp.lt.u32 %p2, %x5, 4;\n@%p2 bra MAKE;\n"
    assert results(body, block=64, variables=SHARED)[0][:32] == [600 + 4 * (i + 32) for i in range(32)]


@pytest.mark.parametrize("gone", [32, 64, 50])
def test_barriers_do_not_wait_for_returned_warps(gone):
    body = f"mov.u32 %x9, 1; setp.ge.u32 %p1, %t, {gone};\n@%p1 ret;"
    body += f"\n{SLOT} st.shared.u32 [%x40], %t; bar.sync 0;"
    body += f"xor.b32 %x1, %x40, 4; ld.shared.u32 %x9, [%x1]; bar.sync 0; {STORE}"
    found = results(body, block=128, variables=SHARED)[0]
    assert found == [i ^ 1 if i < gone else 0 for i in range(128)]


# --- Memory ------------------------------------------------------------------------------------------------


def test_dynamic_shared_memory_follows_the_static():
    variables = ".extern .shared .align 16 .b8 more[];\n.shared .align 4 .b8 s[100];"
    body = f"and.b32 %x1, %t, 15; setp.lt.u32 %p1, %t, 16; {SLOT} mov.u32 %x42, more; shl.b32 %x2, %t, 2;"
    body += "add.s32 %x3, %x42, %x2; st.shared.u32 [%x3], %t; @%p1 st.shared.u32 [%x40], -1; bar.sync 0;"
    body += "mov.u32 %x5, %dynamic_smem_size; add.s32 %x4, %x42, %x5; sub.s32 %x4, %x4, %x2;"
    body += f"ld.shared.u32 %x9, [%x4-4]; {STORE}"
    assert results(body, block=64, shared=256, variables=variables)[0] == [63 - i for i in range(64)]


def test_a_kernel_has_the_shared_memory_of_its_functions_only():
    before = "".join(
        f".visible .entry k{i}() {{ .shared .align 4 .b8 own{i}[49152]; ret; }}\n" for i in range(6)
    )
    before += f""".func (.param .b32 out) g(.param .b32 n) {{
    {SHARED} .reg .b32 %t, %x<50>; ld.param.u32 %t, [n]; {SLOT} st.shared.u32 [%x40], %t; bar.sync 0;
    xor.b32 %x1, %x40, 4; ld.shared.u32 %x9, [%x1]; st.param.b32 [out], %x9; ret; }}"""
    body = f"{called()} mov.u32 %x8, %total_smem_size; mad.lo.u32 %x9, %x8, 100, %x9; {STORE}"
    body += " st.shared.u32 [mine], %x8;"
    variables = ".shared .align 4 .b8 mine[64];"
    found, _ = results(body, before=before, variables=variables)
    assert found == [825600 + (i ^ 1) for i in range(32)]
    module = ptx.parse(HEAD + threads(body, before=before, variables=variables))
    assert [launch.Kernel(module, name).static_shared for name in ("f", "k0")] == [8256, 49152]


def test_synchronising_accesses_keep_their_order():
    """Also those of vectors of lanes."""
    compiler = 'fence syncscope("singlethread") seq_cst'
    for access, wanted in {
        "st.volatile.global.u32 [%out], %t": [compiler, "store"],
        "st.relaxed.gpu.global.v2.u32 [%a0], {%t, %t}": [compiler, "store"],
        "st.release.gpu.global.u32 [%a0], %n": ["fence release", "store"],
        "ld.volatile.global.u32 %x9, [%out]": ["load", compiler],
        "ld.relaxed.gpu.global.v2.u32 {%x1, %x2}, [%a0]": ["load", compiler],
        "ld.acquire.gpu.global.u32 %x9, [%out]": ["load", "fence acquire"],
    }.items():
        module = ptx.parse(HEAD + threads(f"bar.sync 0; {access}; bar.sync 0;"))
        kernel = ModuleTranslator(module, "f", (64, 1, 1)).translate().rpartition("void @kernel(")[2]
        between = kernel.split("call void @barrier(")[1]
        assert list(dict.fromkeys(re.findall(r"fence .*|\b(?:load|store)\b", between))) == wanted, access


def test_an_address_is_in_one_space():
    """No address of these leads to parameters."""
    body = ".local .align 8 .b8 own[8]; mov.u64 %y1, own; cvta.local.u64 %y1, %y1; mov.u64 %y2, s;"
    body += "cvta.shared.u64 %y2, %y2; mul.wide.u32 %y4, %t, 4; add.u64 %y3, %y2, %y4; mov.u32 %x9, 0;"
    body += "mov.u64 %y5, table; cvta.const.u64 %y5, %y5; mov.u64 %y6, variable; cvta.global.u64 %y6, %y6;"
    body += "rem.u32 %x1, %t, 4; mul.wide.u32 %y4, %x1, 4; add.u64 %y4, %y5, %y4;\n"
    where = {"%y1": "local", "%y2": "shared", "%y3": "shared", "%a0": "global", "%out": "global"}
    where |= {"%y4": "const", "%y5": "const", "%y6": "global"}
    for i, (address, own) in enumerate(where.items()):
        for space in SPACES:
            body += f"isspacep.{space} %p1, {address};\n"
            body += f"@%p1 or.b32 %x9, %x9, {1 << i if space == own else 1 << 31};\n"
    variables = SHARED + ".global .u32 variable; .const .u32 table[4] = {1, 2, 3, 4}; .const .u64 more;"
    assert results(body + STORE, block=64, variables=variables)[0] == [2 ** len(where) - 1] * 64


SPACES = ("global", "shared", "local", "const", "param")


def test_local_memory_belongs_to_a_lane():
    body = ".local .align 8 .b8 own[72]; .reg .b64 %SP; mov.u64 %SP, own; "
    body += "cvta.local.u64 %y9, %SP; mov.u32 %x5, 0;\n"
    body += "FILL: mul.wide.u32 %y1, %x5, 8; add.s64 %y2, %SP, %y1; mad.lo.s32 %x1, %x5, 100, %i;"
    body += "st.local.u32 [%y2], %x1; add.s32 %x5, %x5, 1; setp.lt.u32 %p1, %x5, 9;\n@%p1 bra FILL;\n"
    body += "rem.u32 %x6, %i, 9; mul.wide.u32 %y3, %x6, 8; add.s64 %y4, %y9, %y3; ld.u32 %x9, [%y4];"
    assert results(body + STORE, block=96, grid=2)[0] == [i % 9 * 100 + i for i in range(192)]


VECTORS = {  # where lane i of 32 reads, in numbers
    "contiguous": lambda i, n: i * n,
    "strided": lambda i, n: 3 * i * n,
    "same": lambda i, n: 4 * n,
    "reversed": lambda i, n: (31 - i) * n,
    "rows": lambda i, n: i // 8 * 40 * n + i % 8 * n,
    "far": lambda i, n: 1000 * i * n,
    "permuted": lambda i, n: i * 13 % 32 * n,
}


@pytest.mark.exhaustive_unless(lambda masked: masked, "each form where some lanes are off")
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("form", VECTORS)
def test_vector_loads_and_stores(form, masked):
    rng = random.Random(form)
    for width, count in ((32, 1), (32, 2), (32, 4), (64, 1), (64, 2), (8, 4), (16, 2)):
        place = VECTORS[form]
        size = width // 8
        dtype = np.dtype(f"u{size}")
        source = np.array([rng.getrandbits(width) for _ in range(32000 * count)], dtype)
        target = np.zeros(32000 * count, dtype)
        index = [place(i, 1) for i in range(32)]
        # Facts about an address depend on its computation; permuted ones are read from memory.
        ways = {
            "contiguous": "mov.u32 %x2, %t;",
            "strided": "mul.lo.s32 %x2, %t, 3;",
            "same": "mov.u32 %x2, 4;",
        }
        ways |= {"reversed": "sub.s32 %x2, 31, %t;", "far": "mul.lo.s32 %x2, %t, 1000;"}
        ways |= {"rows": "shr.u32 %x3, %t, 3; and.b32 %x4, %t, 7; mad.lo.s32 %x2, %x3, 40, %x4;"}
        body = ways.get(form, read("%x2", array="%a2")) + f"mul.wide.u32 %y1, %x2, {size * count};"
        registers = [f"%v{i}" for i in range(count)]
        body += (
            f".reg .b{max(width, 16)} {', '.join(registers)}; add.s64 %y2, %a0, %y1; add.s64 %y3, %a1, %y1;"
        )
        body += "setp.ge.u32 %p1, %t, 21;\n@%p1 bra OFF;\n" if masked else ""
        names = f"{{{', '.join(registers)}}}" if count > 1 else registers[0]
        type_ = f"{f'v{count}.' if count > 1 else ''}{'u' if width == 8 else 'b'}{width}"
        body += f"ld.global.{type_} {names}, [%y2]; st.global.{type_} [%y3], {names};\nOFF:"
        _, (_, found, _) = results(body, [source, target, column(*index)])
        wanted = np.zeros_like(target)
        for i in range(21 if masked else 32):
            at = place(i, count)
            wanted[at : at + count] = source[at : at + count]
        assert found == wanted.tolist(), (form, width, count)


def test_variables_with_values_and_pointers_among_them():
    variables = """.global .align 4 .u32 numbers[4] = {10, 20, 30, 40};
    .const .align 4 .f32 half = 0f3F000000;
    .global .align 8 .u64 table[3] = {numbers, generic(numbers), 7};
    .global .align 1 .b8 text[6] = {104, 101, 108, 108, 111};
    .visible .global .align 4 .u32 zero;"""
    body = f"""mov.u64 %y1, table; and.b32 %x1, %t, 1; mul.wide.u32 %y2, %x1, 8; add.s64 %y2, %y1, %y2;
    ld.global.u64 %y3, [%y2]; and.b32 %x2, %t, 3; mul.wide.u32 %y4, %x2, 4; add.s64 %y5, %y3, %y4;
    ld.u32 %x3, [%y5]; ld.const.f32 %x4, [half]; cvt.rn.f32.u32 %x5, %x3; mul.f32 %x5, %x5, %x4;
    cvt.rzi.u32.f32 %x6, %x5; ld.global.u64 %y6, [table+16]; cvt.u32.u64 %x7, %y6;
    rem.u32 %x10, %t, 6; cvt.u64.u32 %y7, %x10; mov.u64 %y8, text; add.s64 %y9, %y8, %y7;
    ld.global.u8 %x8, [%y9];
    red.global.add.u32 [zero], 1; ld.global.u32 %x11, [zero];
    mad.lo.s32 %x9, %x7, 1000, %x6; mad.lo.s32 %x9, %x8, 100000, %x9; mad.lo.s32 %x9, %x11, 100000000, %x9;
    {STORE}"""
    letters = [*b"hello", 0]
    wanted = [5 * (i % 4 + 1) + 7000 + letters[i % 6] * 100000 + 32 * 100000000 & MASK for i in range(32)]
    assert results(body, variables=variables)[0] == wanted


# --- Atomics -----------------------------------------------------------------------------------------------


def as_signed(n, width=32):
    return n - (1 << width) if n >> (width - 1) & 1 else n


ATOMICS = {
    "add.u32": lambda old, x: old + x,
    "add.s32": lambda old, x: old + x,
    "add.u64": lambda old, x: old + x,
    "min.u32": min,
    "max.u32": max,
    "min.s32": lambda old, x: min(old, x, key=as_signed),
    "max.s32": lambda old, x: max(old, x, key=as_signed),
    "min.s64": lambda old, x: min(old, x, key=lambda n: as_signed(n, 64)),
    "max.u64": max,
    "and.b32": lambda old, x: old & x,
    "or.b32": lambda old, x: old | x,
    "xor.b64": lambda old, x: old ^ x,
    "exch.b32": lambda old, x: x,
    "exch.b64": lambda old, x: x,
    "inc.u32": lambda old, x: 0 if old >= x else old + 1,
    "dec.u32": lambda old, x: x if old == 0 or old > x else old - 1,
}


#: The place of each lane: PTX that sets %x1, and the same in Python.
MEETING = {
    "one": ("mov.u32 %x1, 0;", lambda i: 0),
    "three": ("rem.u32 %x1, %t, 3;", lambda i: i % 3),
    "one, then apart": ("max.u32 %x1, %t, 20; sub.u32 %x1, %x1, 20;", lambda i: max(i, 20) - 20),
    "pairs in turn": ("and.b32 %x1, %t, 11;", lambda i: i & 11),
}
PLACES = 12
IN_SPACES = ["global", "shared", ""]


@pytest.mark.exhaustive_unless(
    lambda name, space, meeting: (
        (list(ATOMICS).index(name) + list(MEETING).index(meeting) + IN_SPACES.index(space)) % 3 == 0
    ),
    "each operation in each space and for each meeting, and each of these with each of those",
)
@pytest.mark.parametrize("meeting", MEETING)
@pytest.mark.parametrize("space", IN_SPACES)
@pytest.mark.parametrize("name", ATOMICS)
def test_atomic_operations_one_lane_after_the_other(name, space, meeting):
    """Lanes meet at few places; each sees what the lanes before it left there."""
    written, place = MEETING[meeting]
    width = 64 if name.endswith("64") else 32
    rng, mask = random.Random(name), (1 << width) - 1
    given = [rng.choice([rng.getrandbits(width), rng.randrange(6)]) for _ in range(64)]
    dtype = np.uint64 if width == 64 else np.uint32
    size, cells = width // 8, np.array([5, 0, mask - 3] * (PLACES // 3), dtype)
    old, one = ("%y5", "%y6") if width == 64 else ("%x5", "%x6")
    body = f"{written} mul.wide.u32 %y1, %x1, {size}; "
    body += f"add.s64 %y2, %a0, %y1; mul.wide.u32 %y3, %i, {size};"
    body += f"add.s64 %y4, %a1, %y3; ld.global.b{width} {one}, [%y4];"
    at = "%y2"
    if space == "shared":
        at, body = "%y9", body + "mov.u64 %y8, s; add.s64 %y9, %y8, %y1;"
        body += f"ld.global.b{width} {old}, [%y2]; st.shared.b{width} [%y9], {old};"
    body += "setp.eq.u32 %p1, %t, 11;\n@%p1 bra OFF;\n"
    body += f"atom.{space + '.' if space else ''}{name} {old}, [{at}], {one}; "
    body += f"st.global.b{width} [%y4], {old};\nOFF:"
    if space == "shared":
        body += f"\nld.shared.b{width} {one}, [%y9]; st.global.b{width} [%y2], {one};"
    _, (left, seen) = results(body, [cells, np.array(given[:32], dtype)], variables=SHARED)
    state, wanted = cells.tolist(), given[:32]
    for lane in range(32):
        if lane != 11:
            wanted[lane] = state[place(lane)]
            state[place(lane)] = ATOMICS[name](state[place(lane)], given[lane]) & mask
    assert seen == wanted
    assert left == state


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("meeting", MEETING)
@pytest.mark.parametrize("width", [32, 64])
def test_sums_of_floats_one_lane_after_the_other(width, meeting, asked):
    """Exactly in the order of the lanes, to the last bit."""
    written, place = MEETING[meeting]
    dtype = np.dtype(f"f{width // 8}")
    rng = np.random.default_rng(width)
    cells, given = (rng.standard_normal(n) * 1e3 ** rng.integers(-3, 4, n) for n in (PLACES, 32))
    cells, given = cells.astype(dtype), given.astype(dtype)
    old, one = ("%y5", "%y6") if width == 64 else ("%x5", "%x6")
    body = f"{written} mul.wide.u32 %y1, %x1, {width // 8}; mul.wide.u32 %y3, %i, {width // 8};"
    body += f"add.s64 %y2, %a0, %y1; add.s64 %y4, %a1, %y3; ld.global.b{width} {one}, [%y4];"
    body += "setp.eq.u32 %p1, %t, 5;\n@%p1 bra OFF;\n"
    body += f"atom.global.add.f{width} {old}, [%y2], {one};"
    body += (f"st.global.b{width} [%y4], {old};" if asked else "") + "\nOFF:"
    _, (left, seen) = results(body, [cells, given])
    state, wanted = cells.copy(), given.copy()
    for lane in range(32):
        if lane != 5:
            wanted[lane] = state[place(lane)]
            state[place(lane)] += given[lane]
    assert left == state.tolist()
    assert seen == (wanted if asked else given).tolist()


@pytest.mark.parametrize("width", [32, 64])
def test_compare_and_swap(width):
    body = "cvt.u64.u32 %y5, %i; add.s64 %y6, %y5, 1; cvt.u32.u64 %x5, %y5; cvt.u32.u64 %x6, %y6;"
    kind = "y" if width == 64 else "x"
    body += f"atom.global.cas.b{width} %{kind}7, [%a0], %{kind}5, %{kind}6;"
    body += f"{'cvt.u32.u64 %x9, %y7' if width == 64 else 'mov.u32 %x9, %x7'}; {STORE}"
    cell = np.zeros(1, f"u{width // 8}")
    # In lane order each finds the value of the one before.
    found, ((left,),) = results(body, [cell])
    assert (found, left) == (list(range(32)), 32)


@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_sums_between_blocks(type_):
    dtype = np.float32 if type_ == "f32" else np.float64
    name = "%x1" if type_ == "f32" else "%y1"
    body = f"cvt.rn.{type_}.u32 {name}, %i; red.global.add.{type_} [%a0], {name}; "
    body += "atom.global.add.u32 %x9, [%a1], 1;"
    found, ((total,), (count,)) = results(
        body + STORE,
        [np.zeros(1, dtype), np.zeros(1, np.uint32)],
        block=96,
        grid=300 if type_ == "f64" else 40,
    )
    n = len(found)
    assert (total, count) == (n * (n - 1) // 2, n)
    assert sorted(found) == list(range(n))


# --- Calls -------------------------------------------------------------------------------------------------


def called(argument="%t", into="%x9"):
    """Return PTX that calls `g` with one number, for one."""
    return (
        f"{{ .param .b32 param0; st.param.b32 [param0], {argument}; .param .b32 retval0;"
        f"call.uni (retval0), g, (param0); ld.param.b32 {into}, [retval0]; }}"
    )


def test_each_lane_gets_its_own_return_value():
    function = """.func (.param .b32 out) g(.param .b32 n) {
    .reg .b32 %r<5>; .reg .pred %p<3>; ld.param.u32 %r1, [n]; setp.gt.u32 %p1, %r1, 10;
    @%p1 bra MORE;
    add.s32 %r2, %r1, 100; st.param.b32 [out], %r2; ret;
    MORE: mul.lo.s32 %r3, %r1, 3; st.param.b32 [out], %r3; ret; }"""
    body = f"mov.u32 %x9, 5; setp.eq.u32 %p1, %t, 4;\n@%p1 bra OFF;\n{called()}\nOFF: {STORE}"
    found, _ = results(body, before=function)
    assert found == [5 if i == 4 else 3 * i if i > 10 else i + 100 for i in range(32)]


@pytest.mark.parametrize("read", ["atom.global.cas.b32 %r1, [%rd1], 0, 0", "ld.volatile.u32 %r1, [%rd1]"])
@pytest.mark.parametrize("how", ["directly", "by another", "by its address"])
def test_a_loop_waits_by_calling_a_function(read, how, monkeypatch):
    """The first warp for the second, which runs after it."""
    monkeypatch.setattr(RUNNING, "kernel_seconds", 2)
    head = "(.param .b32 out) {}(.param .b64 at) {{ .reg .b32 %r1; .reg .b64 %rd1; ld.param.b64 %rd1, [at];"
    call = "{{ .param .b64 at0; .param .b32 got; st.param.b64 [at0], {1}; call (got), {0}, (at0){2};"
    call += "ld.param.b32 {3}, [got]; }}"
    end, inner = "st.param.b32 [out], %r1; ret; }", call.format("get", "%rd1", "", "%r1")
    functions = f".func {head.format('get')} {read}; {end} .func {head.format('again')} {inner} {end}"
    name = {"directly": "get", "by another": "again", "by its address": "%y9"}[how]
    body = f"""setp.ge.u32 %p1, %t, 32; mov.b64 %y9, get;
    @%p1 bra SET;
    proto: .callprototype (.param .b32 _) _ (.param .b64 _);
    L: {call.format(name, "%a0", ", proto" * (name == "%y9"), "%x9")} setp.eq.u32 %p2, %x9, 0;
    @%p2 bra L;
    bra END;
    SET: mov.u32 %x9, 7; st.volatile.global.u32 [%a0], %x9;
    END: {STORE}"""
    assert results(body, [column(0)], 64, before=functions)[0] == [7] * 64


def test_a_function_in_which_threads_end_is_rejected():
    """Except where the compiler's `exit` marks unreachable code."""
    function = """.func fails() {{ trap; exit; }}
    .func (.param .b32 out) g(.param .b32 n) {{
    .reg .b32 %r<5>; .reg .pred %p<3>; ld.param.u32 %r1, [n]; st.param.b32 [out], %r1;
    setp.gt.u32 %p1, %r1, 99;
    @%p1 bra FAILS;
    {} ret;
    FAILS: call fails; exit; }}"""
    assert results(called() + STORE, before=function.format(""))[0] == list(range(32))
    with pytest.raises(PtxError, match=r"exit.*a kernel only"):
        results(called() + STORE, before=function.format("@%p1 exit;"))


def test_recursion():
    """Each lane recurses as deep as its number: Fibonacci's numbers."""
    function = f""".func (.param .b32 out) g(.param .b32 n) {{
    .reg .b32 %x<9>; .reg .pred %p<3>; ld.param.u32 %x1, [n]; setp.lt.u32 %p1, %x1, 2;
    @%p1 bra LEAF;
    sub.s32 %x2, %x1, 1; {called("%x2", "%x3")} sub.s32 %x4, %x1, 2; {called("%x4", "%x5")}
    add.s32 %x6, %x3, %x5; st.param.b32 [out], %x6; ret;
    LEAF: st.param.b32 [out], %x1; ret; }}"""
    fibonacci = [0, 1]
    while len(fibonacci) < 12:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    body = f"rem.u32 %x1, %t, 12; {called('%x1')} {STORE}"
    assert results(body, block=64, before=function)[0] == [fibonacci[i % 12] for i in range(64)]


@pytest.mark.parametrize("size", [64, 40000])
def test_a_function_has_its_own_local_memory(size):
    """The caller's values there stay, however much memory the function takes."""
    function = f""".func (.param .b32 out) g(.param .b32 n) {{
    .local .align 8 .b8 own[{size}]; .reg .b32 %r<5>; .reg .b64 %rd<5>; ld.param.u32 %r1, [n];
    mov.u64 %rd1, own; st.local.u32 [%rd1], %r1; st.local.u32 [%rd1+{size - 4}], 77;
    ld.local.u32 %r2, [%rd1]; add.s32 %r3, %r2, 1; st.param.b32 [out], %r3; ret; }}"""
    body = ".local .align 8 .b8 mine[16]; mov.u64 %y1, mine; st.local.u32 [%y1], %i; " + called("%i", "%x2")
    body += f"ld.local.u32 %x3, [%y1]; bar.sync 0; mad.lo.s32 %x9, %x3, 1000, %x2; {STORE}"
    assert results(body, block=96, before=function)[0] == [i * 1000 + i + 1 for i in range(96)]


def test_parameters_that_are_registers():
    """The function takes and returns registers; calls pass registers and numbers, and discard a result."""
    function = """.func (.reg .b32 sum, .reg .b64 wide) g(.reg .b32 n, .reg .b64 m, .reg .b16 h) {
    .reg .b32 %r<5>; .reg .b64 %rd<3>; .reg .pred %p<3>; cvt.u32.u16 %r1, h; add.s32 %r1, %r1, n;
    cvt.u64.u32 %rd1, n; shl.b64 %rd2, m, 32; setp.gt.u32 %p1, n, 20; mov.u32 sum, 7;
    add.s64 wide, %rd1, %rd2;
    @%p1 bra MORE;
    mov.u32 sum, %r1;
    ret;
    MORE: add.s32 n, n, 1; add.s32 sum, n, %r1; }"""
    body = (
        "cvt.u64.u32 %y1, %t; add.s64 %y1, %y1, 3; mov.u32 %x9, 999; setp.eq.u32 %p1, %t, 4;\n@%p1 bra OFF;\n"
    )
    body += "call (%x1, %y2), g, (%t, %y1, 5); shr.u64 %y3, %y2, 32; cvt.u32.u64 %x2, %y3;"
    body += "call (%x3, _), g, (2, %y1, 60000); setp.lt.u32 %p2, %t, 9;\n"
    body += "@%p2 call (%x1, %y2), g, (100, %y1, 0);\n"
    body += f"mad.lo.s32 %x9, %x1, 1000, %x2; add.s32 %x9, %x9, %x3;\nOFF: {STORE}"

    def wanted(i):
        first = 201 if i < 9 else (i + 5 if i <= 20 else 2 * i + 6)
        return 999 if i == 4 else first * 1000 + i + 3 + 60002

    assert results(body, before=function)[0] == [wanted(i) for i in range(32)]


def test_kernel_parameters_at_computed_addresses():
    text = """.visible .entry f(.param .u64 p0, .param .align 8 .b8 p1[128])
    {{ .reg .b32 %r<9>; .reg .b64 %y<9>; .reg .pred %p1;
    ld.param.u64 %y1, [p0]; mov.u32 %r1, %tid.x; mul.wide.u32 %y2, %r1, 4; add.s64 %y1, %y1, %y2;
    mov.b64 %y3, p1; add.s64 %y4, %y3, %y2; sub.u32 %r2, 31, %r1; and.b32 %r2, %r2, -2;
    mul.wide.u32 %y5, %r2, 4; add.s64 %y5, %y3, %y5; setp.gt.u32 %p1, %r1, 20;
    @%p1 bra END;
    {} ld.param.u32 %r3, [%y4]; ld.param.v2.u32 {{%r4, %r5}}, [%y5]; ld.param.u32 %r6, [%y3+20];
    mad.lo.u32 %r3, %r4, 100, %r3; mad.lo.u32 %r3, %r5, 10000, %r3; mad.lo.u32 %r3, %r6, 1000000, %r3;
    st.global.u32 [%y1], %r3;
    END: ret; }}"""
    pairs = [2 * i + 1 << 32 | 2 * i for i in range(16)]
    (found,) = run(text.format(""), [np.zeros(32, np.uint32)], numbers=pairs)
    even = [31 - i & ~1 for i in range(21)]
    assert found.tolist() == [5000000 + 10000 * (e + 1) + 100 * e + i for i, e in enumerate(even)] + [0] * 11


def test_kernel_parameters_have_addresses_for_any_load():
    """Other parameters are read as before; a function takes such an address too."""
    function = """.func (.param .b32 out) second(.param .b64 at) {
    .reg .b32 %r<2>; .reg .b64 %rd<2>; ld.param.b64 %rd1, [at]; ld.u32 %r1, [%rd1+4];
    st.param.b32 [out], %r1; ret; }"""
    text = """.visible .entry f(.param .u64 p0, .param .align 8 .b8 p1[128])
    { .reg .b32 %r<9>; .reg .b64 %y<9>;
    ld.param.u64 %y1, [p0]; mov.u32 %r1, %tid.x; mul.wide.u32 %y2, %r1, 4; add.s64 %y1, %y1, %y2;
    mov.b64 %y3, p1; cvta.param.u64 %y4, %y3; xor.b64 %y5, %y2, 124; add.s64 %y5, %y4, %y5;
    ld.u32 %r2, [%y5]; ld.param.u32 %r3, [%y3+12]; ld.param.u32 %r4, [p1+20];
    { .param .b64 at; .param .b32 got; st.param.b64 [at], %y4; call (got), second, (at);
    ld.param.b32 %r5, [got]; }
    mad.lo.u32 %r2, %r3, 100, %r2; mad.lo.u32 %r2, %r4, 1000, %r2; mad.lo.u32 %r2, %r5, 10000, %r2;
    st.global.u32 [%y1], %r2; ret; }"""
    pairs = [2 * i + 1 << 32 | 2 * i for i in range(16)]
    (found,) = run(function + text, [np.zeros(32, np.uint32)], numbers=pairs)
    assert found.tolist() == [10000 + 5000 + 300 + 31 - i for i in range(32)]


@pytest.mark.parametrize("through", ["", "register"])
def test_a_function_takes_the_address_of_a_parameter(through):
    """It writes there, and calls itself with the result: each lane and each call has its own copy."""
    proto = "proto: .callprototype (.param .b32 _) _ (.param .align 4 .b8 _[12], .param .b32 _);"
    how = "%rd4, (next, more), proto" if through else "g, (next, more)"
    function = f""".func (.param .b32 out) g(.param .align 4 .b8 given[12], .param .b32 n) {{
    .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<3>; .reg .b16 %h<3>;
    mov.b64 %rd1, given; cvta.local.u64 %rd2, %rd1; cvta.to.local.u64 %rd3, %rd2; ld.param.u32 %r1, [n];
    ld.local.u32 %r2, [%rd3]; add.u32 %r2, %r2, %r1; st.u32 [%rd2], %r2; ld.param.u8 %h1, [given+5];
    cvt.u32.u16 %r3, %h1; mov.u32 %r4, 0; mov.b64 %rd4, g; setp.eq.u32 %p1, %r1, 0;
    @%p1 bra END;
    sub.u32 %r5, %r1, 1;
    {{ .param .align 4 .b8 next[12]; .param .b32 more; .param .b32 got; st.param.b32 [next], %r2;
    st.param.b8 [next+4], %h1; st.param.b8 [next+5], %h1; st.param.b32 [next+8], %r3;
    st.param.b32 [more], %r5; {proto if through else ""} call (got), {how}; ld.param.b32 %r4, [got]; }}
    END: ld.local.u32 %r6, [%rd3]; ld.param.u32 %r7, [given+8]; mad.lo.u32 %r4, %r4, 2, %r6;
    add.u32 %r4, %r4, %r7; add.u32 %r4, %r4, %r3; st.param.b32 [out], %r4; ret; }}"""
    body = f"""mov.u32 %x9, 1; rem.u32 %x1, %t, 5; mul.lo.u32 %x2, %t, 1000; .reg .b16 %h<3>;
    cvt.u16.u32 %h1, %t; setp.eq.u32 %p1, %t, 3;
    @%p1 bra OFF;
    {{ .param .align 4 .b8 next[12]; .param .b32 more; .param .b32 got; st.param.b32 [next], %x2;
    st.param.b16 [next+4], 0; st.param.b8 [next+5], %h1; st.param.b32 [next+8], 7;
    st.param.b32 [more], %x1; call (got), g, (next, more); ld.param.b32 %x9, [got]; }}
    OFF: {STORE}"""

    def g(first, byte, last, n):
        first += n
        return 2 * (g(first, byte, byte, n - 1) if n else 0) + first + last + byte

    found, _ = results(body, before=function, block=96)
    assert found == [1 if i == 3 else g(1000 * i, i, 7, i % 5) for i in range(96)]


@pytest.mark.parametrize("through", ["", "register"])
def test_parameters_stored_in_one_width_and_loaded_in_another(through):
    """Structures are passed this way: bytes loaded as words, and halves taken from words."""
    function = """.func (.param .align 8 .b8 out[8]) g(.param .align 8 .b8 given[16]) {
    .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    ld.param.b32 %r1, [given]; ld.param.b64 %rd1, [given+8]; ld.param.u8 %h1, [given+5]; cvt.u32.u16 %r2, %h1;
    cvt.u32.u64 %r3, %rd1; add.s32 %r3, %r3, %r2; st.param.v2.b32 [out], {%r1, %r3}; ret; }"""
    call = "call.uni (got), g, (given)" if not through else "call (got), %y9, (given), proto"
    body = f"""mov.u64 %y9, g; shl.b32 %x1, %t, 8; add.u32 %x1, %x1, 1; mov.u32 %x9, 1; .reg .b16 %h<9>;
    setp.eq.u32 %p1, %t, 3;
    @%p1 bra OFF;
    {{ .param .align 8 .b8 given[16]; .param .align 8 .b8 got[8];
    cvt.u16.u32 %h1, %t; st.param.b8 [given], %h1; st.param.b8 [given+1], 2;
    st.param.v2.b8 [given+2], {{3, 4}};
    st.param.b32 [given+4], %x1; st.param.b16 [given+8], 9; st.param.b16 [given+10], %h1;
    st.param.b32 [given+12], 0;
    proto: .callprototype (.param .align 8 .b8 _[8]) _ (.param .align 8 .b8 _[16]);
    {call}; ld.param.b64 %y1, [got]; }}
    cvt.u32.u64 %x2, %y1; shr.u64 %y2, %y1, 32; cvt.u32.u64 %x3, %y2; xor.b32 %x9, %x2, %x3;
    OFF: {STORE}"""

    def wanted(i):
        return 1 if i == 3 else (i | 0x04030200) ^ ((i << 16 | 9) + (i & 255))

    assert results(body, before=function)[0] == [wanted(i) for i in range(32)]


def test_a_block_is_a_cluster_by_itself():
    body = """mov.u32 %x1, %cluster_ctarank; mov.u32 %x2, %cluster_nctarank; mov.u32 %x3, %clusterid.x;
    mov.u32 %x4, %nclusterid.x; mov.pred %p1, %is_explicit_cluster; selp.u32 %x8, 1, 0, %p1;
    mov.u32 %x5, own; mad.lo.u32 %x5, %t, 4, %x5; st.shared.u32 [%x5], %t; xor.b32 %x10, %t, 33;
    mov.u32 %x5, own; mad.lo.u32 %x5, %x10, 4, %x5; mapa.shared::cluster.u32 %x6, %x5, 0;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ld.shared::cluster.u32 %x7, [%x6];
    mad.lo.s32 %x9, %x2, 1000, %x7; mad.lo.s32 %x9, %x4, 10000, %x9; add.s32 %x9, %x9, %x1;
    mad.lo.s32 %x9, %x3, 100, %x9; add.s32 %x9, %x9, %x8;"""
    found, _ = results(body + STORE, grid=3, block=64, variables=".shared .align 4 .b32 own[64];")
    assert found == [31000 + i // 64 * 100 + (i % 64 ^ 33) for i in range(192)]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("@%p1 bra NOWHERE;", "@%p1 bra NOWHERE: .* has no label NOWHERE"),
        ("{ T: .branchtargets END, NOWHERE; brx.idx %t, T; }", "brx.idx %t, T: .* has no label NOWHERE"),
        ("brx.idx %t, T;", "brx.idx %t, T: .* has no list of labels T"),
        ("brx.idx %t, END;", "brx.idx %t, END: .* has no list of labels END"),
        ("{ T: .branchtargets END; @%p1 brx.idx %t, T; }", "@%p1 brx.idx %t, T: .* with a guard"),
        (".reg .s31 %odd;", "the type .s31"),
        ("mov.u32 %x1, %t\nmov.u32 %x2, %t;", "a `;` is missing after 'mov.u32 %x1, %t'"),
        ("ld.global.u32 %x1, [%nothing+4];", r"ld.global.u32 %x1, \[%nothing\+4\]: .* %nothing"),
        ("mov.b64 {%nothing, %x1}, %d1;", "mov.b64 {%nothing, %x1}, %d1: "),
        ("call (%x1), nothing, (%x2);", r"call \(%x1\), nothing, \(%x2\): "),
    ],
)
def test_undefined_references_in_ptx_give_one_error_with_the_text(body, message):
    with pytest.raises(PtxError, match=message):
        results(f"setp.lt.u32 %p1, %t, 9; {body} END: {STORE}")


@pytest.mark.parametrize(
    "instruction",
    [
        "wgmma.fence.sync.aligned",
        "tcgen05.fence",
        "cvt.rn.e9m9.f32 %x1, %x2",
        "mma.sync.aligned.m3n3k3.f16 %x1, %x2",
    ],
)
def test_unknown_instructions_give_one_error_with_the_text(instruction):
    """Even if no thread reaches it."""
    name = instruction.split()[0]
    with pytest.raises(PtxError, match=name.replace(".", r"\.")):
        results(f"setp.lt.u32 %p1, %t, 99;\n@%p1 bra END;\n{instruction};\nEND: {STORE}")
