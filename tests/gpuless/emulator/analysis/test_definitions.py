"""Registers that a compiler reuses: their definitions get separate names, and nothing else changes."""

import numpy as np
import pytest
from ptx_programs import HEAD, results

from gpuless.emulator import ptx
from gpuless.emulator.analysis.definitions import separate
from gpuless.emulator.analysis.flow import Flow

REGISTERS = ".reg .b32 %a, %b, %c; .reg .b64 %w; .reg .pred %p, %q;"


def separated(body):
    """Return the instructions of a function after its registers have been separated."""
    function = ptx.parse(f"{HEAD}.visible .entry f() {{ {REGISTERS}\n{body}\nret; }}").functions["f"]
    flow = Flow(function)
    separate(flow, function.registers)
    return [instruction.text for block in flow.blocks for instruction in block.body], function.registers


def test_a_definition_read_alone_gets_its_own_name():
    found, registers = separated("mov.u32 %a, 1; add.u32 %b, %a, 2; mov.u32 %a, 3; add.u32 %c, %a, %b;")
    assert found == ["mov.u32 %a.d0, 1", "add.u32 %b, %a.d0, 2", "mov.u32 %a.d1, 3", "add.u32 %c, %a.d1, %b"]
    assert registers["%a.d0"] == registers["%a.d1"] == 32


def test_loop_carried_registers_are_copied():
    body = "mov.u32 %a, 1;\nL: setp.gt.u32 %p, %a, 9; add.u32 %a, %a, 1;\n@%p bra L;\nmov.u32 %b, %a;"
    found, _ = separated(body)
    assert found == [
        "mov.u32 %a, 1",
        "setp.gt.u32 %p, %a, 9",
        "add.u32 %a.d1, %a, 1",
        "mov.b32 %a, %a.d1",
        "mov.u32 %b, %a.d1",
    ]


def test_registers_written_once_stay():
    body = "mov.u32 %a, 1; add.u32 %b, %a, 2;"
    assert separated(body)[0] == ["mov.u32 %a, 1", "add.u32 %b, %a, 2"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # Read and written by one instruction, as an address, negated, in a pair, as a condition.
        ("mov.u32 %x1, 1; add.u32 %x1, %x1, %x1; add.u32 %x1, %x1, %i;", lambda i: 2 + i),
        ("mov.u64 %y1, %a0; ld.global.u32 %x1, [%y1]; mov.u64 %y1, 7; cvt.u32.u64 %x2, %y1;"
         "add.u32 %x1, %x1, %x2;", lambda i: 12),
        ("setp.eq.u32 %p1, %t, 3; selp.u32 %x1, 5, 6, %p1; not.pred %p1, %p1; selp.u32 %x2, 10, 20, %p1;"
         "add.u32 %x1, %x1, %x2;", lambda i: 25 if i == 3 else 16),
        ("setp.lt.u32 %p1|%p2, %t, 9; selp.u32 %x1, 1, 2, %p2; setp.lt.u32 %p2|%p1, %t, 20;"
         "selp.u32 %x2, 10, 20, %p1; add.u32 %x1, %x1, %x2;",
         lambda i: (1 if i >= 9 else 2) + (10 if i >= 20 else 20)),
        ("mov.u32 %x1, 4; setp.lt.u32 %p1, %t, 9;\n@%p1 bra ON;\nmov.u32 %x1, 8;\nON: "
         "setp.ge.u32 %p1, %t, 20;\n@%p1 add.u32 %x1, %x1, 100;",
         lambda i: (4 if i < 9 else 8) + 100 * (i >= 20)),
        ("mov.u32 %x1, %t; mov.u32 %x2, 0;\nL: add.u32 %x2, %x2, %x1; setp.eq.u32 %p1, %x1, 0;"
         "sub.u32 %x1, %x1, 1;\n@!%p1 bra L;\nmov.u32 %x1, %x2;", lambda i: i * (i + 1) // 2),
    ],
)  # fmt: skip
def test_the_kernel_still_computes_the_same(body, expected):
    found, _ = results(body + "st.global.u32 [%out], %x1;", [np.array([5], np.uint32)])
    assert found == [expected(i) for i in range(32)]
