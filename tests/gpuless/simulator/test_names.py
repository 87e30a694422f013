"""The simulator's own `numba.cuda`: it has the names of a compiler's, and does the same for a host."""

# First: this decides what numba.cuda is.
import gpuless

# isort: split
import ast
import copy
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from fresh_python import PATH, PROGRAMS, program_text, python
from numba import cuda

from gpuless import simulator
from gpuless.frontends import numba_cuda
from gpuless.simulator.standin import numba as no_numba

gpuless.select()
FOLDER = Path(simulator.__file__).parents[1]
needs_numba_cuda = pytest.mark.skipif(not numba_cuda.present(), reason="needs numba, which is not installed")
emulated = pytest.mark.skipif(bool(gpuless.selection.emulator.problem()), reason="needs the CUDA compiler")


# --- Names -------------------------------------------------------------------------------------------------

# Names of a compiler's `cuda` that the simulator lacks, and why.
LACKING = {
    "modules of the compiler, which programs do not import from here": """
        api api_util args cache_hints cext cgutils cloudpickle codegen compiler cpython cuda_paths datamodel
        debuginfo decorators descriptor device_init deviceufunc dispatcher flags implementation initialize
        intrinsics itanium_mangler kernels launchconfig locks lowering mathimpl memory_management misc models
        np nvvmutils reduction serialize simulator stubs target typeconv typing ufuncs utils vectorizers
        contextlib importlib os sys warnings prepare_shape_strides_dtype config_default_cc
        numba_cuda_default_ptx_cc""",
    "memory of the driver's, for those who manage it themselves": """
        BaseCUDAMemoryManager GetIpcHandleMixin HostOnlyCUDAMemoryManager IpcHandle MappedMemory MemoryPointer
        PinnedMemory alias""",
    "types of which there are no values in the simulator": """
        bfloat16 deferred_type ffi ffi_forced_object literal optional""",
    "functions of NVIDIA's library, which only a compiler links": "libdevice",
}
# The same of `numba` itself.
NUMBA_LACKING = {
    "what only a compiler for the host has": """
        experimental gdb gdb_breakpoint gdb_init objmode set_parallel_chunksize get_parallel_chunksize
        parallel_chunksize optional ffi ffi_forced_object deferred_type""",
    "errors of its parts, which nobody catches": """
        ByteCodeSupportError ConstantInferenceError DeprecationError ForbiddenConstruct ForceLiteralArg
        InternalError InternalTargetMismatchError LiteralTypingError NonexistentTargetError
        UnsupportedParforsError UnsupportedRewriteError UntypedAttributeError""",
}
HARDWARE = {"GPULESS": "hardware", "NUMBA_ENABLE_CUDASIM": "0"}


def lacking(reasons):
    return {name for names in reasons.values() for name in names.split()}


@needs_numba_cuda
def test_missing_names_are_listed():
    cudas, numbas = json.loads(
        python(
            "import json, numba",
            "from numba import cuda",
            "print(json.dumps([[name for name in dir(cuda) if name[0] != '_'], numba.__all__]))",
            **HARDWARE,
        )
    )
    assert {name for name in cudas if not hasattr(cuda, name)} == lacking(LACKING)
    assert {name for name in numbas if not hasattr(no_numba, name)} == lacking(NUMBA_LACKING) & set(numbas)


@needs_numba_cuda
def test_types_have_numbas_names_and_are_the_same():
    lines = "import json, numba", "from numba import cuda, types", "from gpuless.simulator.types import NAMES"
    found = python(
        *lines, "print(json.dumps({name: str(getattr(cuda.types, name, '')) for name in NAMES}))", **HARDWARE
    )
    assert json.loads(found) == {name: str(getattr(cuda.types, name)) for name in json.loads(found)}


def test_no_file_of_the_simulator_imports_a_compiler():
    files = [
        path
        for part in ("simulator", "sanitizer", "access", "source")
        for path in FOLDER.joinpath(part).rglob("*.py")
    ]
    assert len(files) > 50
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            packages = {name.partition(".")[0] for name in modules}
            assert not packages & {"numba", "llvmlite", "numba_cuda", "numba_cuda_mlir", "greenlet"}, path


# --- What a host does --------------------------------------------------------------------------------------

# Here Numba is more or less strict, or has other messages.
DIFFERENT = {
    'D.reshape(12, order="F").shape',  # there the elements come in another order than NumPy's
    "cuda.event().elapsed_time(cuda.event()) >= 0",
    "str(cuda.void(cuda.int32, cuda.float32[:])), cuda.void(cuda.int32).args",
    'cuda.float32["x"]',
    "fill[1, 2048](D.ravel(), 1)",  # an error of the driver's
    "cuda.jit(lambda x: None, no_such_option=1)",  # Numba takes any
}


def host_program(wanted):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAMS / "host_program.py")],
        env={**os.environ, "PYTHONPATH": PATH, "GPULESS": wanted},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return dict(line.split(" -> ", 1) for line in done.stdout.splitlines())


@emulated
def test_host_functions_match_the_emulated_gpu():
    ours, theirs = host_program("simulator"), host_program("emulator")
    assert len(ours) > 100
    different = {line for line in ours if ours[line] != theirs[line]}
    assert different == DIFFERENT


def test_a_new_array_is_poisoned_and_one_like_it_has_its_layout():
    assert np.isnan(cuda.device_array(3).copy_to_host()).all()
    like = cuda.device_array_like(np.zeros((3, 4), np.float32, "F"))
    assert like.is_f_contiguous()
    assert np.isnan(like.copy_to_host()).all()


def test_memory_of_other_libraries_raises():
    class Foreign:
        @property
        def __cuda_array_interface__(self):
            return {"shape": (4,), "typestr": "<f4", "data": (4096, False), "version": 3}

    with pytest.raises(TypeError, match="a Foreign is in memory that is not the simulated device's"):
        cuda.as_cuda_array(Foreign())


def test_streams_call_back_and_events_tell_the_time():
    calls = []
    cuda.stream().add_callback(lambda *given: calls.append(given[2]), 5)
    first, last = cuda.event(), cuda.event()
    first.record()
    last.record(cuda.stream())
    assert calls == [5]
    assert cuda.event_elapsed_time(first, last) >= 0
    with pytest.raises(RuntimeError, match="no streams of other libraries"):
        cuda.external_stream(0)


def test_types_can_be_copied_and_pickled():
    for kind in (cuda.float32, cuda.types.int8[:, ::1], cuda.void(cuda.float64[:], cuda.int32)):
        assert copy.deepcopy(kind) == pickle.loads(pickle.dumps(kind)) == kind
        assert hash(copy.copy(kind)) == hash(kind)


@needs_numba_cuda
def test_types_are_the_compilers_when_it_compiles():
    signature = pickle.dumps(cuda.void(cuda.types.float32[:, ::1], cuda.types.int64))
    lines = "import pickle", "import numba", f"found = pickle.loads({signature!r})"
    asked = "print(found == numba.void(numba.float32[:, ::1], numba.int64), type(found).__module__)"
    assert python(*lines, asked, **HARDWARE).startswith("True numba.")


# --- Random numbers ----------------------------------------------------------------------------------------


@cuda.jit
def draws_kernel(states, floats, doubles, normals, wide):
    i = cuda.grid(1)
    for j in range(floats.shape[1]):
        floats[i, j] = random.xoroshiro128p_uniform_float32(states, i)
        doubles[i, j] = random.xoroshiro128p_uniform_float64(states, i)
        normals[i, j] = random.xoroshiro128p_normal_float32(states, i)
        wide[i, j] = random.xoroshiro128p_normal_float64(states, i)


from numba.cuda import random  # noqa: E402  # a global of the kernel


@needs_numba_cuda
def test_random_numbers_are_numbas():
    states = random.create_xoroshiro128p_states(3, seed=2**63 + 5, subsequence_start=2)
    begun = states.copy_to_host()
    kinds = np.float32, np.float64, np.float32, np.float64
    drawn = [cuda.to_device(np.zeros((3, 4), kind)) for kind in kinds]
    draws_kernel[1, 3](states, *drawn)
    printed = python(
        "import json, numpy as np",
        "from numba.cuda import random as r",
        "states = np.empty(3, r.xoroshiro128p_dtype)",
        "r.init_xoroshiro128p_states_cpu(states, np.uint64(2**63 + 5), np.uint64(2))",
        "begun = [[int(s['s0']), int(s['s1'])] for s in states]",
        "draws = [r.xoroshiro128p_uniform_float32, r.xoroshiro128p_uniform_float64]",
        "draws += [r.xoroshiro128p_normal_float32, r.xoroshiro128p_normal_float64]",
        "found = [[[float(draw(states, i)) for draw in draws] for j in range(4)] for i in range(3)]",
        "print(json.dumps([begun, found]))",
        **HARDWARE,
    )
    theirs, found = json.loads(printed)
    assert [list(map(int, each)) for each in begun.tolist()] == theirs
    ours = np.stack([each.copy_to_host().astype(float) for each in drawn], axis=-1)
    np.testing.assert_array_equal(ours[..., :2], np.array(found)[..., :2])
    np.testing.assert_allclose(ours[..., 2:], np.array(found)[..., 2:], rtol=2e-6)


# --- What cannot be stepped --------------------------------------------------------------------------------


def test_compiler_extensions_can_be_imported_and_say_what_they_need():
    from numba.cuda import extending

    @extending.intrinsic
    def clock(typing_context):
        raise AssertionError

    @extending.overload(abs)
    def ol_abs(x):
        raise AssertionError

    @extending.register_jitable
    def tripled(x):
        return 3 * x

    @cuda.jit
    def kernel(out):
        out[0] = clock()

    @cuda.jit
    def tripling_kernel(out):
        out[0] = tripled(out[0])

    out = cuda.to_device(np.ones(1))
    with pytest.raises(gpuless.UnsupportedPython, match="clock makes machine code"):
        kernel[1, 1](out)
    clock.py_func = lambda: 5
    kernel[1, 1](out)
    assert out.copy_to_host() == 5
    tripling_kernel[1, 1](out)
    assert (out.copy_to_host(), tripled(2)) == (15, 6)


def test_linked_code_raises_when_it_would_run():
    linked = cuda.declare_device("linked", "float32(float32)", link=cuda.CUSource(""))

    @cuda.jit
    def kernel(out):
        out[0] = linked(out[0])

    with pytest.raises(
        NotImplementedError, match="the device function linked, which is linked, needs a compiler"
    ):
        kernel[1, 1](cuda.to_device(np.ones(1)))


@emulated
@pytest.mark.parametrize("variable", [{"GPULESS": "simulator"}, {"GPULESS": "", "NUMBA_ENABLE_CUDASIM": "1"}])
def test_with_a_compiler_errors_advise_to_leave_the_simulator(variable):
    found = python(
        program_text("what_needs_a_compiler.py"),
        **variable,
    ).splitlines()
    name = next(name for name, value in variable.items() if value)
    kinds = ["ModuleNotFoundError"] * 3 + ["NotImplementedError", "AttributeError"]
    assert [line.partition(":")[0] for line in found] == kinds
    for line in found:
        assert line.endswith(f"one is installed, so unset {name}, which asks for the simulator")


def test_numba_cuda_mlir_has_the_same_kernels():
    from numba_cuda_mlir import cuda as other, types

    @other.jit
    def kernel(out):
        out[other.threadIdx.x] = types.f32(0.1) + types.i8(300) + cuda.float64(0)

    out = other.to_device(np.zeros(2))
    kernel[1, 2](out)
    assert out.copy_to_host().tolist() == [float(np.float32(0.1) + np.float32(44))] * 2
