"""Kernels on disk are keyed by all that they depend on: each of two programs has its own result."""

import dis
import itertools
import sys
import textwrap
import types
from pathlib import Path

import numpy as np
import pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("without the emulated GPU nothing is kept", allow_module_level=True)

from numba import cuda
from numba.cuda.utils import cached_file_read

from gpuless.emulator.run import cache
from gpuless.frontends.numba_cuda import fingerprints, overloads

pytestmark = pytest.mark.usefixtures("no_kernels")

#: In each program {} is the change; "kernel" takes an array of one float, 10, and the "arguments".
CASES = {
    "the fields of a named tuple": (
        """
        from collections import namedtuple
        P = namedtuple("P", "{}")
        arguments = P(first=1.0, second=2.0),
        @cuda.jit
        def kernel(x, p): x[0] = p.first
        """,
        [("first second", 1), ("second first", 1)],
    ),
    "the fields of a named tuple that a kernel makes": (
        """
        from collections import namedtuple
        P = namedtuple("P", "{}")
        @cuda.jit
        def kernel(x): x[0] = P(x[0], 2).first
        """,
        [("first second", 10), ("second first", 2)],
    ),
    "the members of an enum": (
        """
        import enum
        class E(enum.{}Enum):
            FIRST = {}
            SECOND = 7
        @cuda.jit
        def kernel(x): x[0] = E.FIRST.value
        """,
        [(("Int", 3), 3), (("Int", 4), 4), (("", 5), 5)],
    ),
    "the offsets and titles of a record": (
        """
        T = np.dtype({})
        arguments = np.array([(1, 2)], T),
        @cuda.jit
        def kernel(x, p): x[0] = p[0]["a"]
        """,
        [
            ("[('a', 'f4'), ('b', 'f4')]", 1),
            ("{'names': ['a', 'b'], 'formats': ['f4', 'f4'], 'offsets': [4, 0]}", 1),
            ("[(('b', 'a'), 'f4'), (('d', 'c'), 'f4')]", 1),
            ("[(('c', 'b'), 'f4'), (('d', 'a'), 'f4')]", 2),
        ],
    ),
    "the default of an argument": (
        """
        @cuda.jit(device=True)
        def helper(x, n={}): return x + n
        @cuda.jit
        def kernel(x): x[0] = helper(x[0])
        """,
        [(1, 11), (2, 12)],
    ),
    "the signatures of a device function": (
        """
        @cuda.jit("{}", device=True)
        def helper(x): return x / 4
        @cuda.jit
        def kernel(x): x[0] = helper(x[0])
        """,
        [("float32(float32)", 2.5), ("int32(float32)", 2), ("float32(int32)", 2.5)],
    ),
    "what is read of a module": (
        """
        import types as python
        own = python.ModuleType("own")
        own.unknown, own.FACTOR = object(), {}
        own.helper = cuda.jit(device=True)(lambda x: x * own.FACTOR)
        @cuda.jit
        def kernel(x): x[0] = own.helper(x[0]) + own.FACTOR
        """,
        [(2, 22), (3, 33)],
    ),
    "the order of an array": (
        """
        T = np.array([[1, 2], [3, 4]], np.float32, order="{}")
        @cuda.jit
        def kernel(x): x[0] = T.strides[0]
        """,
        [("C", 8), ("F", 4)],
    ),
    "the literal that an argument must be": (
        """
        from numba.cuda.extending import overload
        from numba.cuda.misc.special import literally
        def known(n): pass
        @overload(known, prefer_literal=True)
        def _known(n):
            if isinstance(n, types.Literal):
                value = n.literal_value + {}
                return lambda n: value
            return lambda n: literally(n)
        @cuda.jit
        def kernel(x): x[0] = known(3)
        """,
        [(1, 4), (2, 5)],
    ),
    "a lowering": (
        """
        def scale(x): pass
        @decl.register_global(scale)
        class S(ConcreteTemplate):
            cases = [signature(types.float32, types.float32)]
        @impl.lower(scale, types.float32)
        def lowered(context, builder, sig, args):
            return builder.fmul(args[0], args[0].type({}))
        @cuda.jit
        def kernel(x): x[0] = scale(x[0])
        """,
        [(2, 20), (3, 30)],
    ),
    "what a lowering reads": (
        """
        N = {}
        def scale(x): pass
        @decl.register_global(scale)
        class S(ConcreteTemplate):
            cases = [signature(types.float32, types.float32)]
        def make(n):
            def lowered(context, builder, sig, args):
                return builder.fadd(builder.fmul(args[0], args[0].type(N)), args[0].type(n))
            return lowered
        impl.lower(scale, types.float32)(make({}))
        @cuda.jit
        def kernel(x): x[0] = scale(x[0])
        """,
        [((2, 0), 20), ((3, 0), 30), ((3, 1), 31)],
    ),
    "a lowering under the name of a library's function, made with one of Numba's": (
        """
        import functools
        def scale(x): pass
        @decl.register_global(scale)
        class S(ConcreteTemplate):
            cases = [signature(types.float32, types.float32)]
        def make(signature):
            @functools.wraps(np.sum)
            def lowered(context, builder, sig, args):
                assert signature
                return builder.fmul(args[0], args[0].type({}))
            return lowered
        impl.lower(scale, types.float32)(make(signature))
        @cuda.jit
        def kernel(x): x[0] = scale(x[0])
        """,
        [(2, 20), (3, 30)],
    ),
    "an intrinsic of numba's own": (
        """
        from numba.extending import intrinsic
        @intrinsic
        def scale(typingctx, x):
            def lowered(context, builder, sig, args): return builder.fmul(args[0], args[0].type({}))
            return signature(x, x), lowered
        @cuda.jit
        def kernel(x): x[0] = scale(x[0])
        """,
        [(2, 20), (3, 30)],
    ),
    "the types of a function": (
        """
        from numba.cuda.extending import lower_builtin, type_callable
        def cut(x): pass
        @type_callable(cut)
        def type_cut(context):
            return lambda x: types.{}
        @lower_builtin(cut, types.float32)
        def lowered(context, builder, sig, args):
            return context.cast(builder, args[0], types.float32, sig.return_type)
        @cuda.jit
        def kernel(x): x[0] = cut(np.float32(x[0] / 4))
        """,
        [("int32", 2), ("float32", 2.5)],
    ),
    "an attribute": (
        """
        from numba.cuda.extending import overload_attribute
        @overload_attribute(types.Array, "{}")
        def attribute(array): return lambda array: {}
        @cuda.jit
        def kernel(x): x[0] = x.{}
        """,
        [(("one", 3, "one"), 3), (("two", 4, "two"), 4)],
    ),
    "a method": (
        """
        from numba.cuda.extending import overload_method
        @overload_method(types.Array, "plus_{}")
        def method(array, n): return lambda array, n: array[0] + n * {}
        @cuda.jit
        def kernel(x): x[0] = x.plus_{}(3)
        """,
        [(("a", 1, "a"), 13), (("b", 2, "b"), 16)],
    ),
    "a function that may be compiled": (
        """
        from numba.cuda.extending import register_jitable
        @register_jitable
        def helper(x): return x + {}
        @cuda.jit
        def kernel(x): x[0] = helper(x[0])
        """,
        [(1, 11), (2, 12)],
    ),
    "a type of the program's": (
        """
        from numba.cuda import cgutils
        from numba.cuda.extending import lower_builtin, make_attribute_wrapper, register_model, type_callable
        from numba.cuda.extending import core_models
        class Pair(types.Type):
            def __init__(self): super().__init__("Pair")
        @register_model(Pair)
        class PairModel(core_models.StructModel):
            def __init__(self, manager, kind):
                super().__init__(manager, kind, [("first", types.{}), ("second", types.float32)])
        make_attribute_wrapper(Pair, "first", "first")
        def pair(x, y): pass
        @type_callable(pair)
        def type_pair(context):
            return lambda x, y: Pair()
        @lower_builtin(pair, types.float32, types.float32)
        def lowered(context, builder, sig, args):
            made = cgutils.create_struct_proxy(sig.return_type)(context, builder)
            made.first = context.cast(builder, args[0], types.float32, types.{})
            made.second = args[1]
            return made._getvalue()
        @cuda.jit
        def kernel(x): x[0] = pair(np.float32(x[0] / 4), x[0]).first
        """,
        [(("int32", "int32"), 2), (("float32", "float32"), 2.5)],
    ),
}
COMMON = """
import numpy as np
from numba import cuda
from numba.cuda import types
from numba.cuda.cudadecl import registry as decl
from numba.cuda.cudaimpl import registry as impl
from numba.cuda.typing.templates import ConcreteTemplate, signature
arguments = ()
"""


@pytest.fixture
def program(monkeypatch):
    """Return a function that runs a program as a module, and returns the module."""

    def run(source):
        module = types.ModuleType("program")
        monkeypatch.setitem(sys.modules, "program", module)
        exec(compile(COMMON + textwrap.dedent(source), "program.py", "exec"), vars(module))
        return module

    return run


def result(module):
    x = np.array([10], np.float32)
    module.kernel[1, 1](x, *module.arguments)
    return x[0]


def filled(source, changed):
    for each in changed if isinstance(changed, tuple) else (changed,):
        source = source.replace("{}", str(each), 1)
    return source


@pytest.mark.parametrize("name", CASES)
def test_each_program_gets_its_own_kernel(name, program):
    source, changes = CASES[name]
    for changed, wanted in changes:
        assert result(program(filled(source, changed))) == wanted, changed


@pytest.mark.parametrize("name", CASES)
def test_the_same_program_gets_its_kernel_from_disk(name, program, found):
    source, ((changed, wanted), *_) = CASES[name]
    assert [result(program(filled(source, changed))) for _ in range(2)] == [wanted, wanted]
    assert found[-1]


@pytest.mark.parametrize("package", ["numba", "numba.cuda"])
def test_an_intrinsic_counts_only_for_its_callers(package, program, found):
    """For another kernel it needs no fingerprint at all: modules have many intrinsics for the CPU."""
    source = """
    from PACKAGE.extending import intrinsic
    unknown = object()
    @intrinsic
    def one(typingctx, x):
        return signature(x, x), lambda context, builder, sig, args: unknown and args[0]
    @cuda.jit
    def kernel(x): x[0] = CALLED(x[0]) + 2
    """.replace("PACKAGE", package)
    made = [result(program(source.replace("CALLED", called))) for called in ("one", "one", "abs", "abs")]
    assert made == [12] * 4
    assert found == [False, False, False, True]


FROZEN = """
FACTOR = 3
@cuda.jit("float32(float32)", device=True)
def eager(x): return x * FACTOR
@cuda.jit(device=True)
def helper(x): return x * FACTOR
@cuda.jit
def first(x): x[0] = helper(x[0])
FACTOR = {}
@cuda.jit
def kernel(x): x[0] = {}(x[0])
"""


@pytest.mark.parametrize("called", ["eager", "helper"])
def test_a_function_keeps_the_globals_of_its_compilation(called, program):
    """Numba compiles it once: a process with other globals must not use a kernel of this process."""
    module = program(filled(FROZEN, (3, called)))
    module.first[1, 1](np.ones(1, np.float32))
    module.FACTOR = 4
    assert result(module) == 30
    module = program(filled(FROZEN, (4, called)).replace("FACTOR = 3", "FACTOR = 4"))
    assert result(module) == 40


def test_globals_of_a_lowering_are_read_each_time(program, found):
    source = filled(CASES["what a lowering reads"][0], (2, 0))
    module = program(source)
    assert result(module) == 20
    module.N = 3
    module.kernel = cuda.jit(module.kernel.py_func)
    assert result(module) == 30
    assert found == [False, False]


def test_an_overload_keeps_its_globals_when_the_kernel_is_not_cached(program, found):
    source = """
    from numba.cuda.extending import overload
    FACTOR = {}
    def scale(x): pass
    @overload(scale)
    def _scale(x): return lambda x: x * FACTOR
    given = cuda.to_device(np.zeros(20, np.float32))
    @cuda.jit
    def first(x): x[0] = scale(x[0]) + given[0]
    @cuda.jit
    def kernel(x): x[0] = scale(x[0])
    """
    module = program(filled(source, 3))
    module.first[1, 1](np.ones(1, np.float32))
    module.FACTOR = 4
    assert result(module) == 30
    assert result(program(filled(source, 4))) == 40


@pytest.mark.parametrize(
    "read",
    [
        "eval('N')",
        "builtins.eval('N')",
        "globals()['N']",
        "__import__('program').N",
        "(lambda: [N, set()])()[0]",
    ],
)
def test_a_lowering_with_unseen_reads_prevents_caching(read, program, found):
    source = textwrap.dedent(CASES["what a lowering reads"][0]).replace("type(N)", f"type({read})")
    source = f"import builtins\n{source}"
    for _ in range(2):
        assert result(program(filled(source, (2, 0)))) == 20
    module = program(filled(source, (3, 0)))
    module.other = set()
    assert result(module) == 30


def test_a_method_of_an_object_prevents_caching(program, found):
    source = """
    def scale(x): pass
    @decl.register_global(scale)
    class S(ConcreteTemplate):
        cases = [signature(types.float32, types.float32)]
    class Lowering:
        __slots__ = ()
        def lowered(self, context, builder, sig, args):
            return builder.fmul(args[0], args[0].type({}))
    impl.lower(scale, types.float32)(Lowering().lowered)
    @cuda.jit
    def kernel(x): x[0] = scale(x[0])
    """
    assert [result(program(filled(source, n))) for n in (2, 3)] == [20, 30]
    assert not any(found)


def test_an_unreadable_value_stops_no_kernel(program, found):
    source = CASES["what a lowering reads"][0].replace(
        "def make", "ring = []\n        ring.append(ring)\n        def make"
    )
    source = source.replace("type(n))", "type(n + 0 * len(ring)))")
    assert [result(program(filled(source, (n, 0)))) for n in (2, 3)] == [20, 30]
    assert not any(found)


def test_a_lowering_with_an_import_prevents_caching(program):
    source = textwrap.dedent(CASES["a lowering"][0]).replace("{}", "N")
    source = "N = {}" + source.replace("    return b", "    from program import N\n    return b")
    assert [result(program(filled(source, n))) for n in (2, 3)] == [20, 30]


def test_a_linked_file_counts(program, tmp_path):
    path = tmp_path / "linked.ptx"
    source = f"""
    linked = cuda.declare_device("linked", "float32(float32)")
    @cuda.jit(link=["{path}"])
    def kernel(x): x[0] = linked(x[0])
    """
    for number, wanted in (("0f40000000", 20), ("0f40400000", 30)):
        cached_file_read.cache_clear()  # as in another process
        path.write_text(f"""
        .version 7.5
        .target sm_75
        .address_size 64
        .visible .func (.param .b32 status) linked(.param .b64 result, .param .b32 x) {{
            .reg .f32 %f<3>; .reg .b64 %rd<2>; .reg .b32 %r<2>;
            ld.param.u64 %rd1, [result]; ld.param.f32 %f1, [x];
            mul.f32 %f2, %f1, {number}; st.f32 [%rd1], %f2;
            mov.u32 %r1, 0; st.param.b32 [status], %r1; ret;
        }}""")
        assert result(program(source)) == wanted


def test_the_flags_of_numba_count(monkeypatch):
    before = overloads._versions()
    for name in (
        "OPT",
        "CUDA_DEBUGINFO_DEFAULT",
        "CUDA_ENABLE_NRT",
        "BOUNDSCHECK",
        "CUDA_USE_NVIDIA_BINDING",
    ):
        with monkeypatch.context() as changed:
            changed.setattr(overloads.config, name, "another", raising=False)
            assert overloads._versions() != before, name
    assert overloads._versions() == before


def test_another_compiler_of_the_same_version_counts(monkeypatch, tmp_path):
    library = tmp_path / "libnvvm.so"
    library.write_bytes(b"one")
    monkeypatch.setattr(overloads.cudadrv.libs, "get_cudalib", lambda name: str(library))
    before = overloads._versions()
    library.write_bytes(b"two")
    assert overloads._versions() != before


def test_the_whole_emulator_and_its_frontends_count(monkeypatch, tmp_path):
    package = Path(gpuless.__file__).parent
    files = [path for name in ("emulator", "frontends") for path in sorted((package / name).rglob("*.py"))]
    copies = [tmp_path / path.relative_to(package) for path in files]
    for path, copy in zip(files, copies, strict=True):
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    before = cache._sources.__wrapped__()
    monkeypatch.setattr(cache, "_FOLDERS", [tmp_path / place.name for place in cache._FOLDERS])
    assert cache._sources.__wrapped__() == before
    for copy in copies:
        copy.write_bytes(copy.read_bytes() + b"#")
        changed = cache._sources.__wrapped__()
        assert changed != before, copy
        before = changed


def test_reads_of_globals_match_dis():
    functions = [
        value
        for module in (np, np.linalg, dis, textwrap, types, itertools, pytest, fingerprints, overloads)
        for value in vars(module).values()
        if isinstance(value, types.FunctionType)
    ]
    assert len(functions) > 100
    assert max(len(function.__code__.co_names) for function in functions) > 20
    for function in functions:
        steps = [step for step in dis.get_instructions(function) if step.opname != "EXTENDED_ARG"]
        reads = {
            (step.argval, after.argval if after.opname in ("LOAD_ATTR", "LOAD_METHOD") else None)
            for step, after in itertools.pairwise(steps)
            if step.opname == "LOAD_GLOBAL"
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fingerprints, "_IMPORT", -1)
            plain = function.__code__.replace(
                co_consts=tuple(
                    None if isinstance(each, types.CodeType) else each for each in function.__code__.co_consts
                )
            )
            assert fingerprints._reads_of(plain) == reads, function
