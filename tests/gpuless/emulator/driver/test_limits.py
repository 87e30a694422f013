"""Limits of a GPU, its compiler and its driver: sizes, and flags of what programs create."""

import json

import pytest
from driver_programs import pytestmark, run  # noqa: F401

from gpuless.emulator import ptx
from gpuless.emulator.analysis import assembler

HEAD = ".version {version}\n.target sm_80\n.address_size 64\n"


def refused(body="", parameters="", before="", version="8.1"):
    """Return the errors of the assembler for a kernel `f`."""
    text = HEAD.format(version=version) + f"{before}\n.visible .entry f({parameters}) {{ {body} ret; }}"
    return list(assembler.refusals(ptx.parse(text)))


@pytest.mark.parametrize(
    ("most", "what", "write"),
    [
        (65536, "global constant data", lambda n: {"before": f".const .align 8 .b8 a[{n}];"}),
        (
            65536,
            "global constant data",
            lambda n: {"before": f".const .b8 a[60000]; .const .b8 b[{n - 60000}];"},
        ),
        (49152, "shared data", lambda n: {"body": f".shared .align 4 .b8 s[{n}];"}),
        (32764, "parameter space", lambda n: {"parameters": f".param .align 4 .b8 p[{n}]"}),
        (4352, "parameter space", lambda n: {"parameters": f".param .b8 p[{n}]", "version": "8.0"}),
    ],
    ids=["constants", "two constants", "shared", "parameters", "parameters before 8.1"],
)
def test_the_assembler_counts_bytes(most, what, write):
    """The limits and the messages are those of ptxas 13.2."""
    assert refused(**write(most)) == []
    (reason,) = refused(**write(most + 1))
    assert reason.endswith(f" uses too much {what} ({most + 1} bytes, {most} max)")


def test_shared_memory_counts_if_a_kernel_names_it():
    body, both = ".reg .b32 %r<2>; st.shared.u32 [one], %r1;", " st.shared.u32 [two+4], %r1;"
    before = ".shared .align 4 .b8 one[30000]; .shared .align 4 .b8 two[30000];"
    assert refused(body, before=before) == []
    assert "60000 bytes" in refused(body + both, before=before)[0]
    function = f".visible .func g() {{ .reg .b32 %r<2>; {both} ret; }}"
    assert "60000 bytes" in refused(body + " call g;", before=before + function)[0]


@pytest.mark.parametrize(
    ("instruction", "words"),
    [
        ("bar.sync 16;", "Barrier number '16' out of range, expected to be in range [0..15]"),
        ("barrier.arrive.aligned 17, 64;", "Barrier number '17' out of range"),
        ("bar.red.popc.u32 %r1, 16, %p1;", "Barrier number '16' out of range"),
        ("bar.sync 1, 33;", "Number of threads participating in barrier must be in multiple of warp size"),
        ("bar.red.popc.u32 %r1, 1, 40, %p1;", "Number of threads participating"),
        ("bar.sync 15, 64; bar.sync %r1; bar.warp.sync 33; barrier.cluster.arrive;", ""),
        ("bar.red.popc.u32 %r1, 15, %p1; bar.arrive %r1, 64;", ""),
    ],
)
def test_the_assembler_counts_barriers(instruction, words):
    reasons = refused(".reg .b32 %r<2>; .reg .pred %p<2>; " + instruction)
    assert reasons[0].startswith(words) if words else not reasons


def test_local_memory_covers_the_deepest_calls():
    def function(name, size, calls=""):
        return f".func {name}() {{ .local .align 4 .b8 l[{size}]; {calls} ret; }}\n"

    text = HEAD.format(version="8.1") + function("g", 1000) + function("h", 200, "call g;")
    text += function("i", 400, "call i; call h;") + ".visible .entry f() { call g; call h; call i; ret; }"
    source = ptx.parse(text)
    assert assembler.local_size(source, source.functions["f"]) == 400 + 200 + 1000


def test_code_that_cannot_be_assembled_is_not_loaded_or_launched():
    out = run("code_that_cannot_be_assembled_is_not_loaded_or_launched.py")
    constants = "File uses too much global constant data (65544 bytes, 65536 max)"
    assert out == [
        f"CUDA_ERROR_INVALID_PTX: ptxas: {constants}",
        "[5.]",
        f"CUDA_ERROR_INVALID_PTX: ptxas: {constants}",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: a thread needs 524289 bytes of local memory, "
        "and a GPU has 524288",
        "CUDA_ERROR_INVALID_PTX ptxas: File uses too much global constant data (70000 bytes, 65536 max)",
    ]


def test_limits_of_blocks_and_grids():
    """Nothing beyond them; a kernel may require one block size."""
    run("limits_of_blocks_and_grids.py")


def test_shared_memory_is_48_kb_unless_more_is_requested():
    out = run(
        "shared_memory_is_48_kb_unless_more_is_requested.py",
        GPULESS_COMPUTE_CAPABILITY="7.5",
    )
    assert out == [f"{64 << 10} {(48 << 10) - 1000} SUCCESS ERROR_INVALID_VALUE"]


def test_an_event_without_timing_measures_none():
    out = run("an_event_without_timing_measures_none.py")
    assert out == ["True", "True", "True", "0.0"]


# The call, the flags that work, those that are invalid, and those that are not supported.
FLAGS = {
    "cu.cuInit({})": ([0], [1], []),
    "cu.cuDevicePrimaryCtxSetFlags(0, {})": ([0, 1, 2, 4, 8, 0xF8], [3, 7, 256], []),
    "cu.cuCtxCreate(None, {}, 0)": ([0, 1, 2, 4, 8 | 16], [5, 1 << 8], []),
    "cu.cuStreamCreate({})": ([0, 1], [2, 3, 4], []),
    "cu.cuStreamCreateWithPriority({}, -1)": ([0, 1], [2], []),
    "cu.cuStreamWaitEvent(stream, event, {})": ([0], [1, 2], []),
    "cu.cuStreamAddCallback(stream, callback, 0, {})": ([0], [1], []),
    "cu.cuStreamAttachMemAsync(stream, managed, 0, {})": ([1, 2, 4], [0, 3, 8], []),
    "captured(cu.cuStreamBeginCapture(other, {}))": ([0, 1, 2], [3, -1], []),
    "cu.cuThreadExchangeStreamCaptureMode({})": ([2, 1, 0], [3], []),
    "cu.cuEventCreate({})": ([0, 1, 2, 3, 6, 7], [4, 5, 8, 1 << 31], []),
    "cu.cuEventRecordWithFlags(event, stream, {})": ([0], [1, 2], []),
    "cu.cuMemAllocManaged(100, {})": ([1, 2], [0, 3, 4, 8], []),
    "cu.cuMemHostAlloc(100, {})": ([0, 1, 2, 4, 7], [8, 16], []),
    "registered(cu.cuMemHostRegister(array.ctypes.data, 100, {}))": ([0, 1, 8, 9], [16], [2, 4]),
    "cu.cuMemHostGetDevicePointer(pinned, {})": ([0], [1], []),
    "cu.cuMemAllocPitch(100, 10, {})": ([4, 8, 16], [0, 1, 32], []),
    "cu.cuMemAdvise(managed, 100, {}, location)": ([1, 6], [0, 7], []),
    "set_pointer({})": ([6], [1, 7], []),
    "cu.cuMemPoolCreate(pool(allocType={}))": ([1], [0, 3], [2]),
    "cu.cuMemPoolCreate(pool(handleTypes={}))": ([0], [], [1, 8]),
    "cu.cuMemPoolCreate(pool(place={}))": ([1], [0, 7], [2, 3]),
    "cu.cuMemPoolGetAttribute(own_pool, attribute({}))": ([1, 8], [], []),
    "cu.cuGraphCreate({})": ([0], [1], []),
    "cu.cuGraphInstantiate(graph, {})": ([0, 1, 8, 9], [2, 16], [4]),
    "with_parameters({})": ([0, 1, 2, 8, 11], [16], [4]),
    "cu.cuGraphDebugDotPrint(graph, os.devnull.encode(), {})": ([0, 1, 1 << 17], [1 << 18], []),
    "cu.cuUserObjectCreate(0, callback, 1, {})": ([1], [0, 2], []),
    "cu.cuGraphRetainUserObject(graph, object, 1, {})": ([0, 1], [2], []),
    "cu.cuFuncSetCacheConfig(kernel, {})": ([0, 3], [], []),
    "cu.cuFuncSetAttribute(kernel, number(9), {})": ([-1, 0, 100], [-2, 101], []),
    "cu.cuFuncSetAttribute(kernel, number({}), 0)": ([8, 9, 14], [0, 1, 4, 16], []),
    "cu.cuFuncSetAttribute(kernel, number(11), {})": ([0, 1], [-1], [2]),
    "cu.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(kernel, 32, 0, {})": ([0, 1], [2], []),
    "load(cu.CUjit_option.CU_JIT_OPTIMIZATION_LEVEL, {})": ([0, 4], [5], []),
    "load(cu.CUjit_option.CU_JIT_LTO, {})": ([0], [], [1]),
    "link({})": ([0, 4], [5], []),
    "cu.cuCtxSetLimit(cu.CUlimit.CU_LIMIT_STACK_SIZE, {})": ([1024, 1 << 19], [(1 << 19) + 1], []),
}


def test_unknown_flags_are_rejected():
    """For all objects of the driver: known flags work or are not supported, others are invalid."""
    run(
        "unknown_flags_are_rejected.py",
        FLAGS=json.dumps(FLAGS),
    )


def test_queries_return_what_was_set():
    run("queries_return_what_was_set.py")


def test_a_pool_stays_within_its_limit():
    run("a_pool_stays_within_its_limit.py")


def test_compiler_options_apply_to_kernels_without_directives():
    run("compiler_options_apply_to_kernels_without_directives.py")
