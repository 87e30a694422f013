"""Compiled code of Numba on disk: found again, and never confused with other code."""

import io
import textwrap

import numpy as np
import pytest
from fresh_python import program_text

import gpuless

if not gpuless.select().emulated:
    pytest.skip("without the emulated GPU nothing is kept", allow_module_level=True)

from numba import cuda
from numba.core.errors import TypingError

from gpuless.emulator.run import cache
from gpuless.frontends.numba_cuda import fingerprints, overloads

pytestmark = pytest.mark.usefixtures("no_kernels")

SOURCE = program_text("what_a_kernel_reads.py")
#: The change, and the results of kernel and overloaded for 10.
CHANGES = {
    "nothing": ("", "", 72, 16),
    "a constant": ("float32(25)", "float32(36)", 73, 16),
    "a global": ("FACTOR = 3", "FACTOR = 4", 92, 16),
    "an array": ("1.0, 2.0", "1.0, 3.0", 73, 16),
    "a closure": ("make(1)", "make(2)", 73, 16),
    "a device function": ("x * 2", "x * 3", 102, 16),
    "what an intrinsic reads": ("WRITTEN = 4.0", "WRITTEN = 5.0", 73, 16),
    "an intrinsic": (", WRITTEN", ", WRITTEN + 2", 74, 16),
    "an overload": ("x + 6", "x + 7", 72, 17),
}


def program(source, path="ipykernel_1/5.py"):
    """Run a program; return its names."""
    names = {"__name__": "program"}
    exec(compile(textwrap.dedent(source), path, "exec"), names)
    return names


def result(kernel, dtype=np.float32):
    """Return a kernel's result for 10."""
    x = np.array([10], dtype)
    kernel[1, 1](x)
    return x[0]


def test_compiled_kernels_are_found_again(found):
    assert result(program(SOURCE)["kernel"]) == 72
    # In another process a notebook's cell has another path.
    assert result(program(SOURCE, "ipykernel_2/5.py")["kernel"]) == 72
    assert found == [False, True]


def test_changed_code_is_compiled_again(found):
    for old, new, first, second in CHANGES.values():
        # Overloads stay registered: each program has its own function to overload.
        names = program(SOURCE.replace(old, new) if old else SOURCE)
        assert (result(names["kernel"]), result(names["overloaded"])) == (first, second), new
    assert found[:2] == [False, False]


@pytest.mark.parametrize("change", [change for change in CHANGES if change != "nothing"])
def test_another_name_follows_from_a_change(change):
    old, new, *_ = CHANGES[change]
    names = [program(source) for source in (SOURCE, SOURCE.replace(old, new), SOURCE)]
    looked_at = "_replaced" if change == "an overload" else "kernel"
    made_of = [fingerprints.fingerprint(each[looked_at]) for each in names]
    assert made_of[0] == made_of[2]
    assert made_of[0] != made_of[1]


def test_the_versions_of_the_compilers_count(monkeypatch):
    before = overloads._versions()
    for library in (overloads.numba_cuda, overloads.numba, overloads.llvmlite, np):
        with monkeypatch.context() as changed:
            changed.setattr(library, "__version__", "another")
            assert overloads._versions() != before, library
    assert overloads._versions() == before


def test_types_and_options_count(found):
    source = "from numba import cuda\n@cuda.jit{}\ndef kernel(x):\n    x[0] = x[0] / 3\n"
    for options, dtype in [("", "f4"), ("", "f8"), ("(fastmath=True)", "f4"), ("(max_registers=32)", "f4")]:
        result(program(source.format(options))["kernel"], dtype)
    assert found == [False] * 4


def test_overloads_for_other_targets_do_not_count(found):
    overload = """
    import operator
    from numba import extending, types
    @extending.overload(operator.getitem, target="{}")
    def item(array, index): return (lambda array, index: 0) if isinstance(array, types.Opaque) else None
    """
    for target in ("", "cpu", "generic"):
        if target:
            program(overload.format(target))
        result(program(SOURCE)["kernel"])
    assert found == [False, True, False]


def test_the_form_of_an_overload_counts():
    source = """
    from numba import cuda
    from numba.cuda.extending import overload
    def replaced(x, n=1): pass
    @overload(replaced, strict={})
    def _replaced(x, **named): return lambda x, n=1: x + n
    @cuda.jit
    def kernel(x):
        x[0] = replaced(x[0], n=2)
    """
    assert result(program(source.format(False))["kernel"]) == 12
    with pytest.raises(TypingError, match="VAR_KEYWORD"):
        result(program(source.format(True))["kernel"])


@pytest.mark.parametrize(
    "value", ["object()", "__import__('textwrap')", "np.zeros(10**6)", "type('Own', (), {'a': 1})", "[set()]"]
)
def test_unknown_values_have_no_fingerprint(value):
    names = program(f"import numpy as np\nfrom numba import cuda\nown = {value}\n@cuda.jit\ndef f(x): own\n")
    with pytest.raises(fingerprints.Unknown):
        fingerprints.fingerprint(names["f"])


def test_functions_that_call_each_other_are_fingerprinted():
    source = """
    from numba import cuda
    @cuda.jit(device=True)
    def one(n): return other(n - 1) if n > 0 else 0
    @cuda.jit(device=True)
    def other(n): return one(n - 1) if n > 0 else 1
    """
    assert fingerprints.fingerprint(program(source)["one"]) == fingerprints.fingerprint(
        program(source)["one"]
    )


def test_a_kernel_with_arrays_of_the_gpu_is_not_kept(found):
    source = """
    import numpy as np
    from numba import cuda
    given = cuda.to_device(np.array([{}], np.float32))
    @cuda.jit
    def kernel(x):
        x[0] = given[0]
    """
    assert result(program(source.format(7))["kernel"]) == 7
    assert result(program(source.format(8))["kernel"]) == 8
    assert found == [False, False]


def test_a_damaged_file_is_compiled_again(found):
    result(program(SOURCE)["kernel"])
    for path in cache.folder().iterdir():
        path.write_bytes(path.read_bytes()[:-3])
    assert result(program(SOURCE)["kernel"]) == 72
    assert found == [False, False]


def test_a_kernel_from_disk_is_like_any_other():
    for _ in range(2):
        kernel = program(SOURCE)["kernel"]
        assert result(kernel) == 72
        (text,) = kernel.inspect_asm().values()
        assert ".visible .entry" in text
        assert min(kernel.get_regs_per_thread().values()) > 0
        assert kernel.nopython_signatures
        text = io.StringIO()
        kernel.inspect_types(text)
        assert "float32" in text.getvalue()
        assert result(cuda.jit(kernel.py_func)) == 72


def test_allocations_of_a_kernel_from_disk_are_counted(monkeypatch, found):
    """Numba connects its counters only with kernels that it has compiled itself."""
    from numba.cuda import config
    from numba.cuda.memory_management import rtsys

    monkeypatch.setattr(config, "CUDA_ENABLE_NRT", True)
    monkeypatch.setattr(config, "CUDA_NRT_STATS", True)
    source = """
        import numpy as np
        from numba import cuda

        @cuda.jit
        def kernel(x):
            x[0] = np.arange(int(x[0]))[2]
    """
    rtsys.memsys_enable_stats()
    for _ in range(2):
        before = rtsys.get_allocation_stats().alloc
        assert result(program(source)["kernel"]) == 2
        assert rtsys.get_allocation_stats().alloc == before + 1
    rtsys.memsys_disable_stats()
    assert found == [False, True]


def with_lines(kernel):
    """Return the PTX with lines of a kernel that was launched, and whether it was compiled for that."""
    from gpuless.frontends.numba_cuda import origins

    (launched,) = kernel.overloads.values()
    source, compiled = origins._known[launched._codelibrary], []
    real = origins._compile_with_lines
    try:
        origins._compile_with_lines = lambda *given: compiled.append(given) or real(*given)
        return source.with_lines(), bool(compiled)
    finally:
        origins._compile_with_lines = real


def test_lines_are_kept_with_the_places_of_the_source():
    first, again, moved = program(SOURCE), program(SOURCE), program("\n" + SOURCE)
    for each in (first, again, moved):
        result(each["kernel"])
    text, compiled = with_lines(first["kernel"])
    assert compiled
    assert ".loc" in text
    assert with_lines(again["kernel"]) == (text, False)
    other, compiled = with_lines(moved["kernel"])
    assert compiled
    assert other != text


def test_kernels_are_cached_when_numba_also_compiles_for_the_cpu():
    from numba import njit

    assert njit(lambda x: x.sum() + 1)(np.ones(3)) == 4  # with all of Numba's random numbers
    result(program(SOURCE)["kernel"])
    assert overloads.Overloads(program(SOURCE)["kernel"])._made_of((cuda.types.float32[::1],))
