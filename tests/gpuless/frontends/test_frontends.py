"""Information about a kernel that a frontend gives the emulator beside its PTX."""

import gc

import numpy as np
import pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("a frontend hands kernels to the emulated GPU", allow_module_level=True)

from numba import cuda

from gpuless import emulator, frontends
from gpuless.emulator import ptx
from gpuless.emulator.run import lines

pytestmark = pytest.mark.filterwarnings("ignore:Host array")
TEXT = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry f(.param .u64 p) { ret; }"


class Known:
    """A `Source` like a frontend's."""

    def __init__(self, text=TEXT):
        self.text = text

    def function(self):
        return None

    def parameter_names(self):
        return ["x"]

    def with_lines(self):
        return self.text


class Unknown(Known):
    def parameter_names(self):
        raise LookupError

    with_lines = parameter_names


def launched(kernel, *arguments):
    """Launch a kernel; return its module."""
    with emulator.count_launches() as tallies:
        kernel[1, 1](*arguments)
    return tallies[0].launched.kernel.source


def test_the_emulated_gpu_runs_numba_cuda():
    assert frontends.installed()
    assert not frontends.simulated()


def test_a_kernel_has_its_function_its_arguments_and_its_lines():
    @cuda.jit
    def told_kernel(x, factor):
        x[0] *= factor

    source = lines.source_of(launched(told_kernel, np.ones(1), 2))
    assert source.function() is told_kernel.py_func
    assert source.parameter_names() == ["x"] * 7 + ["factor"]
    assert ".loc" in source.with_lines()


def test_knowledge_about_a_source_is_freed_with_it():
    source, module = Known(), ptx.parse(TEXT)
    lines.remember(TEXT, source)
    assert lines.source_of(module) is source
    del source
    gc.collect()
    assert lines.source_of(module) is None
    assert lines.argument_names(module) == []


def test_a_module_with_lines_takes_the_place_of_the_one_without():
    again = TEXT.replace("{", "{\n.loc 1 7 0\n", 1) + '\n.file 1 "kernel.py"'
    source = Known(again)
    lines.remember(TEXT, source)
    origin = lines.Origin(ptx.parse(TEXT))
    assert origin.names == ["x"]
    assert origin.module.files == {1: "kernel.py"}


def test_a_module_with_different_memory_does_not():
    source = Known(TEXT.replace(".visible", ".global .b32 more;\n.visible"))
    lines.remember(TEXT, source)
    module = ptx.parse(TEXT)
    assert lines.Origin(module).module is module


def test_a_frontend_without_an_answer_is_no_error():
    source = Unknown()
    lines.remember(TEXT, source)
    module = ptx.parse(TEXT)
    origin = lines.Origin(module)
    assert origin.names == []
    assert origin.module is module


@pytest.fixture
def compilations(no_kernels, monkeypatch):
    """Return a list with, for each compilation by NVVM, whether it makes PTX."""
    from numba.cuda import codegen

    makes_ptx, compile_ir = [], codegen.nvvm.compile_ir

    def compiled(modules, **options):
        makes_ptx.append("gen-lto" not in options)
        return compile_ir(modules, **options)

    monkeypatch.setattr(codegen.nvvm, "compile_ir", compiled)
    return makes_ptx


def test_nvvm_makes_ptx_only_for_linked_kernels_or_on_request(compilations):
    @cuda.jit(device=True)
    def twice(number):
        return number * 2

    @cuda.jit
    def linked_alone(x):
        x[0] = twice(x[0]) ** 0.5

    x = np.full(1, 8, np.float32)
    linked_alone[1, 1](x)
    assert (x[0], compilations) == (4, [False])
    (text,) = linked_alone.inspect_asm().values()  # PTX is made on request
    assert ".visible .entry" in text
    assert compilations == [False, True]


def test_linked_code_of_a_kernel_is_found(compilations):
    @cuda.jit
    def reshaping(x):
        x.reshape((2, 2))[1, 0] = 3

    x = np.zeros(4, np.float32)
    reshaping[1, 1](x)
    assert x.tolist() == [0, 0, 3, 0]
    assert compilations.count(True) == 1
