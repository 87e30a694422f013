"""The inspector: planted kernels for each finding, occupancy by hand, notebook kernels, errors."""

import ast
import importlib
import inspect
import linecache
import math
import re
import shutil
import sys
import threading
import types as python_types
from typing import NamedTuple

# First: this decides what numba.cuda is.
import gpuless

# isort: split
import numpy as np
import pytest
from fresh_python import PROGRAMS, program_text
from llvmlite import ir
from numba import cuda, float32, int32, types, uint32
from numba.cuda.extending import intrinsic

from gpuless.compiler import jobs as compiler, worker
from gpuless.compiler.jobs import InspectionError, NoCompiler
from gpuless.inspector import (
    ARCHITECTURES,
    capability,
    find_kernel,
    inspect_kernel,
    inspect_kernels,
    occupancy,
    registers_for,
)
from gpuless.inspector.assembly import KINDS, memory_bits, ptx_kind, read_ptx, sass_kind
from gpuless.source import branches
from gpuless.wrapping import WIDTH

gpuless.select()

N = 8
M = 48
BIG = 64 * 1024 // 4


# --- planted kernels ---------------------------------------------------------------------------------------


@cuda.jit
def clean_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = max(x[i], float32(0)) * float32(3) + float32(1)


@cuda.jit
def accumulator_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        acc = 0.0
        for j in range(x.shape[1]):
            acc += x[i, j]
        out[i] = acc


@cuda.jit
def promotions_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = max(x[i], 0)
        out[i] += x[i] / x.size
        out[i] += x[i] * 0.1
        out[i] += x[i] * 2.0


@cuda.jit
def histogram_kernel(labels, out):
    i = cuda.grid(1)
    if i < out.shape[0]:
        counts = cuda.local.array(M, float32)
        for k in range(M):
            counts[k] = float32(0)
        for j in range(labels.shape[1]):
            counts[labels[i, j]] += float32(1)
        for k in range(M):
            out[i, k] = counts[k]


@cuda.jit
def unrolled_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        window = cuda.local.array(N, float32)
        for j in range(N):
            window[j] = x[i + j]
        acc = float32(0)
        for j in range(N):
            acc += window[j] * window[N - 1 - j]
        out[i] = acc


@cuda.jit
def signed_kernel(x, n, out):
    row, column = cuda.grid(2)
    if row < out.shape[0] and column < out.shape[1]:
        acc = float32(0)
        for j in range(n):
            acc += x[row - j, column + j]
        out[row, column] = acc


@cuda.jit
def unsigned_kernel(x, n, out):
    row, column = cuda.grid(2)
    row, column = uint32(row), uint32(column)
    if row < out.shape[0] and column < out.shape[1]:
        acc = float32(0)
        for j in range(uint32(n)):
            acc += x[uint32(row - j), uint32(column + j)]
        out[row, column] = acc


@cuda.jit
def divisions_kernel(x, n, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i // n]


@cuda.jit
def grid_stride_kernel(x, n, out):
    i = cuda.grid(1)
    for j in range(i, out.size, cuda.gridsize(1)):
        out[j] = x[j]


@cuda.jit
def narrow_stride_kernel(x, n, out):
    i = cuda.grid(1)
    for j in range(int32(i), int32(out.size), int32(n)):
        out[j] = x[j]


@cuda.jit
def guarded_kernel(x, n, out):
    i = cuda.grid(1)
    value = x[i] if i < n else 0
    out[i] = value * value + x[0]


@cuda.jit
def integer_accumulator_kernel(x, n, out):
    i = cuda.grid(1)
    acc = 0
    for j in range(n):
        acc += x[j]
    out[i] = acc


@cuda.jit
def largest_kernel(x, n, out):
    largest = -math.inf
    for j in range(n):
        if x[j] > largest:
            largest = x[j]
    out[cuda.grid(1)] = largest


@cuda.jit
def four_loads_kernel(x, out):
    i = uint32(cuda.grid(1) * 4)
    out[i // 4] = (x[i] + x[i + 1]) * (x[i + 2] + x[i + 3])


@intrinsic
def load4(typing_context, array, index):
    """Read four neighbouring floats at once."""
    signature = types.UniTuple(types.float32, 4)(array, index)

    def codegen(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.gep(data, [arguments[1]])
        vector = builder.bitcast(pointer, ir.VectorType(ir.FloatType(), 4).as_pointer())
        loaded = builder.load(vector)
        loaded.align = 16
        lanes = [builder.extract_element(loaded, ir.IntType(32)(lane)) for lane in range(4)]
        return context.make_tuple(builder, signature.return_type, lanes)

    return signature, codegen


@cuda.jit
def vector_load_kernel(x, out):
    i = uint32(cuda.grid(1) * 4)
    a, b, c, d = load4(x, i)
    out[i // 4] = (a + b) * (c + d)


@intrinsic
def mma(typing_context, a0, a1, b, c0, c1, c2, c3):
    """Multiply a 16x8 by an 8x8 float16 matrix on the Tensor Cores, a warp together."""
    signature = types.UniTuple(types.float32, 4)(a0, a1, b, c0, c1, c2, c3)

    def codegen(context, builder, signature, arguments):
        number, register = ir.FloatType(), ir.IntType(32)
        result = ir.LiteralStructType([number] * 4)
        function = ir.FunctionType(result, [register] * 3 + [number] * 4)
        code = (
            "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {$0,$1,$2,$3}, {$4,$5}, {$6}, {$7,$8,$9,$10};"
        )
        assembly = ir.InlineAsm(function, code, "=f,=f,=f,=f,r,r,r,f,f,f,f", side_effect=True)
        values = builder.call(assembly, arguments)
        lanes = [builder.extract_value(values, lane) for lane in range(4)]
        return context.make_tuple(builder, signature.return_type, lanes)

    return signature, codegen


@cuda.jit
def tensor_core_kernel(a, b, out):
    lane = uint32(cuda.threadIdx.x)
    zero = float32(0)
    c = mma(a[lane], a[lane + 32], b[lane], zero, zero, zero, zero)
    out[lane] = c[0] + c[1] + c[2] + c[3]


@cuda.jit
def spilling_kernel(x, out):
    i = uint32(cuda.grid(1))
    window = cuda.local.array(M, float32)
    for j in range(M):
        window[j] = x[i + j]
    cuda.syncthreads()
    acc = float32(0)
    for j in range(M):
        acc += window[j] * window[M - 1 - j]
    out[i] = acc


@cuda.jit
def shared_kernel(x, out):
    tile = cuda.shared.array((32, 32), float32)
    tile[cuda.threadIdx.y, cuda.threadIdx.x] = x[cuda.grid(1)]
    cuda.syncthreads()
    cuda.atomic.add(out, 0, tile[cuda.threadIdx.x, cuda.threadIdx.y])


@cuda.jit
def too_much_shared_kernel(x, out):
    tile = cuda.shared.array(BIG, float32)
    tile[cuda.threadIdx.x] = x[cuda.threadIdx.x]
    cuda.syncthreads()
    out[cuda.threadIdx.x] = tile[cuda.threadIdx.x + 1]


@cuda.jit(device=True)
def half_of(value):
    return value * 0.3


@cuda.jit
def calling_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = half_of(x[i])


@cuda.jit
def half_precision_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] * x[i] + x[i]


@cuda.jit
def grid_sync_kernel(x, out):
    i = cuda.grid(1)
    x[i] *= float32(2)
    cuda.cg.this_grid().sync()
    out[i] = x[x.size - 1 - i]


@cuda.jit
def reshape_kernel(x, out):
    i = cuda.grid(1)
    rows = x.reshape((4, 8))
    if i < out.size:
        out[i] = rows[i // 8, i % 8]


def noted(types):
    """Attach a signature to a kernel's function, as a program's own decorator might."""

    def note(function):
        function.signature = types
        return function

    return note


@cuda.jit
def of_a_table(out):
    out[cuda.grid(1)] = 1


TABLE = {"one": of_a_table}
del of_a_table


@cuda.jit
@noted("void(float32[::1])")
def noted_kernel(out):
    out[cuda.grid(1)] = 1


@cuda.jit
def sine_kernel(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = math.sin(x[i])


VECTORS = "void(float32[::1], float32[::1])"
MATRIX_AND_VECTOR = "void(float32[:, ::1], float32[::1])"
SIGNATURES = {"clean_kernel": VECTORS}

PLANTED = {
    clean_kernel: VECTORS,
    accumulator_kernel: MATRIX_AND_VECTOR,
    promotions_kernel: VECTORS,
    histogram_kernel: "void(int32[:, ::1], float32[:, ::1])",
    unrolled_kernel: VECTORS,
    signed_kernel: "void(float32[:, ::1], int32, float32[:, ::1])",
    unsigned_kernel: "void(float32[:, ::1], int32, float32[:, ::1])",
    divisions_kernel: "void(float32[:], int64, float32[::1])",
    grid_stride_kernel: "void(float32[::1], int64, float32[::1])",
    narrow_stride_kernel: "void(float32[::1], int64, float32[::1])",
    guarded_kernel: "void(float32[::1], int64, float32[::1])",
    integer_accumulator_kernel: "void(float32[::1], int64, float32[::1])",
    largest_kernel: "void(float32[::1], int64, float32[::1])",
    four_loads_kernel: VECTORS,
    vector_load_kernel: VECTORS,
    tensor_core_kernel: "void(int32[::1], int32[::1], float32[::1])",
    shared_kernel: VECTORS,
    calling_kernel: VECTORS,
    half_precision_kernel: "void(float16[::1], float16[::1])",
    sine_kernel: VECTORS,
    grid_sync_kernel: VECTORS,
    reshape_kernel: VECTORS,
}


def compiled(ask):
    """Return the result of `ask`; skip the test if there is no compiler."""
    try:
        return ask()
    except NoCompiler as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def in_both_languages():
    """Compile each planted kernel in one process for both languages, which differ only in the last step."""
    jobs = [
        compiler.Job(*kernel, (8, 6), listing=language)
        for kernel in PLANTED.items()
        for language in ("SASS", "PTX")
    ]
    compiled(lambda: compiler.compile_jobs(jobs))


@pytest.fixture(scope="module", params=["SASS", "PTX"])
def reports(request, in_both_languages):
    """Return a report by planted kernel, read from one language or the other."""
    found = compiled(lambda: inspect_kernels(PLANTED.items(), [(8, 6)], disassemble=request.param == "SASS"))
    if found[0].language != request.param:
        pytest.skip("nvdisasm is not installed")
    return dict(zip(PLANTED, found, strict=True))


@pytest.mark.parametrize(
    ("release", "is_taken"), [("13.0", False), ("12.9", False), ("13.2", True), ("14.0", True)]
)
def test_a_disassembler_without_source_files_is_not_used(monkeypatch, tmp_path, release, is_taken):
    program = tmp_path / "nvdisasm"
    program.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.37'\n")
    program.chmod(0o755)
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_binary_utility", lambda name: str(program))
    assert worker._nvdisasm() == (str(program) if is_taken else None)
    monkeypatch.setattr("cuda.pathfinder.find_nvidia_binary_utility", lambda name: None)
    assert worker._nvdisasm() is None


def advice(report, topic=None):
    return [item for item in report.advice if topic in (None, item.topic)]


def line_of(kernel, text):
    """Return the number of the first line of a kernel's source that contains a text."""
    lines, first = inspect.getsourcelines(compiler.python_function(kernel))
    return first + next(n for n, line in enumerate(lines) if text in line)


def float64_lines(report):
    return {line for _, line in report.float64}


# --- what is found -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_nothing_is_found_in_a_clean_kernel(reports):
    report = reports[clean_kernel]
    assert report.advice == ()
    assert report.float64 == {}
    assert report.spill_bytes == report.local_bytes == report.shared_bytes == 0
    assert 4 <= report.registers <= 20
    assert report.mix["global load"] == report.mix["global store"] == 1
    assert report.mix["FMA"] == 1
    assert not report.uses_tensor_cores
    assert report.vector_widths == {"global load": {32: 1}, "global store": {32: 1}}


@pytest.mark.usefixtures("cold_compiler")
def test_the_compiler_runs_in_its_own_process():
    @cuda.jit
    def alone(x):
        x[0] = float32(1)

    assert inspect_kernel(alone, "void(float32[::1])", "8.0").registers > 0


def test_every_instruction_has_a_kind(reports):
    for report in reports.values():
        assert "other" not in report.mix, [i.text for i in report.instructions if i.kind == "other"]
        assert sum(report.mix.values()) == len(report.instructions)
        assert all(i.file == report.file or i.line == 0 for i in report.instructions)


def test_a_float64_accumulator_is_traced_to_its_first_line(reports):
    report = reports[accumulator_kernel]
    (found,) = advice(report, "float64")
    assert found.line == line_of(accumulator_kernel, "acc = 0.0")
    assert found.text.startswith("`acc = 0.0` is float64, which makes line")
    assert found.text.endswith("write `acc = float32(0)`")
    assert line_of(accumulator_kernel, "acc +=") in float64_lines(report)
    assert f"lines {min(float64_lines(report))} (" in str(report)
    assert "1/64 of float32" in str(report)


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("max(x[i], 0)", "max(x[i], float32(0))"),
        ("x[i] / x.size", "x[i] / float32(x.size)"),
        ("x[i] * 0.1", "x[i] * float32(0.1)"),
    ],
)
def test_promotions_to_float64_are_named(reports, text, instead):
    (found,) = [item for item in advice(reports[promotions_kernel], "float64") if f"`{text}`" in item.text]
    assert found.line == line_of(promotions_kernel, text)
    assert found.line in float64_lines(reports[promotions_kernel])
    assert found.text == f"`{text}` is float64: write `{instead}`"


def test_promotions_that_the_compiler_removes_are_not_reported(reports):
    assert not any("2.0" in item.text for item in reports[promotions_kernel].advice)


def test_float64_in_a_device_function_is_found_there(reports):
    (found,) = advice(reports[calling_kernel], "float64")
    assert found.line == line_of(half_of, "0.3")
    assert found.text == "`value * 0.3` is float64: write `value * float32(0.3)`"


def test_the_float64_inside_a_sine_is_explained(reports):
    (found,) = advice(reports[sine_kernel], "float64")
    assert found.line == line_of(sine_kernel, "math.sin")
    assert "fastmath=True" in found.text


def test_float64_arguments_are_named():
    report = compiled(
        lambda: inspect_kernel(accumulator_kernel, "void(float64[:, ::1], float32[::1])", "9.0")
    )
    (found,) = advice(report, "float64")
    assert found.text == "x of the signature are float64; float64 runs at 1/2 of float32's speed"


def test_a_local_array_with_a_runtime_index_is_in_memory(reports):
    report = reports[histogram_kernel]
    assert report.local_bytes == 4 * M
    assert report.spill_bytes == 0
    assert report.mix["local store"] > 0
    (found,) = advice(report, "local memory")
    assert found.text.startswith("counts lies in memory")
    assert str(line_of(histogram_kernel, "+= float32(1)")) in str(found)


def test_a_local_array_with_constant_indices_stays_in_registers(reports):
    report = reports[unrolled_kernel]
    assert report.local_bytes == 0
    assert "local load" not in report.mix
    assert advice(report, "local memory") == []


def test_unsigned_indices_save_instructions(reports):
    signed, unsigned = reports[signed_kernel], reports[unsigned_kernel]
    assert len(unsigned.instructions) < 0.9 * len(signed.instructions)
    assert unsigned.mix["integer"] < 0.7 * signed.mix["integer"]
    assert unsigned.registers < signed.registers
    (found,) = advice(signed, "index")
    assert found.line == line_of(signed_kernel, "acc +=")
    assert advice(unsigned, "index") == []


def test_a_64_bit_division_is_a_subroutine(reports):
    report = reports[divisions_kernel]
    (found,) = advice(report, "division")
    assert found.line == line_of(divisions_kernel, "//")
    assert found.text.startswith("`//` or `%` of 64-bit integers, here, calls a subroutine")
    assert advice(reports[four_loads_kernel], "division") == []


def test_a_range_with_a_variable_step_is_named_instead_of_its_division(reports):
    (found,) = advice(reports[grid_stride_kernel], "division")
    assert found.line == line_of(grid_stride_kernel, "range")
    assert found.text.startswith("counting the rounds of a loop by a variable, 64-bit step, here, calls")
    # The advice helps.
    assert advice(reports[narrow_stride_kernel], "division") == []


def test_a_literal_that_makes_a_choice_float64_is_named(reports):
    (found,) = advice(reports[guarded_kernel], "float64")
    assert found.line == line_of(guarded_kernel, "else 0")
    assert found.text == "`x[i] if i < n else 0` is float64: write `x[i] if i < n else float32(0)`"


def test_an_integer_that_a_sum_begins_with_is_named(reports):
    (found,) = advice(reports[integer_accumulator_kernel], "float64")
    assert found.line == line_of(integer_accumulator_kernel, "acc = 0")
    assert found.text.endswith("write `acc = float32(0)`")


def test_an_infinity_that_a_search_begins_with_is_named(reports):
    (found,) = advice(reports[largest_kernel], "float64")
    assert found.line == line_of(largest_kernel, "-math.inf")
    assert found.text.endswith("write `largest = float32(-math.inf)`")


def test_a_strided_argument_is_named(reports):
    (found,) = advice(reports[divisions_kernel], "layout")
    assert found.text.startswith("x may have gaps")
    assert reports[divisions_kernel].arguments["x"] == "float32[:]"


def test_neighbouring_loads_could_be_one(reports):
    report = reports[four_loads_kernel]
    assert report.vector_widths["global load"] == {32: 4}
    (found,) = advice(report, "load")
    assert found.line == line_of(four_loads_kernel, "x[i]")


def test_a_128_bit_load_is_one(reports):
    report = reports[vector_load_kernel]
    assert report.vector_widths["global load"] == {128: 1}
    assert advice(report, "load") == []


def test_tensor_cores_are_seen(reports):
    report = reports[tensor_core_kernel]
    assert report.uses_tensor_cores
    assert report.mix["tensor core"] == 1
    assert "Tensor Cores   used" in str(report)


def test_shared_memory_barrier_and_atomic_are_counted(reports):
    report = reports[shared_kernel]
    assert report.shared_bytes == 32 * 32 * 4
    assert report.mix["shared load"] == report.mix["shared store"] == 1
    assert report.mix["barrier"] == report.mix["atomic"] == 1


def test_float16_arithmetic_is_counted_and_belongs_to_python_lines(reports):
    report = reports[half_precision_kernel]
    assert report.mix["FP16"] >= 1
    assert report.vector_widths["global load"] == {16: report.mix["global load"]}
    assert {i.line for i in report.instructions if i.kind == "FP16"} == {
        line_of(half_precision_kernel, "x[i] * x[i]")
    }


def test_a_grid_barrier_is_linked_and_its_library_not_counted(reports):
    report = reports[grid_sync_kernel]
    assert report.mix["global load"] == report.mix["global store"] == 2
    assert len(report.instructions) < 100
    assert report.shared_bytes == report.local_bytes == 0
    assert any("cudaCGSynchronize" in i.operands for i in report.instructions)


def test_a_reshape_is_linked_and_counted_separately(reports):
    report = reports[reshape_kernel]
    (found,) = advice(report, "reshape")
    assert found.line == line_of(reshape_kernel, "reshape(")
    assert report.local_bytes > 0
    assert {item.topic for item in report.advice} <= {"reshape", "index"}


# --- options and architectures -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def variants():
    items = [
        (spilling_kernel, VECTORS, {"max_registers": 24}),
        (spilling_kernel, VECTORS),
        (sine_kernel, VECTORS, {"fastmath": True}),
        (spilling_kernel, VECTORS, {"launch_bounds": 512, "threads_per_block": 1024}),
        (clean_kernel, VECTORS, {"threads_per_block": 100}),
        (shared_kernel, VECTORS, {"threads_per_block": 64, "dynamic_shared": 30 * 1024}),
        (shared_kernel, VECTORS, {"dynamic_shared": 48 * 1024}),
    ]
    return compiled(lambda: inspect_kernels(items, ["8.6"], disassemble=False))


def test_spills_are_reported(variants):
    tight, free = variants[:2]
    assert tight.registers == 24
    assert tight.spill_bytes > 0
    assert tight.local_bytes >= tight.spill_bytes
    (found,) = advice(tight, "spills")
    assert f"24 registers are not enough, {tight.spill_bytes} bytes" in found.text
    assert free.spill_bytes == 0
    assert advice(free, "spills") == []


def test_fastmath_changes_the_code(variants):
    assert variants[2].float64 == {}
    assert len(variants[2].instructions) < 40


def test_launch_bounds_are_obeyed_and_named(variants):
    report = variants[3]
    assert report.launch_bounds == 512
    (found,) = advice(report, "launch")
    assert "launch_bounds promises at most 512" in found.text


def test_an_uneven_block_is_named(variants):
    (found,) = advice(variants[4], "occupancy")
    assert "leaves 28 of the last warp's 32 idle" in found.text


def test_dynamic_shared_memory_counts(variants):
    report = variants[5]
    assert report.occupancy.blocks == 2
    assert report.occupancy.limited_by == ("shared memory",)
    assert "shared memory    34816 bytes per block" in str(report)
    assert any("shared memory let an SM run 4 of 48 warps (8%)" in item.text for item in report.advice)
    (found,) = advice(variants[6], "launch")
    assert "more than a block's 49152" in found.text
    assert variants[6].occupancy.blocks == 0


def test_all_architectures_at_once():
    items = [(clean_kernel, VECTORS), (accumulator_kernel, MATRIX_AND_VECTOR)]
    found = compiled(lambda: inspect_kernels(items, ARCHITECTURES, disassemble=False))
    assert [report.cc for report in found] == 2 * list(ARCHITECTURES)
    assert [report.name for report in found] == 7 * ["clean_kernel"] + 7 * ["accumulator_kernel"]
    assert all(report.float64 == {} for report in found[:7])
    assert all(report.float64 != {} for report in found[7:])


def test_results_are_remembered(monkeypatch):
    first = compiled(lambda: inspect_kernel(clean_kernel, VECTORS, (8, 0), disassemble=False))
    monkeypatch.setattr(compiler, "_ask_worker", lambda messages: pytest.fail("compiled again"))
    assert inspect_kernel(clean_kernel, VECTORS, "8.0", disassemble=False) == first


# --- how it is shown ---------------------------------------------------------------------------------------


def test_the_report_reads_well(reports):
    text = str(reports[accumulator_kernel])
    assert text.splitlines()[0] == f"accumulator_kernel {MATRIX_AND_VECTOR}"
    assert "Ampere, compute capability 8.6" in text
    assert "\nadvice\n- line" in text
    assert all(len(line) <= WIDTH for line in text.splitlines())


def test_the_source_is_annotated(reports):
    text = reports[accumulator_kernel].annotated()
    (row,) = [row for row in text.splitlines() if "acc += x[i, j]" in row]
    assert row.split()[0] == str(line_of(accumulator_kernel, "acc +="))
    assert row.endswith("FP64")
    assert "@cuda.jit" in text.splitlines()[0]


def test_one_line_can_be_listed(reports):
    report = reports[clean_kernel]
    listing = report.listing(line_of(clean_kernel, "i < out.size"))
    assert "if i < out.size:" in listing
    assert "max(x[i]" not in listing
    assert len(report.listing().splitlines()) > len(report.instructions)


def test_html_is_escaped_and_complete(reports):
    text = reports[clean_kernel]._repr_html_()
    assert "if i &lt; out.size:" in text
    assert "<table>" in text
    assert reports[clean_kernel].language in text


# --- where kernels come from -------------------------------------------------------------------------------


NOTEBOOK = program_text("cell_with_a_kernel.py")


def notebook(source, name="__main__"):
    """Run source like a notebook cell: no module, no file, its text only in linecache."""
    file = f"<cell {abs(hash(source))}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    names = {"__name__": name}
    exec(compile(source, file, "exec"), names)
    return python_types.SimpleNamespace(**names)


def test_a_kernel_of_a_notebook_with_its_globals_and_options():
    cell = notebook(NOTEBOOK)
    report = compiled(lambda: inspect_kernel(cell.notebook_kernel, VECTORS, "8.9", disassemble=False))
    (found,) = advice(report, "float64")
    assert found.line == 1 + NOTEBOOK[: NOTEBOOK.index("+ 0.1")].count("\n")
    assert "write `scaled(math.sin(x[i])) + float32(0.1)`" in found.text
    # Without fastmath a sine is some hundred instructions.
    assert len(report.instructions) < 60
    assert "scaled(math.sin(x[i])) + 0.1" in report.annotated()


def test_a_changed_cell_is_compiled_again():
    first = notebook(NOTEBOOK)
    second = notebook(NOTEBOOK.replace("+ 0.1", "+ SCALE"))
    kernels = [(first.notebook_kernel, VECTORS), (second.notebook_kernel, VECTORS)]
    before, after = compiled(lambda: inspect_kernels(kernels, ["8.9"], disassemble=False))
    assert before.float64
    assert not after.float64


def test_a_kernel_inside_a_function():
    factor = float32(2)

    @cuda.jit
    def inner_kernel(x, out):
        out[cuda.grid(1)] = x[cuda.grid(1)] * factor

    report = compiled(lambda: inspect_kernel(inner_kernel, VECTORS, disassemble=False))
    assert report.name == "inner_kernel"


class Shift(NamedTuple):
    by: int
    scale: float


@cuda.jit
def shift_kernel(x, shift: Shift, out):
    i = cuda.grid(1)
    if i + shift.by < out.size:
        out[i + shift.by] = x[i] * float32(shift.scale)


def test_a_signature_may_use_the_named_tuple_of_an_annotation():
    signature = "void(float32[::1], Shift, float32[::1])"
    report = compiled(lambda: inspect_kernel(shift_kernel, signature, disassemble=False))
    assert report.arguments["shift"] == "Shift(int64, float64)"
    with pytest.raises(InspectionError, match="'Window' is not defined"):
        inspect_kernel(shift_kernel, signature.replace("Shift", "Window"), disassemble=False)


def test_a_signature_of_types():
    signature = (types.float32[::1], types.float32[::1])
    report = compiled(lambda: inspect_kernel(clean_kernel, signature, disassemble=False))
    assert report.arguments == {"x": "float32[::1]", "out": "float32[::1]"}


def test_a_kernel_is_found_by_name():
    module = find_kernel.__module__
    assert find_kernel(f"{__name__}:clean_kernel") == (clean_kernel, VECTORS)
    assert find_kernel(f"{__name__}:noted_kernel") == (noted_kernel, "void(float32[::1])")
    assert find_kernel(f"{__name__}:sine_kernel") == (sine_kernel, None)
    assert find_kernel(f"{__name__}:of_a_table") == (TABLE["one"], None)
    with pytest.raises(ValueError, match=r"write module:kernel or file\.py:kernel, got 'clean_kernel'"):
        find_kernel("clean_kernel")
    with pytest.raises(ValueError, match="no_such_module cannot be imported"):
        find_kernel("no_such_module:kernel")
    with pytest.raises(ValueError, match="has no kernel 'find_kernel'"):
        find_kernel(f"{module}:find_kernel")
    with pytest.raises(ValueError, match=r"has no kernel 'k'; it has .*\bclean_kernel\b") as caught:
        find_kernel(f"{__name__}:k")
    assert "half_of" not in str(caught.value)  # a device function


SCRIPT = program_text("two_kernels.py")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder for modules, which are unloaded after the test."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    before = sys.modules.copy()
    yield tmp_path
    for name in sys.modules.keys() - before.keys():
        if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
            del sys.modules[name]


@pytest.mark.parametrize("name", ["first_kernel", "second_kernel"])
def test_a_script_is_inspected_and_its_launches_left_out(folder, capsys, name):
    (folder / "script.py").write_text(SCRIPT)
    arguments = sys.argv
    kernel, signature = find_kernel(f"{folder / 'script.py'}:{name}")
    assert (signature is None) == (name == "first_kernel")
    assert capsys.readouterr().out == ""
    found = "void(float32[::1])" if signature is None else signature[0]
    report = compiled(lambda: inspect_kernel(kernel, found, "8.6", disassemble=False))
    assert report.name == name
    assert report.signature == "void(float32[::1])"
    assert report.mix["FP32"] == 1
    assert report.line == compiler.python_function(kernel).__code__.co_firstlineno
    assert sys.argv is arguments
    # From now on launches are launches again.
    x = cuda.to_device(np.ones(2, np.float32))
    compiler.python_function(kernel).__globals__["first_kernel"][1, 2](x)
    assert x.copy_to_host().tolist() == [2, 2]


def test_a_module_that_was_imported_with_its_launches(folder):
    sys.path.insert(0, str(folder))
    (folder / "launching_helpers.py").write_text(program_text("launching_helpers.py"))
    (folder / "launching.py").write_text(program_text("launching.py"))
    kernel = importlib.import_module("launching").double_kernel
    report = compiled(lambda: inspect_kernel(kernel, VECTORS, "8.6", disassemble=False))
    assert report.mix["FP32"] == 1


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import no_such_module", "line 1: No module named 'no_such_module'"),
        ("n = 1\nn / 0", "line 2: ZeroDivisionError: division by zero"),
        ("def k(:", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("raise SystemExit(3)", "broken.py has no kernel 'k'; line 1: SystemExit: 3"),
        (SCRIPT, "it has first_kernel, second_kernel; without its launches, line 13: AttributeError"),
    ],
)
def test_a_module_with_an_error(folder, source, message):
    (folder / "broken.py").write_text(source)
    with pytest.raises(ValueError, match=re.escape(message)):
        find_kernel(f"{folder}/broken.py:k")


def test_a_global_array_on_the_gpu_cannot_be_sent():
    cell = notebook(NOTEBOOK)
    compiler.python_function(cell.scaled).__globals__["SCALE"] = cuda.to_device(np.ones(1))
    with pytest.raises(InspectionError, match="an array on the GPU is a global of it; make it an argument"):
        inspect_kernel(cell.notebook_kernel, VECTORS)


def test_a_file_in_a_package(folder, monkeypatch):
    inner = folder / "outer_package" / "inner_package"
    inner.mkdir(parents=True)
    for package in (inner, inner.parent):
        (package / "__init__.py").touch()
    (inner.parent / "numbers_of_mine.py").write_text("TWO = 2\n")
    (inner / "kernels.py").write_text(
        "from numba import cuda\nfrom ..numbers_of_mine import TWO\n"
        "@cuda.jit\ndef k(x):\n    x[cuda.grid(1)] = TWO\n"
    )
    monkeypatch.chdir(inner)
    for place in (inner / "kernels.py", "kernels.py", "./kernels", "outer_package.inner_package.kernels"):
        kernel, _ = find_kernel(f"{place}:k")
        assert compiler.python_function(kernel).__module__ == "outer_package.inner_package.kernels"
    assert compiled(lambda: inspect_kernel(kernel, "void(float32[::1])", disassemble=False)).name == "k"


@pytest.mark.exhaustive_unless(
    lambda file: file == "my-kernels.v2.py", "a file with dots and a dash in its name"
)
@pytest.mark.parametrize("file", ["random.py", "my-kernels.v2.py", "2.py"])
def test_a_file_may_have_any_name(folder, file):
    shutil.copy(PROGRAMS / "program_without_a_launch.py", folder / file)
    kernel, _ = find_kernel(f"{folder}/{file}:k")
    assert compiled(lambda: inspect_kernel(kernel, "void(float32[::1])", disassemble=False)).name == "k"


def test_a_kernel_in_a_decorator_of_the_authors(folder):
    (folder / "decorated.py").write_text(program_text("decorated.py"))
    for name in ("timed_kernel", "twice_kernel"):
        kernel, _ = find_kernel(f"{folder}/decorated.py:{name}")
        assert compiler.python_function(kernel).__name__ == name


# --- what is refused ---------------------------------------------------------------------------------------


def test_all_errors_are_listed_at_once():
    items = [
        (too_much_shared_kernel, VECTORS),
        (clean_kernel, "void(float32[::1])"),
        (accumulator_kernel, "float32(float32[:, ::1], float32[::1])"),
        (sine_kernel, "void(float32[::1], "),
        (signed_kernel, "void(int32, int32, int32)"),
        (half_of, "float32(float32)"),
    ]
    with pytest.raises(InspectionError) as caught:
        compiled(lambda: inspect_kernels(items, ["7.5", "9.0"], disassemble=False))
    text = str(caught.value)
    assert "too_much_shared_kernel does not compile for compute capability 7.5, 9.0: " in text
    assert "its shared arrays take 65536 bytes, and a block can have 49152 (48 KB)" in text
    assert "the kernel takes 2 arguments (x, out), the signature has 1: void(float32[::1])" in text
    assert "a kernel returns nothing: write void(...) instead of 'float32(float32" in text
    assert "the signature 'void(float32[::1], ' cannot be read" in text
    assert "signed_kernel does not compile for compute capability 7.5, 9.0: TypingError: " in text
    assert "a device function has no registers of its own" in text


@pytest.mark.parametrize("cc", ["5.2", (9, 1), "hopper", 9.0, None, "9"])
def test_unknown_architectures(cc):
    with pytest.raises(ValueError, match=r"is not known, only 7\.5, 8\.0, 8\.6, 8\.9, 9\.0, 10\.0, 12\.0"):
        inspect_kernel(clean_kernel, VECTORS, cc)


@pytest.mark.parametrize("threads", [0, 1025, -32])
def test_block_sizes_no_gpu_has(threads):
    with pytest.raises(ValueError, match=f"threads_per_block must be 1 to 1024, got {threads}"):
        inspect_kernel(clean_kernel, VECTORS, threads_per_block=threads)


def test_other_arguments_than_kernels():
    with pytest.raises(TypeError, match="expected a kernel"):
        inspect_kernel(math.sin, VECTORS)
    with pytest.raises(TypeError, match=r"unknown options \['colour'\]"):
        inspect_kernels([(clean_kernel, VECTORS, {"colour": 1})])


@cuda.jit(device=True, inline="always")
def tile_of(size):
    return cuda.shared.array(size, float32)  # a size known only after inlining


def with_tile(size):
    @cuda.jit
    def tiled_kernel(x):
        tile = tile_of(size)
        tile[cuda.threadIdx.x] = x[cuda.threadIdx.x]
        cuda.syncthreads()
        x[cuda.threadIdx.x] = tile[size - 1 - cuda.threadIdx.x]

    return tiled_kernel


def test_device_functions_are_inlined_as_their_decorators_say():
    assert inspect_kernel(with_tile(64), (float32[::1],)).shared_bytes == 256


@pytest.mark.skipif(not gpuless.select().emulated, reason="compiles for the emulated GPU")
def test_variables_are_described_for_debuggers_alone():
    def scaled(x):
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            part = cuda.local.array(2, float32)
            part[0] = x[i]
            x[0] = part[0]

    def description(**options):
        kernel = cuda.jit("void(float32[::1])", **options)(scaled)
        return "".join(kernel.inspect_llvm().values())

    # NVVM made names for some that it then rejected: "Symbol name with unsupported characters".
    assert "DILocalVariable" not in description(lineinfo=True)
    assert "DISubprogram" in description(lineinfo=True)
    assert "DILocalVariable" in description(debug=True, opt=False)


def test_a_kernel_that_cannot_be_sent():
    cell = notebook(NOTEBOOK)
    compiler.python_function(cell.scaled).__globals__["SCALE"] = threading.Lock()
    with pytest.raises(InspectionError, match="notebook_kernel cannot be sent to the compiler"):
        inspect_kernel(cell.notebook_kernel, VECTORS)


def test_a_machine_without_a_compiler(monkeypatch):
    monkeypatch.setattr(compiler, "_cache", {})
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(NoCompiler, match="NVIDIA has no CUDA compiler for it"):
        inspect_kernel(clean_kernel, VECTORS)
    monkeypatch.setattr(sys, "platform", "linux")
    answer = python_types.SimpleNamespace(returncode=0, stdout=b'{"missing": "no libnvvm"}')
    monkeypatch.setattr(compiler.subprocess, "run", lambda *arguments, **options: answer)
    with pytest.raises(NoCompiler, match=r"no libnvvm; install .* pip install 'gpuless\[cu13\]'"):
        inspect_kernel(clean_kernel, VECTORS)


def test_a_worker_that_dies(monkeypatch):
    monkeypatch.setattr(compiler, "_cache", {})
    answer = python_types.SimpleNamespace(returncode=3, stdout=b"", stderr=b"out of memory")
    monkeypatch.setattr(compiler.subprocess, "run", lambda *arguments, **options: answer)
    monkeypatch.setattr(sys, "platform", "linux")
    with pytest.raises(InspectionError, match=r"(?s)process failed.*out of memory") as caught:
        inspect_kernel(clean_kernel, VECTORS)
    assert not isinstance(caught.value, NoCompiler)  # for which tests are skipped


# --- occupancy ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cc", "threads", "registers", "shared", "blocks", "limited_by"),
    [
        # 32 warps per SM / 8 warps per block = 4; 40 * 32 = 1280 registers per warp, 16384 // 1280 * 4 = 48.
        ((7, 5), 256, 40, 0, 4, ("warps",)),
        # Blocks of one warp: at most 16 of them, on Ada 24, on Hopper 32.
        ((7, 5), 32, 16, 0, 16, ("blocks",)),
        ((8, 9), 32, 16, 0, 24, ("blocks",)),
        ((9, 0), 32, 16, 0, 32, ("blocks",)),
        # 168 * 32 = 5376 registers per warp: 3 warps in a quarter's 16384, 12 in the SM, 6 blocks of 2 warps.
        ((8, 6), 64, 168, 0, 6, ("registers",)),
        # 65 registers are rounded up to 72: 2304 a warp, 7 in a quarter, 28 in the SM, 3 blocks of 8.
        ((8, 0), 256, 65, 0, 3, ("registers",)),
        # 255 * 32 rounds up to 8192: 8 warps in the SM, and a block of 512 threads has 16.
        ((9, 0), 512, 255, 0, 0, ("registers",)),
        # A block of 9 warps is checked as if it had 12: 12 * 168 * 32 = 64512 fit, 12 * 176 * 32 do not.
        ((9, 0), 288, 168, 0, 1, ("registers",)),
        ((9, 0), 288, 176, 0, 0, ("registers",)),
        # 48 KB and the reserved 1 KB: 228 // 49 = 4; Turing reserves nothing, 64 // 48 = 1.
        ((9, 0), 128, 32, 48 * 1024, 4, ("shared memory",)),
        ((7, 5), 128, 32, 48 * 1024, 1, ("shared memory",)),
        # 20 KB + 1 KB: 100 // 21 = 4.
        ((12, 0), 128, 32, 20 * 1024, 4, ("shared memory",)),
        ((9, 0), 128, 32, 48 * 1024 + 1, 0, ("shared memory",)),
        # 1024 threads: 2 blocks by warps; 32 * 1024 registers twice.
        ((10, 0), 1024, 32, 0, 2, ("warps", "registers")),
    ],
)
def test_occupancy_by_hand(cc, threads, registers, shared, blocks, limited_by):
    found = occupancy(cc, threads, registers, shared)
    assert (found.blocks, found.limited_by) == (blocks, limited_by)
    assert found.warps == blocks * math.ceil(threads / 32)
    assert found.fraction == found.warps / ARCHITECTURES[cc].warps


def test_registers_for_one_more_block():
    assert registers_for((8, 0), 256, 4) == 64
    assert registers_for((8, 0), 256, 33) == 0
    assert occupancy((8, 0), 256, 64).blocks == 4


def test_occupancy_depends_on_the_block_size():
    report = compiled(lambda: inspect_kernel(clean_kernel, VECTORS, (8, 6), disassemble=False))
    assert report.occupancy.threads_per_block == 256
    assert report.occupancy_at(1024).fraction == pytest.approx(2 / 3)
    assert report.occupancy_at(32).limited_by == ("blocks",)


def test_capability_takes_text_and_numbers():
    assert capability("10.0") == capability((10, 0)) == capability([10, 0]) == (10, 0)


# --- assembly ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("opcode", "operands", "kind"),
    [
        ("DFMA", "R2,R4,R6,R8", "FP64"),
        ("F2F.F64.F32", "R2,R4", "FP64"),
        ("MUFU.RCP64H", "R2,R4", "FP64"),
        ("MUFU.RCP", "R2,R4", "special function"),
        ("HFMA2.MMA", "R1,-RZ,RZ,0,0", "move"),
        ("HFMA2.MMA", "R1,R2,R3,R4", "FP16"),
        ("IMAD.MOV.U32", "R1,RZ,RZ,R2", "move"),
        ("IMAD.WIDE", "R2,R4,R5,R6", "integer"),
        ("UISETP.GE.AND", "UP0,UPT,UR4,UR5,UPT", "integer"),
        ("LDS.128", "R4,[R2]", "shared load"),
        ("HMMA.1688.F32", "R4,R2,R6,RZ", "tensor core"),
        ("BAR.SYNC.DEFER_BLOCKING", "0x0", "barrier"),
        ("RED.E.ADD.F32.FTZ.RN.STRONG.GPU", "[R2],R5", "atomic"),
        ("NEWTHING", "", "other"),
    ],
)
def test_kinds_of_sass(opcode, operands, kind):
    assert kind in KINDS
    assert sass_kind(opcode, operands) == kind


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("div.rn.f64", "FP64"),
        ("setp.lt.f64", "FP64"),
        ("selp.f64", "move"),
        ("mad.lo.s32", "integer"),
        ("fma.rn.ftz.f32", "FMA"),
        ("add.rn.f16x2", "FP16"),
        ("ld.param.u64", "constant load"),
        ("st.shared::cta.v2.f32", "shared store"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "tensor core"),
        ("bar.sync", "barrier"),
        ("atom.global.add.f64", "atomic"),
    ],
)
def test_kinds_of_ptx(opcode, kind):
    assert ptx_kind(opcode) == kind


def test_ptx_statements_over_several_lines():
    text = """
.visible .entry kernel(.param .u64 p)
{
    .reg .f32 %f<3>;
    .loc 1 7 3
    { // callseq 0, 0
    call.uni (retval0),
    helper,
    (
    param0
    );
    } // callseq 0
$L__BB0_1:
    .loc 1 0 1
    @%p1 bra $L__BB0_1;
    .loc 1 9 1
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];
    ret;
}
    .file 1 "/somewhere/kernels.py"
"""
    found = read_ptx(text)
    assert [(i.opcode, i.line) for i in found] == [
        ("call.uni", 7),
        ("bra", 7),
        ("ld.global.v4.f32", 9),
        ("ret", 9),
    ]
    assert found[1].predicate == "@%p1"
    assert memory_bits(found[2]) == 128
    assert {i.file for i in found} == {"/somewhere/kernels.py"}


def test_the_syntax_around_an_instruction_comes_from_the_files_current_tree():
    """Only some files' trees are kept; the cached syntax of an instruction must not be from an older tree."""
    code = inspect_kernel.__code__
    assert branches.path(code, 2)
    for number in range(40):  # more than are kept
        name = f"<file {number}>"
        linecache.cache[name] = 1, None, [f"x = {number}\n"], name
        branches.syntax(name)
    first = branches.path(code, 2)[0]
    assert any(node is first for node in ast.walk(branches.syntax(code.co_filename)))
