"""What a GPU, its compiler and its driver refuse: sizes, and flags of what programs create."""

import pytest
from test_emulator_driver import pytestmark, run  # noqa: F401

from gpuless.emulator import ptx
from gpuless.emulator.analysis import assembler

HEAD = ".version {version}\n.target sm_80\n.address_size 64\n"


def refused(body="", parameters="", before="", version="8.1"):
    """Return what the assembler says of a kernel `f`."""
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
    """The limits, and the words, are those of ptxas 13.2."""
    assert refused(**write(most)) == []
    (reason,) = refused(**write(most + 1))
    assert reason.endswith(f" uses too much {what} ({most + 1} bytes, {most} max)")


def test_shared_memory_counts_where_a_kernel_names_it():
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


def test_local_memory_is_that_of_the_deepest_calls():
    def function(name, size, calls=""):
        return f".func {name}() {{ .local .align 4 .b8 l[{size}]; {calls} ret; }}\n"

    text = HEAD.format(version="8.1") + function("g", 1000) + function("h", 200, "call g;")
    text += function("i", 400, "call i; call h;") + ".visible .entry f() { call g; call h; call i; ret; }"
    source = ptx.parse(text)
    assert assembler.local_size(source, source.functions["f"]) == 400 + 200 + 1000


def test_what_is_not_assembled_is_neither_loaded_nor_launched():
    out = run(
        """
        big = np.ones(100_000)
        @cuda.jit
        def constants(out, i):
            out[0] = big[i]
        @cuda.jit
        def local(out, i):
            a = cuda.local.array(size, np.int8)
            for j in range(a.size):
                a[j] = j
            out[0] = a[i]
        x = cuda.to_device(np.zeros(1))
        for size in (524_288, 524_289):
            for kernel in (constants, local):
                try:
                    cuda.jit(kernel.py_func)[1, 1](x, 5)
                    print(x.copy_to_host())
                except Exception as error:
                    print(str(error))
        # A log tells of it too.
        text = b".version 8.1\\n.target sm_80\\n.address_size 64\\n.const .b8 c[70000];"
        option, log = cu.CUjit_option, bytearray(200)
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        print(cu.cuModuleLoadDataEx(text, 2, options, [log, len(log)])[0].name, log.rstrip(b"\\0").decode())
        """
    )
    constants = "File uses too much global constant data (800000 bytes, 65536 max)"
    assert out == [
        f"CUDA_ERROR_INVALID_PTX: ptxas: {constants}",
        "[5.]",
        f"CUDA_ERROR_INVALID_PTX: ptxas: {constants}",
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: a thread needs 524289 bytes of local memory, "
        "and a GPU has 524288",
        "CUDA_ERROR_INVALID_PTX ptxas: File uses too much global constant data (70000 bytes, 65536 max)",
    ]


def test_blocks_and_grids_that_a_gpu_has():
    """And none beyond; a kernel may want blocks of one size only."""
    run(
        """
        text = b".version 8.1\\n.target sm_80\\n.address_size 64\\n.visible .entry f() BOUNDS { ret; }"
        def launch(grid, block, bounds=b""):
            module = check(cu.cuModuleLoadData(text.replace(b"BOUNDS", bounds)))
            kernel = check(cu.cuModuleGetFunction(module, b"f"))
            return cu.cuLaunchKernel(kernel, *grid, *block, 0, 0, 0, 0)[0].name.removeprefix("CUDA_")
        one = 1, 1, 1
        for block in ((1024, 1, 1), (1, 1024, 1), (1, 1, 64), (2, 8, 64)):
            assert launch(one, block) == "SUCCESS"
        for block in ((1025, 1, 1), (1, 1025, 1), (1, 1, 65), (2, 9, 64), (0, 1, 1), (1, 0, 1), (1, 1, 0)):
            assert launch(one, block) == "ERROR_INVALID_VALUE", block
        for grid in ((65536, 1, 1), (1, 65535, 1), (1, 1, 65535)):
            assert launch(grid, one) == "SUCCESS"
        for grid in ((1 << 31, 1, 1), (1, 65536, 1), (1, 1, 65536), (0, 1, 1), (1, 0, 1), (1, 1, 0)):
            assert launch(grid, one) == "ERROR_INVALID_VALUE", grid
        assert launch(one, (8, 8, 1), b".maxntid 64, 1, 1") == "SUCCESS"
        assert launch(one, (65, 1, 1), b".maxntid 64, 1, 1") == "ERROR_INVALID_VALUE"
        assert launch(one, (8, 8, 1), b".reqntid 8, 8") == "SUCCESS"
        for block in ((64, 1, 1), (8, 4, 1)):
            assert launch(one, block, b".reqntid 8, 8, 1") == "ERROR_INVALID_VALUE"
        """
    )


def test_shared_memory_is_48_kb_until_more_is_asked_for():
    out = run(
        """
        text = b".version 8.1\\n.target sm_75\\n.address_size 64\\n"
        text += b".visible .entry f() { .shared .b8 s[1000]; ret; }"
        kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
        dynamic = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        optin = cu.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        most = check(cu.cuDeviceGetAttribute(optin, 0))
        def launch(size):
            return cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, size, 0, 0, 0)[0].name.removeprefix("CUDA_")
        def answer():
            limit = check(cu.cuFuncGetAttribute(dynamic, kernel))
            return limit, launch(limit), launch(limit + 1)
        print(most, *answer())
        for size in (60_000, most - 1000, 100, 0):
            check(cu.cuFuncSetAttribute(kernel, dynamic, size))
            assert answer() == (size, "SUCCESS", "ERROR_INVALID_VALUE")
        for size in (most - 999, -1):
            assert cu.cuFuncSetAttribute(kernel, dynamic, size)[0].name == "CUDA_ERROR_INVALID_VALUE"
            assert answer()[0] == 0
        # As many blocks fit on a multiprocessor as its shared memory has room for.
        none = text.replace(b".shared .b8 s[1000];", b"")
        none = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(none)), b"f"))
        for function, size, blocks in ((none, 0, 16), (none, most // 4, 4), (kernel, most // 4, 3)):
            assert check(cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 64, size)) == blocks
        """,
        GPULESS_COMPUTE_CAPABILITY="7.5",
    )
    assert out == [f"{64 << 10} {(48 << 10) - 1000} SUCCESS ERROR_INVALID_VALUE"]


def test_an_event_without_timing_measures_none():
    out = run(
        """
        with_time, without = cuda.event(), cuda.event(timing=False)
        for event in (with_time, without):
            event.record()
        without.synchronize()
        for pair in ((with_time, without), (without, with_time), (without, without)):
            try:
                cuda.event_elapsed_time(*pair)
            except Exception as error:
                print("CUDA_ERROR_INVALID_HANDLE" in str(error))
        print(cuda.event_elapsed_time(with_time, with_time))
        """
    )
    assert out == ["True", "True", "True", "0.0"]


# What is called, with which flags it works, with which it is invalid, and with which not supported.
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


def test_flags_are_known_or_refused():
    """Whatever the driver creates: flags that are known work or are not supported, and others are invalid."""
    run(
        f"""
        import os
        stream, other = check(cu.cuStreamCreate(0)), check(cu.cuStreamCreate(1))
        event = check(cu.cuEventCreate(0))
        managed, pinned = check(cu.cuMemAllocManaged(100, 1)), check(cu.cuMemHostAlloc(100, 0))
        array, graph, location = np.zeros(100), check(cu.cuGraphCreate(0)), cu.CUmemLocation()
        own_pool = check(cu.cuDeviceGetDefaultMemPool(0))
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
        callback = cu.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value)
        object = check(cu.cuUserObjectCreate(0, callback, 9, 1))
        text = b".version 8.1\\n.target sm_80\\n.address_size 64\\n.visible .entry f() {{ ret; }}"
        kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
        class number(int):
            value = property(int)
        attribute = cu.CUmemPool_attribute
        def captured(answer):
            answer[0] or check(cu.cuStreamEndCapture(other))
            return answer
        def registered(answer):
            answer[0] or check(cu.cuMemHostUnregister(array.ctypes.data))
            return answer
        def pool(allocType=1, handleTypes=0, place=1):
            properties = cu.CUmemPoolProps()
            address = properties.getPtr()
            for i, value in enumerate((allocType, handleTypes, place)):
                ctypes.c_int.from_address(address + 4 * i).value = value
            return properties
        def with_parameters(flags):
            parameters = cu.CUDA_GRAPH_INSTANTIATE_PARAMS()
            parameters.flags = flags
            answer = cu.cuGraphInstantiateWithParams(graph, parameters)
            if not answer[0]:
                assert int(check(cu.cuGraphExecGetFlags(answer[1]))) == flags
            return answer
        def set_pointer(attribute):
            given = ctypes.byref(ctypes.c_int(1)), attribute, ctypes.c_uint64(int(managed))
            return [cu.CUresult(ctypes.CDLL(None).cuPointerSetAttribute(*given))]
        def load(option, value):
            return cu.cuModuleLoadDataEx(text, 1, [option], [value])
        def link(level):
            return cu.cuLinkCreate(1, [cu.CUjit_option.CU_JIT_OPTIMIZATION_LEVEL], [level])
        for call, groups in {FLAGS!r}.items():
            for wanted, flags in zip(("SUCCESS", "ERROR_INVALID_VALUE", "ERROR_NOT_SUPPORTED"), groups):
                for each in flags:
                    code = eval(call.format(each))[0].name
                    assert code == "CUDA_" + wanted, (call.format(each), code)
        """
    )


def test_what_was_given_is_what_is_asked_for():
    run(
        """
        def code(answer):
            return answer[0].name.removeprefix("CUDA_ERROR_")
        for flags in (0, 1):
            assert check(cu.cuStreamGetFlags(check(cu.cuStreamCreate(flags)))) == flags
        # A priority beyond the range is the nearest in it.
        least, greatest = check(cu.cuCtxGetStreamPriorityRange())
        for given, found in ((least, least), (greatest, greatest), (-1, -1), (7, least), (-9, greatest)):
            assert check(cu.cuStreamGetPriority(check(cu.cuStreamCreateWithPriority(0, given)))) == found
        check(cu.cuDevicePrimaryCtxSetFlags(0, 4))
        assert check(cu.cuCtxGetFlags()) == 4 and check(cu.cuDevicePrimaryCtxGetState(0))[0] == 4
        own = check(cu.cuCtxCreate(None, 1 | 8, 0))
        assert check(cu.cuCtxGetFlags()) == 9
        check(cu.cuCtxDestroy(own))
        assert check(cu.cuCtxGetFlags()) == 4
        for flags in (0, 1, 2, 6):
            assert check(cu.cuMemHostGetFlags(int(check(cu.cuMemHostAlloc(100, flags))) + 50)) == flags
        assert check(cu.cuMemHostGetFlags(check(cu.cuMemAllocHost(100)))) == 0
        assert code(cu.cuMemHostGetFlags(check(cu.cuMemAlloc(100)))) == "INVALID_VALUE"
        # Memory is registered once, and that can be taken back once.
        array = np.zeros(100)
        check(cu.cuMemHostRegister(array.ctypes.data, 80, 0))
        again = cu.cuMemHostRegister(array.ctypes.data + 79, 8, 0)
        assert code(again) == "HOST_MEMORY_ALREADY_REGISTERED"
        check(cu.cuMemHostRegister(array.ctypes.data + 80, 8, 0))
        for at in (0, 80):
            check(cu.cuMemHostUnregister(array.ctypes.data + at))
            assert code(cu.cuMemHostUnregister(array.ctypes.data + at)) == "HOST_MEMORY_NOT_REGISTERED"
        mode = cu.CUstreamCaptureMode
        relaxed, own = mode.CU_STREAM_CAPTURE_MODE_RELAXED, mode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        assert check(cu.cuThreadExchangeStreamCaptureMode(relaxed)) == 0
        assert check(cu.cuThreadExchangeStreamCaptureMode(own)) == relaxed
        # A limit that there is not here, and one that there is nowhere.
        assert code(cu.cuCtxGetLimit(cu.CUlimit.CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH)) == "UNSUPPORTED_LIMIT"
        """
    )


def test_a_pool_has_no_more_than_it_may():
    run(
        """
        attribute = cu.CUmemPool_attribute
        used, high = attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT, attribute.CU_MEMPOOL_ATTR_USED_MEM_HIGH
        properties = cu.CUmemPoolProps()
        properties.allocType = cu.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = cu.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.maxSize = 1000
        pool = check(cu.cuMemPoolCreate(properties))
        def amounts():
            return [int(check(cu.cuMemPoolGetAttribute(pool, which))) for which in (used, high)]
        first = check(cu.cuMemAllocFromPoolAsync(600, pool, 0))
        assert cu.cuMemAllocFromPoolAsync(401, pool, 0)[0].name == "CUDA_ERROR_OUT_OF_MEMORY"
        second = check(cu.cuMemAllocFromPoolAsync(400, pool, 0))
        assert amounts() == [1000, 1000]
        check(cu.cuMemFreeAsync(first, 0))
        assert amounts() == [400, 1000]
        check(cu.cuMemAllocFromPoolAsync(500, pool, 0))
        check(cu.cuMemAllocAsync(2000, 0))  # of the default pool
        assert amounts() == [900, 1000]
        """
    )


def test_options_of_the_compiler_hold_for_kernels_that_say_nothing():
    run(
        """
        option, attribute = cu.CUjit_option, cu.CUfunction_attribute
        text = b".version 8.1\\n.target sm_80\\n.address_size 64\\n.visible .entry f() BOUNDS { ret; }"
        options = [option.CU_JIT_MAX_REGISTERS, option.CU_JIT_MAX_THREADS_PER_BLOCK]
        registers = attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
        threads = attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        def bounds(module):
            kernel = check(cu.cuModuleGetFunction(module, b"f"))
            launched = cu.cuLaunchKernel(kernel, 1, 1, 1, 65, 1, 1, 0, 0, 0, 0)
            assert launched[0].name == "CUDA_ERROR_INVALID_VALUE"
            return [check(cu.cuFuncGetAttribute(which, kernel)) for which in (registers, threads)]
        text = text.replace(b"BOUNDS", b"")
        own = text.replace(b"f()", b"f() .maxnreg 3 .maxntid 32")
        assert bounds(check(cu.cuModuleLoadDataEx(text, 2, options, [5, 64]))) == [5, 64]
        assert bounds(check(cu.cuModuleLoadDataEx(own, 2, options, [5, 64]))) == [3, 32]
        link = check(cu.cuLinkCreate(2, options, [5, 64]))
        check(cu.cuLinkAddData(link, cu.CUjitInputType.CU_JIT_INPUT_PTX, text, len(text), b"f", 0, [], []))
        assert bounds(check(cu.cuModuleLoadData(check(cu.cuLinkComplete(link))[0]))) == [5, 64]
        """
    )
