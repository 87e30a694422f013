"""Expressions in IR, and the names of the driver's results."""

import pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("translates for the emulated GPU", allow_module_level=True)

from gpuless.emulator.driver.errors import DriverError, Result, check_choice, check_flags, refuse_if
from gpuless.emulator.translate.masked import load_next
from gpuless.emulator.translate.typed import Integers, Typed
from gpuless.emulator.translate.values import ALL, ONE


class Writer:
    """Keeps lines and declarations."""

    def __init__(self):
        self.lines, self.module, self.declared = [], self, []

    def declare(self, signature):
        self.declared.append(signature)

    def new(self, text):
        self.lines.append(text)
        return f"%{len(self.lines)}"


def test_numbers_of_python_become_constants_in_all_lanes():
    t = Writer()
    assert Integers(t, ONE, 32)("add", "%a", 1) == "%1"
    Integers(t, ALL, 8)("icmp eq", "%a", -1)
    Integers(t, ALL, 1)("xor", "%a", True)
    Typed(t, ONE, "f32")("fmul", "%x", 0.5)
    assert t.lines == [
        "add i32 %a, 1",
        "icmp eq <32 x i8> %a, splat (i8 -1)",
        "xor <32 x i1> %a, splat (i1 true)",
        "fmul float %x, 0x3FE0000000000000",
    ]


def test_choices_calls_and_widths():
    t = Writer()
    i = Integers(t, ONE, 32, signed=True)
    i.select("%c", "%a", 7)
    i.call("ctlz", "%a", "false")
    i.shift_right("%a", 3)
    i.of(64).resized("%a", 32, signed=True)
    assert i.resized("%a", 32) == "%a"
    assert t.lines == [
        "select i1 %c, i32 %a, i32 7",
        "call i32 @llvm.ctlz.i32(i32 %a, i1 false)",
        "ashr i32 %a, 3",
        "sext i32 %a to i64",
    ]
    assert t.declared == ["i32 @llvm.ctlz.i32(i32, i1)"]


def test_a_masked_load_names_its_width():
    t = Writer()
    load_next(t, "%p", 16, "%on", 8)
    given = "ptr align 2 %p, <8 x i1> %on, <8 x i16> poison"
    assert t.lines == [f"call <8 x i16> @llvm.masked.load.v8i16.p0({given})"]


def test_results_have_the_names_of_cuda():
    assert Result.SUCCESS.full_name == "CUDA_SUCCESS"
    assert Result(700).full_name == "CUDA_ERROR_ILLEGAL_ADDRESS"
    assert Result(123456) is Result.UNKNOWN


def test_checks_name_the_error():
    refuse_if(False)
    with pytest.raises(DriverError, match="CUDA_ERROR_INVALID_VALUE") as found:
        refuse_if(True, detail="too many")
    assert (found.value.code, found.value.detail) == (1, "too many")
    with pytest.raises(DriverError) as found:
        check_flags(0x9, known=1)
    assert found.value.detail == "flags 0x9: the driver knows 0x1"
    with pytest.raises(DriverError) as found:
        check_choice(5, 1, 2)
    assert found.value.detail == "5 is not one of 1, 2"
