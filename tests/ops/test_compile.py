"""Every kernel of the gpu backends, compiled for real GPUs: registers, memory, and no float64 by accident.

Run with ``-s`` to see the table.
"""

import importlib
import pkgutil
import re

import pytest
from helpers import kernels_in

import benchmarks.rungs
import cnn_numba.beyond
import cnn_numba.ops
from cnn_numba import device
from gpuless.compiler.jobs import Job, compile_jobs
from gpuless.inspector import NoCompiler, capability, read_ptx

CCS = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")


def gpu_modules():
    """Return the modules of the gpu backends (each gpu.py and the files beside it) and of the rungs."""
    names = [
        found.name
        for package in (cnn_numba.ops, cnn_numba.beyond, benchmarks.rungs)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    ]
    ours = [name for name in names if name.startswith("bench") or name.rpartition(".")[2].startswith("gpu")]
    return [importlib.import_module(name) for name in ours]


MODULES = gpu_modules()
KERNELS = [
    (module, name, getattr(kernel.py_func, "signature", None))
    for module in MODULES
    for name, kernel in kernels_in(module).items()
]


#: Some kernels are only for some GPUs: those with certain instructions, or those without.
CAPABILITIES = {"": CCS, ">= 8.0": CCS[1:], "< 8.0": CCS[:1]}


def capabilities(module, name):
    """Return the compute capabilities of the GPUs that a kernel is for."""
    return CAPABILITIES[kernels_in(module)[name].py_func.capability]


def allowed(module, name):
    """Return the allowances of a kernel, with their reasons."""
    return kernels_in(module)[name].py_func.allowed


def listed(module, name):
    """Return the capabilities for which a kernel's instructions are read: the oldest and the newest.

    Types, and float64 with them, are in the LLVM IR already, and that is made once for all.
    """
    ccs = capabilities(module, name)
    return ccs[0], ccs[-1]


def needed(module, name):
    """Return the capabilities that show whether a kernel needs its allowance."""
    found = {"spills": capabilities(module, name), "float64": listed(module, name)}
    return {cc for what in allowed(module, name) for cc in found[what]}


def stands_for_others(kernel):
    """Return whether an entry of KERNELS, among those from one function, is the one to compile.

    That is one whose instructions another test reads, else the last.
    """
    alike = [each for each in KERNELS if code(each) is code(kernel)]
    return kernel == next((each for each in alike if each[1] == READ_FOR_VECTORS), alike[-1])


#: See `test_tiles_that_vectors_are_read_from_begin_at_a_vector`.
READ_FOR_VECTORS = "matmul_large_kernel"


def code(kernel):
    """Return the code of a kernel's function, which those that one function makes share."""
    return kernels_in(kernel[0])[kernel[1]].py_func.__code__


@pytest.fixture(scope="module")
def results(request):
    """Return the result for each (module, name, signature, cc), all compiled at once, which is fastest.

    Compiled are the kernels of the chosen tests, and all with allowances: any GPU may need spills,
    float64 shows in the instructions.
    """
    chosen = [getattr(item, "callspec", None) for item in request.session.items if item.path == request.path]
    chosen = [each.params for each in chosen if each]
    asked = {(each["module"], each["name"], each["signature"], each["cc"]) for each in chosen if "cc" in each}
    keys = [
        (*kernel, cc)
        for kernel in KERNELS
        for cc in capabilities(*kernel[:2])
        if not asked or (*kernel, cc) in asked or cc in needed(*kernel[:2])
    ]
    jobs = [
        Job(kernels_in(module)[name], signature, capability(cc), listing="PTX" * (cc in listed(module, name)))
        for module, name, signature, cc in keys
    ]
    try:
        return dict(zip(keys, compile_jobs(jobs), strict=True))
    except NoCompiler as error:
        pytest.skip(str(error))


def float64(result):
    """Return the instructions with float64."""
    return [instruction for instruction in read_ptx(result["ptx"]) if instruction.kind == "FP64"]


def of_each_kernel(test):
    ids = [f"{module.__name__.split('.', 2)[2]}.{name}" for module, name, _ in KERNELS]
    return pytest.mark.parametrize(("module", "name", "signature"), KERNELS, ids=ids)(test)


@of_each_kernel
def test_a_kernel_has_a_signature(module, name, signature):
    assert signature, f"write @device.signature(...) below the @cuda.jit of {name}"
    assert kernels_in(module)[name].py_func.capability in CAPABILITIES


@of_each_kernel
def test_an_allowance_gives_its_reason(module, name, signature):
    assert set(allowed(module, name)) <= {"float64", "spills"}
    assert all(len(reason) > 20 for reason in allowed(module, name).values())


@pytest.mark.exhaustive_unless(
    lambda module, name, signature, cc: (
        module.__name__.startswith("cnn_numba.ops.")
        and cc == capabilities(module, name)[-1]
        and stands_for_others((module, name, signature))
    ),
    "the core's kernels for the newest compute capability; of the kernels that one function makes one",
)
@pytest.mark.slow
@of_each_kernel
@pytest.mark.parametrize("cc", CCS)
def test_a_kernel_compiles_without_spills_and_without_float64(module, name, signature, cc, results):
    if cc not in capabilities(module, name):
        return
    result = results[module, name, signature, cc]
    exceptions = allowed(module, name)
    assert result["registers"] > 0
    assert result["spill_stores"] == 0 or "spills" in exceptions, (
        f"{result['spill_stores']} bytes are spilled"
    )
    assert bool(result["ptx"]) == (cc in listed(module, name))
    assert not float64(result) or "float64" in exceptions, f"float64 in {float64(result)}"


@pytest.mark.skipif(not device.SELECTION.emulated, reason="there is no emulated GPU")
def test_kernels_can_be_kept_on_disk():
    """Without a fingerprint, for an intrinsic too, each process would compile a kernel again.

    The same holds for what the CPU's modules, which most programs import, register with Numba.
    """
    from gpuless.frontends.numba_cuda.fingerprints import fingerprint
    from gpuless.frontends.numba_cuda.registrations import fingerprints

    importlib.import_module("cnn_numba.ops.fused.cpu")
    assert fingerprints()
    prints = {fingerprint(kernels_in(module)[name]) for module, name, _ in KERNELS}
    assert len(prints) == len(KERNELS)


VECTORISED = [kernel for kernel in KERNELS if kernel[1] in (READ_FOR_VECTORS, "matmul_small_guarded_kernel")]


@pytest.mark.exhaustive_unless(
    lambda name: name == READ_FOR_VECTORS, "one of the kernels with the tiles that `product_engine` makes"
)
@pytest.mark.parametrize(("module", "name", "signature"), VECTORISED, ids=[name for _, name, _ in VECTORISED])
@pytest.mark.parametrize("cc", CCS[-1:])
def test_tiles_that_vectors_are_read_from_begin_at_a_vector(module, name, signature, cc, results):
    """This must not depend on the assembler: Numba aligns a shared array only to its elements."""
    found = results[module, name, signature, cc]["ptx"]
    assert re.findall(r"\.shared \.align (\d+)", found) == ["16"]


@of_each_kernel
def test_an_allowance_is_needed(module, name, signature, results):
    """An allowance that is no longer needed must be deleted from the signature."""
    mine = [result for key, result in results.items() if key[:2] == (module, name)]
    for what in allowed(module, name):
        assert any(float64(result) if what == "float64" else result["spill_stores"] for result in mine)


def test_shared_memory_is_the_same_on_each_architecture(results):
    """Print, with pytest's `-s`, a table of it, of registers and of spilled bytes."""
    print("\nregisters per thread (+ bytes spilled) by compute capability; bytes of shared memory per block")
    width = max(len(name) for _, name, _ in KERNELS)
    print("kernel".ljust(width), *(cc.rjust(7) for cc in (*CCS, "shared")))
    for kernel in KERNELS:
        mine = {cc: results[(*kernel, cc)] for cc in CCS if (*kernel, cc) in results}
        if not mine:
            continue
        shared = {result["shared"] for result in mine.values()}
        assert len(shared) == 1, kernel[1]
        spilled = {cc: result["spill_stores"] for cc, result in mine.items()}
        figures = {cc: f"{mine[cc]['registers']}" + (f"+{spilled[cc]}" if spilled[cc] else "") for cc in mine}
        columns = [figures.get(cc, "").rjust(7) for cc in CCS]
        print(kernel[1].ljust(width), *columns, f"{min(shared)}".rjust(7))
