"""The emulated GPU's driver, as programs see it: each in a process of its own, with the real `numba.cuda`."""

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpuless.emulator import settings

pytestmark = pytest.mark.skipif(
    find_spec("numba_cuda") is None or sys.platform == "darwin", reason="needs numba-cuda and its compiler"
)
ROOT = Path(__file__).resolve().parents[2]
HEAD = """
import ctypes
import gpuless
gpuless.select()
import numpy as np
from numba import cuda
from cuda.bindings import driver as cu

def check(answer):
    code, *rest = answer
    assert code == cu.CUresult.CUDA_SUCCESS, code
    return rest[0] if len(rest) == 1 else rest

"""
CONTEXT = "check(cu.cuInit(0)); check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))\n"


def run(program, timeout=120, **environment):
    """Run a program on the emulated GPU; return what it prints. Nothing may go wrong, at its end neither."""
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(
        os.pathsep
    )
    environment = (
        os.environ | {"GPULESS": "emulator", "PYTHONPATH": path, "NUMBA_CUDA_WARNINGS": "0"} | environment
    )
    environment.pop("NUMBA_ENABLE_CUDASIM", None)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HEAD + CONTEXT + textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout.split("\n")[:-1]


def test_the_device_says_what_it_is():
    out = run(
        """
        print(check(cu.cuDeviceGetCount()), check(cu.cuDeviceGetName(128, 0)).split(b"\\0")[0].decode())
        print(cu.cuDeviceGet(1)[0].name)
        attribute = cu.CUdevice_attribute
        capability = "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR"
        for name in (*capability, "WARP_SIZE", "MAX_THREADS_PER_BLOCK"):
            print(check(cu.cuDeviceGetAttribute(getattr(attribute, "CU_DEVICE_ATTRIBUTE_" + name), 0)))
        print(check(cu.cuDeviceTotalMem(0)))
        """,
        GPULESS_COMPUTE_CAPABILITY="9.0",
        GPULESS_MEMORY=str(1 << 28),
    )
    assert out[0].startswith("1 Emulated GPU")
    assert out[1:] == ["CUDA_ERROR_INVALID_DEVICE", "9", "0", "32", "1024", str(1 << 28)]


def test_a_function_that_is_missing_says_so_by_name():
    out = run(
        """
        from gpuless.emulator.driver import last_detail
        print(cu.cuGraphicsUnmapResources(0, 0, 0)[0].name, last_detail())
        """
    )
    assert out == ["CUDA_ERROR_NOT_SUPPORTED cuGraphicsUnmapResources is not supported by the emulated GPU"]


def test_errors_have_names_and_words():
    out = run(
        """
        for code in (0, 2, 700, 801, 12345):
            code = ctypes.c_int(code).value
            name = ctypes.c_char_p()
            ctypes.CDLL(None).cuGetErrorName(code, ctypes.byref(name))
            print(name.value.decode())
        """
    )
    assert out == [
        "CUDA_SUCCESS",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "CUDA_ERROR_NOT_SUPPORTED",
        "CUDA_ERROR_UNKNOWN",
    ]


def test_contexts_are_a_stack_of_each_thread():
    run(
        """
        import threading
        primary = int(check(cu.cuCtxGetCurrent()))
        assert primary
        own = check(cu.cuCtxCreate(None, 0, 0))
        assert int(check(cu.cuCtxGetCurrent())) == int(own) != primary
        assert int(check(cu.cuCtxPopCurrent())) == int(own)
        assert int(check(cu.cuCtxGetCurrent())) == primary
        check(cu.cuCtxPushCurrent(own))
        found = []
        thread = threading.Thread(target=lambda: found.append(int(check(cu.cuCtxGetCurrent()))))
        thread.start()
        thread.join()
        assert found == [0]
        check(cu.cuCtxDestroy(own))
        assert int(check(cu.cuCtxGetCurrent())) == primary
        assert cu.cuCtxPushCurrent(own)[0] == cu.CUresult.CUDA_ERROR_INVALID_CONTEXT
        check(cu.cuCtxPopCurrent())
        assert cu.cuCtxPopCurrent()[0] == cu.CUresult.CUDA_ERROR_INVALID_CONTEXT
        """
    )


def test_kinds_of_memory():
    run(
        """
        kind = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        managed = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_IS_MANAGED
        def kinds(pointer):
            answers = (cu.cuPointerGetAttribute(wanted, int(pointer)) for wanted in (kind, managed))
            return tuple(int(check(answer)) for answer in answers)
        device, host = check(cu.cuMemAlloc(1000)), check(cu.cuMemHostAlloc(1000, 0))
        everywhere = check(cu.cuMemAllocManaged(1000, 1))
        assert kinds(device) == (2, 0) and kinds(host) == (1, 0) and kinds(everywhere) == (2, 1)
        assert [int(x) for x in check(cu.cuMemGetAddressRange(int(device) + 999))] == [int(device), 1000]
        assert cu.cuMemGetAddressRange(int(device) + 1000)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        array = np.zeros(100)
        assert cu.cuPointerGetAttribute(kind, array.ctypes.data)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        check(cu.cuMemHostRegister(array.ctypes.data, array.nbytes, 0))
        assert kinds(array.ctypes.data)[0] == 1
        # No kernel reaches it, and nothing says that one could.
        seen = cu.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_POINTER
        assert int(check(cu.cuPointerGetAttribute(seen, array.ctypes.data))) == 0
        assert cu.cuMemHostGetDevicePointer(array.ctypes.data, 0)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert int(check(cu.cuMemHostGetDevicePointer(int(host), 0))) == int(host)
        mapped = cu.cuMemHostRegister(array.ctypes.data, array.nbytes, cu.CU_MEMHOSTREGISTER_DEVICEMAP)
        assert mapped[0] == cu.CUresult.CUDA_ERROR_NOT_SUPPORTED
        for name in ("PAGEABLE_MEMORY_ACCESS", "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM"):
            attribute = getattr(cu.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_" + name)
            assert check(cu.cuDeviceGetAttribute(attribute, 0)) == 0
        check(cu.cuMemHostUnregister(array.ctypes.data))
        text = b".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .global .u32 variable;"
        variable, _ = check(cu.cuModuleGetGlobal(check(cu.cuModuleLoadData(text)), b"variable"))
        assert kinds(variable) == (2, 0)
        for free, pointer in ((cu.cuMemFree, device), (cu.cuMemFreeHost, host), (cu.cuMemFree, everywhere)):
            check(free(pointer))
            assert free(pointer)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        """
    )


def test_pinned_and_mapped_memory_in_a_kernel():
    run(
        """
        @cuda.jit
        def double(x):
            i = cuda.grid(1)
            if i < x.size:
                x[i] *= 2
        for make in (cuda.pinned_array, cuda.mapped_array, cuda.managed_array):
            x = make(100, np.float32)
            x[:] = np.arange(100)
            double[4, 32](x)
            cuda.synchronize()
            assert (np.asarray(x) == 2 * np.arange(100)).all(), make
        """
    )


def test_memory_comes_to_an_end():
    out = run(
        """
        free, total = check(cu.cuMemGetInfo())
        held = [check(cu.cuMemAlloc(1 << 20)) for _ in range(15)]
        print(cu.cuMemAlloc(1 << 21)[0].name, free - check(cu.cuMemGetInfo())[0] == 15 << 20, total >> 20)
        for one in held:
            check(cu.cuMemFree(one))
        print(check(cu.cuMemGetInfo())[0] == free)
        # What was given back serves again, in other sizes as well.
        check(cu.cuMemFree(check(cu.cuMemAlloc(1 << 24))))
        """,
        GPULESS_MEMORY=str(1 << 24),
    )
    assert out == ["CUDA_ERROR_OUT_OF_MEMORY True 16", "True"]


@pytest.mark.parametrize(
    ("membership", "limits", "wanted"),
    [
        ("0::/a/b\n", {"a/memory.max": 3 << 30, "a/b/memory.max": "max"}, [3 << 30]),
        ("0::/\n", {"memory.max": 4 << 30}, [4 << 30]),
        ("2:cpu:/a\n1:blkio,memory:/not/seen\n0::/\n", {"memory/memory.limit_in_bytes": 5 << 30}, [5 << 30]),
        ("what is this\n", {}, []),
        (None, {}, []),
    ],
    ids=["around it", "container", "version 1", "unknown", "none"],
)
def test_the_memory_that_a_container_is_allowed(membership, limits, wanted, tmp_path):
    for name, content in {f"sys/fs/cgroup/{name}": f"{limits[name]}\n" for name in limits}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    if membership is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(membership)
    assert settings.memory_limits(tmp_path) == wanted


def test_half_of_what_is_allowed_is_the_capacity(monkeypatch):
    monkeypatch.delenv("GPULESS_MEMORY", raising=False)
    for limits, wanted in (([1 << 62, 1 << 28], 1 << 27), ([1 << 20], 1 << 24)):
        monkeypatch.setattr(settings, "memory_limits", lambda limits=limits: limits)
        assert settings.capacity() == wanted


def test_addresses_that_were_given_back_serve_for_other_sizes():
    run(
        """
        from gpuless.emulator.memory import PAGE, Arena
        arena = Arena(1 << 30)
        arena.end = arena._fresh + 80 * PAGE
        rng, held = np.random.default_rng(0), []
        for _ in range(2000):
            if len(held) > 4 or (held and rng.random() < 0.4):
                arena.free(held.pop(rng.integers(len(held)))[0])
            size = int(rng.integers(1, 4 * PAGE))
            address = arena.allocate(size)
            assert arena.base <= address and address + size <= arena.end
            assert all(address + size <= a or a + s <= address for a, s in held)
            ctypes.memset(address, 1, size)
            held.append((address, size))
        for address, _ in held:
            arena.free(address)
        assert arena.used == 0 and arena.allocate(70 * PAGE)
        """
    )


def test_more_arrays_than_the_operating_system_can_keep_apart():
    out = run(
        """
        from gpuless.emulator import memory
        @cuda.jit
        def fill(x):
            x[cuda.grid(1)] = cuda.grid(1)
        held = [check(cu.cuMemAlloc(1)) for _ in range(36_000)]
        x = cuda.device_array(64)
        fill[2, 32](x)
        assert x.copy_to_host().tolist() == list(range(64))
        for one in held:
            check(cu.cuMemFree(one))
        # Between a few arrays there is room again that nobody may use.
        one, other = sorted(int(check(cu.cuMemAlloc(memory.PAGE))) for _ in range(2))
        assert other - one >= 2 * memory.PAGE
        try:
            fill[1024, 1024](x)
        except Exception as error:
            print(str(error).partition(":")[0])
        # Where it gives no more at all, nothing is left half done.
        used, memory._libc.mprotect = check(cu.cuMemGetInfo()), lambda *given: -1
        print(cu.cuMemAlloc(1)[0].name, check(cu.cuMemGetInfo()) == used)
        """
    )
    assert out == ["CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_OUT_OF_MEMORY True"]


def test_copies_and_sets():
    run(
        """
        x = np.arange(1000, dtype=np.uint16)
        one, other = check(cu.cuMemAlloc(2000)), check(cu.cuMemAlloc(2000))
        check(cu.cuMemcpyHtoD(one, x.ctypes.data, 2000))
        check(cu.cuMemcpyDtoD(int(other) + 1000, one, 1000))
        check(cu.cuMemsetD16(other, 0xABCD, 250))
        check(cu.cuMemsetD32(int(other) + 500, 0x01020304, 125))
        back = np.empty_like(x)
        check(cu.cuMemcpyDtoH(back.ctypes.data, other, 2000))
        assert (back[:250] == 0xABCD).all() and (back[500:] == x[:500]).all()
        assert (back[250:500].view(np.uint32) == 0x01020304).all()
        # A copy that goes too far is refused, and nothing is copied.
        bad = cu.CUresult.CUDA_ERROR_INVALID_VALUE
        assert cu.cuMemcpyHtoD(int(one) + 1, x.ctypes.data, 2000)[0] == bad
        assert cu.cuMemsetD8(int(one) + 1999, 0, 2)[0] == bad
        assert cu.cuMemcpyDtoD(one, int(other) + (1 << 30), 4)[0] == bad
        check(cu.cuMemcpyDtoH(back.ctypes.data, one, 2000))
        assert (back == x).all()
        """
    )


def test_streams_and_events():
    run(
        """
        stream = check(cu.cuStreamCreateWithPriority(1, -2))
        assert check(cu.cuStreamGetPriority(stream)) == -2 and check(cu.cuStreamGetFlags(stream)) == 1
        first, last = check(cu.cuEventCreate(0)), check(cu.cuEventCreate(0))
        assert cu.cuEventElapsedTime(first, last)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
        check(cu.cuEventRecord(first, stream))
        check(cu.cuEventRecord(last, stream))
        check(cu.cuStreamWaitEvent(0, last, 0))
        check(cu.cuEventQuery(last))
        check(cu.cuEventSynchronize(last))
        assert 0 <= check(cu.cuEventElapsedTime(first, last)) < 1000
        check(cu.cuStreamQuery(stream))
        check(cu.cuStreamDestroy(stream))
        assert cu.cuStreamQuery(stream)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
        """
    )


def test_who_waits_for_a_stream_waits_for_its_callbacks():
    run(
        """
        import threading
        stream, event, done = check(cu.cuStreamCreate(1)), check(cu.cuEventCreate(0)), []
        @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
        def callback(stream, status, data):
            go.wait(5)
            done.append(data)
        address = cu.CUstreamCallback(ctypes.cast(callback, ctypes.c_void_p).value)
        waiting = (cu.cuStreamSynchronize, stream), (cu.cuEventSynchronize, event), (cu.cuCtxSynchronize,)
        for wait, *what in waiting:
            go = threading.Event()
            done.clear()
            for number in (1, 2, 3):  # one after the other
                check(cu.cuStreamAddCallback(stream, address, number, 0))
            check(cu.cuEventRecord(event, stream))
            assert cu.cuEventQuery(event)[0] == cu.CUresult.CUDA_ERROR_NOT_READY
            assert cu.cuStreamQuery(stream)[0] == cu.CUresult.CUDA_ERROR_NOT_READY and done == []
            threading.Timer(0.2, go.set).start()
            check(wait(*what))
            assert done == [1, 2, 3], (wait, done)
            check(cu.cuEventQuery(event))
        """
    )


def test_callbacks_are_waited_for_wherever_what_follows_them_is():
    run(
        """
        import threading
        stream, other, blocking = (check(cu.cuStreamCreate(flags)) for flags in (1, 1, 0))
        first, last, done = check(cu.cuEventCreate(0)), check(cu.cuEventCreate(0)), []
        not_ready, not_permitted = cu.CUresult.CUDA_ERROR_NOT_READY, cu.CUresult.CUDA_ERROR_NOT_PERMITTED
        @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
        def callback(stream, status, data):
            go.wait(5)
            done.append(data)
        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def function(data):
            done.append(data)
        @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
        def waits(stream, status, data):
            done.append(cu.cuStreamSynchronize(stream)[0])
        def address(what, kind=cu.CUstreamCallback):
            return kind(ctypes.cast(what, ctypes.c_void_p).value)
        def add(to):
            global go
            go = threading.Event()
            done.clear()
            check(cu.cuStreamAddCallback(to, address(callback), 1, 0))
            threading.Timer(0.2, go.set).start()
        # In a stream that waits for an event behind it; a time before that is none.
        check(cu.cuEventRecord(first, stream))
        add(stream)
        check(cu.cuEventRecord(last, stream))
        check(cu.cuStreamWaitEvent(other, last, 0))
        assert cu.cuEventElapsedTime(first, last)[0] == cu.cuStreamQuery(other)[0] == not_ready
        check(cu.cuStreamSynchronize(other))
        assert done == [1] and check(cu.cuEventElapsedTime(first, last)) >= 0
        # A function of the host's is called after it.
        add(stream)
        check(cu.cuLaunchHostFunc(stream, address(function, cu.CUhostFn), 2))
        assert done == []
        check(cu.cuStreamSynchronize(stream))
        assert done == [1, 2]
        # The legacy default stream waits for streams that block, and for no others.
        add(stream)
        check(cu.cuStreamSynchronize(0))
        assert done == []
        check(cu.cuStreamSynchronize(stream))
        add(blocking)
        check(cu.cuStreamSynchronize(0))
        assert done == [1]
        # A stream may be destroyed before it is at its end.
        add(other)
        check(cu.cuStreamDestroy(other))
        check(cu.cuCtxSynchronize())
        assert done == [1]
        # A callback that waits for itself would wait for ever.
        check(cu.cuStreamAddCallback(stream, address(waits), 0, 0))
        check(cu.cuStreamSynchronize(stream))
        assert done == [1, not_permitted]
        """
    )


def test_what_the_handler_of_a_signal_raises_arrives_as_it_is():
    """Such as the exception that a limit of time raises, or `sys.exit()` where a process is told to end."""
    out = run(
        """
        import signal, time
        @cuda.jit
        def endless(x):
            i = 0
            while x[0] == 0:
                i += 1
            x[1] = i
        @cuda.jit
        def good(x):
            x[cuda.grid(1)] = 5
        class Mine(BaseException):
            pass
        x, calls = cuda.to_device(np.ones(32)), 0
        endless[1, 1](x)  # ends, and is compiled: what a handler raises meanwhile a finaliser may drop
        good[1, 32](x)
        x.copy_to_device(np.zeros(32))
        def handler(number, frame):
            global calls
            calls += 1
            raise error
        signal.signal(signal.SIGALRM, handler)
        for error in (TimeoutError("late"), Mine("mine"), SystemExit(3), KeyboardInterrupt()):
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            try:
                endless[1, 1](x)
                time.sleep(5)
            except BaseException as raised:
                print(raised is error, calls)
            y = cuda.to_device(np.zeros(32))
            good[1, 32](y)
            assert y.copy_to_host().sum() == 160
        """
    )
    assert out == ["True 1", "True 2", "True 3", "True 4"]


def test_an_interrupt_while_waiting_for_a_callback_is_none_of_the_drivers_errors():
    """And the callback is waited for again."""
    run(
        """
        import signal, threading, time
        stream, done, go = check(cu.cuStreamCreate(1)), [], threading.Event()
        @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
        def callback(stream, status, data):
            go.wait(5)
            done.append(data)
        for number in (1, 2):
            address = cu.CUstreamCallback(ctypes.cast(callback, ctypes.c_void_p).value)
            check(cu.cuStreamAddCallback(stream, address, number, 0))
        threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,)).start()
        try:
            code = None
            code = cu.cuStreamSynchronize(stream)[0]
            time.sleep(5)
        except KeyboardInterrupt:
            assert code in (None, cu.CUresult.CUDA_SUCCESS)
        else:
            raise AssertionError("no interrupt")
        assert cu.cuStreamQuery(stream)[0] == cu.CUresult.CUDA_ERROR_NOT_READY and done == []
        go.set()
        check(cu.cuStreamSynchronize(stream))
        assert done == [1, 2]
        """
    )


def test_a_graph_does_what_was_captured_and_not_before():
    run(
        """
        x = np.arange(4, dtype=np.uint32)
        one, other = check(cu.cuMemAlloc(16)), check(cu.cuMemAlloc(16))
        check(cu.cuMemsetD32(one, 1, 4))
        check(cu.cuMemsetD32(other, 2, 4))
        stream, second = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1))
        fork, join = check(cu.cuEventCreate(2)), check(cu.cuEventCreate(2))
        check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
        check(cu.cuMemsetD32Async(one, 5, 4, stream))
        check(cu.cuEventRecord(fork, stream))
        check(cu.cuStreamWaitEvent(second, fork, 0))
        assert check(cu.cuStreamIsCapturing(second)) == 1
        check(cu.cuMemcpyDtoDAsync(other, one, 16, second))
        check(cu.cuEventRecord(join, second))
        check(cu.cuStreamWaitEvent(stream, join, 0))
        assert cu.cuStreamEndCapture(second)[0] == cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
        graph = check(cu.cuStreamEndCapture(stream))
        assert check(cu.cuStreamIsCapturing(stream)) == check(cu.cuStreamIsCapturing(second)) == 0
        def read(pointer):
            check(cu.cuMemcpyDtoH(x.ctypes.data, pointer, 16))
            return x.tolist()
        assert read(one) == [1] * 4 and read(other) == [2] * 4
        assert check(cu.cuGraphGetNodes(graph, 8))[1] == 2
        run = check(cu.cuGraphInstantiate(graph, 0))
        for value in (7, 8):
            check(cu.cuMemsetD32(one, value, 4))
            check(cu.cuGraphLaunch(run, stream))
            assert read(other) == [5] * 4
        check(cu.cuGraphExecDestroy(run))
        check(cu.cuGraphDestroy(graph))
        assert cu.cuGraphLaunch(run, stream)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
        """
    )


def test_an_event_of_a_capture_is_of_use_in_that_capture_only():
    run(
        """
        def code(answer):
            return answer[0].name.removeprefix("CUDA_ERROR_")
        relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        pointer = check(cu.cuMemAlloc(4))
        stream, second = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1))
        event, before, marked = (check(cu.cuEventCreate(0)) for _ in range(3))
        check(cu.cuEventRecord(before, second))
        check(cu.cuStreamBeginCapture(stream, relaxed))
        check(cu.cuEventRecord(event, stream))
        check(cu.cuEventRecordWithFlags(marked, stream, 1))  # whenever the graph runs
        graph = check(cu.cuGraphInstantiate(check(cu.cuStreamEndCapture(stream)), 0))
        assert code(cu.cuStreamWaitEvent(second, event, 0)) == "CAPTURED_EVENT"
        check(cu.cuMemsetD32Async(pointer, 7, 1, second))
        assert ctypes.c_uint32.from_address(int(pointer)).value == 7
        assert code(cu.cuEventElapsedTime(before, marked)) == "INVALID_HANDLE"
        check(cu.cuGraphLaunch(graph, stream))
        assert check(cu.cuEventElapsedTime(before, marked)) > 0
        # Where the stream that began a capture is no more, the others work again.
        check(cu.cuStreamBeginCapture(stream, relaxed))
        check(cu.cuEventRecord(event, stream))
        check(cu.cuStreamWaitEvent(second, event, 0))
        check(cu.cuStreamDestroy(stream))
        check(cu.cuStreamSynchronize(second))
        """
    )


def test_what_a_capture_does_not_allow_spoils_it():
    """It can only be ended then, and there is no graph."""
    run(
        """
        def code(answer):
            return answer[0].name.removeprefix("CUDA_ERROR_")
        relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        pointer = check(cu.cuMemAlloc(4))
        stream, second = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1))
        before, event, foreign = (check(cu.cuEventCreate(0)) for _ in range(3))
        check(cu.cuEventRecord(before, second))
        check(cu.cuStreamBeginCapture(second, relaxed))
        check(cu.cuEventRecord(foreign, second))
        nothing = cu.CUstreamCallback(0)
        wrong = {
            "STREAM_CAPTURE_UNSUPPORTED": (
                lambda: cu.cuStreamSynchronize(stream),
                lambda: cu.cuStreamQuery(stream),
                lambda: cu.cuStreamAddCallback(stream, nothing, 0, 0),
            ),
            "STREAM_CAPTURE_ISOLATION": (lambda: cu.cuStreamWaitEvent(stream, before, 0),),
            "CAPTURED_EVENT": (
                lambda: cu.cuEventQuery(event),
                lambda: cu.cuEventSynchronize(event),
                lambda: cu.cuEventElapsedTime(before, event),
            ),
            "STREAM_CAPTURE_MERGE": (lambda: cu.cuStreamWaitEvent(stream, foreign, 0),),
        }
        for name, attempts in wrong.items():
            for attempt in attempts:
                check(cu.cuStreamBeginCapture(stream, relaxed))
                check(cu.cuEventRecord(event, stream))
                assert check(cu.cuStreamIsCapturing(stream)) == 1
                assert code(attempt()) == name
                assert check(cu.cuStreamIsCapturing(stream)) == 2
                invalid = "STREAM_CAPTURE_INVALIDATED"
                assert code(cu.cuMemsetD32Async(pointer, 7, 1, stream)) == invalid
                assert code(cu.cuEventRecord(event, stream)) == invalid
                assert code(cu.cuStreamWaitEvent(second, event, 0)) == invalid
                assert code(cu.cuStreamEndCapture(stream)) == invalid
                assert check(cu.cuStreamIsCapturing(stream)) == 0
                check(cu.cuStreamSynchronize(stream))
        # The other one is spoiled by the attempt to merge, and by nothing before.
        assert code(cu.cuStreamEndCapture(second)) == "STREAM_CAPTURE_INVALIDATED"
        assert code(cu.cuStreamEndCapture(second)) == code(cu.cuStreamEndCapture(0)) == "ILLEGAL_STATE"
        """
    )


def test_a_capture_ends_with_an_error_where_a_stream_has_not_come_back():
    run(
        """
        relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        pointer = check(cu.cuMemAlloc(4))
        stream, second = check(cu.cuStreamCreate(1)), check(cu.cuStreamCreate(1))
        fork, join = check(cu.cuEventCreate(2)), check(cu.cuEventCreate(2))
        for more in (0, 1):
            check(cu.cuStreamBeginCapture(stream, relaxed))
            check(cu.cuMemsetD32Async(pointer, 5, 1, stream))
            check(cu.cuEventRecord(fork, stream))
            check(cu.cuStreamWaitEvent(second, fork, 0))
            check(cu.cuMemsetD32Async(pointer, 6, 1, second))
            if more:  # what follows the event nobody waits for
                check(cu.cuEventRecord(join, second))
                check(cu.cuStreamWaitEvent(stream, join, 0))
                check(cu.cuMemsetD32Async(pointer, 7, 1, second))
            assert cu.cuStreamEndCapture(stream)[0] == cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNJOINED
            assert check(cu.cuStreamIsCapturing(stream)) == check(cu.cuStreamIsCapturing(second)) == 0
        # The default stream cannot be captured.
        check(cu.cuStreamBeginCapture(stream, relaxed))
        check(cu.cuEventRecord(fork, stream))
        assert cu.cuStreamWaitEvent(0, fork, 0)[0] == cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        graph = check(cu.cuStreamEndCapture(stream))
        answer = cu.cuStreamBeginCaptureToGraph(0, graph, None, None, 0, 0)
        assert answer[0] == cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        # A stream that has only waited leaves nothing open.
        check(cu.cuStreamBeginCapture(stream, relaxed))
        check(cu.cuMemsetD32Async(pointer, 5, 1, stream))
        check(cu.cuEventRecord(fork, stream))
        check(cu.cuStreamWaitEvent(second, fork, 0))
        assert check(cu.cuGraphGetNodes(check(cu.cuStreamEndCapture(stream)), 8))[1] == 1
        """
    )


def test_nothing_is_left_of_a_graph_that_is_destroyed():
    run(
        """
        import gc
        from gpuless.emulator.driver import graphs
        @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
        def told(data):
            told.by.append(data)
        told.by = []
        stream, pointer = check(cu.cuStreamCreate(1)), check(cu.cuMemAlloc(4))
        event = check(cu.cuEventCreate(0))
        check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        check(cu.cuMemsetD32Async(pointer, 7, 1, stream))
        check(cu.cuEventRecord(event, stream))
        graph = check(cu.cuStreamEndCapture(stream))
        one = check(cu.cuUserObjectCreate(5, cu.CUhostFn(ctypes.cast(told, ctypes.c_void_p).value), 1, 1))
        check(cu.cuGraphRetainUserObject(graph, one, 1, 1))
        executable = check(cu.cuGraphInstantiate(graph, 0))
        check(cu.cuGraphDestroy(graph))
        check(cu.cuGraphLaunch(executable, stream))
        assert ctypes.c_uint32.from_address(int(pointer)).value == 7 and not told.by
        check(cu.cuGraphExecDestroy(executable))
        assert told.by == [5] and cu.cuUserObjectRetain(one, 1)[0].name == "CUDA_ERROR_INVALID_HANDLE"
        # What is captured into a graph is in that one, not in another.
        graph, nowhere = check(cu.cuGraphCreate(0)), [cu.CUgraphNode(16)]
        answer = cu.cuStreamBeginCaptureToGraph(stream, graph, nowhere, None, 1, 0)
        assert answer[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        check(cu.cuStreamBeginCaptureToGraph(stream, graph, None, None, 0, 0))
        check(cu.cuMemsetD32Async(pointer, 8, 1, stream))
        assert int(check(cu.cuStreamEndCapture(stream))) == int(graph)
        check(cu.cuGraphDestroy(graph))
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, graphs.Node)]
        """
    )


def test_a_graph_has_no_memory_of_its_own_and_misses_what_is_freed():
    run(
        """
        stream = check(cu.cuStreamCreate(1))
        one, other = check(cu.cuMemAllocAsync(16, stream)), check(cu.cuMemAlloc(16))
        refused = cu.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
        check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        assert cu.cuMemAllocAsync(16, stream)[0] == cu.cuMemFreeAsync(one, stream)[0] == refused
        check(cu.cuMemcpyDtoDAsync(other, one, 16, stream))
        copy = check(cu.cuGraphInstantiate(check(cu.cuStreamEndCapture(stream)), 0))
        check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        check(cu.cuMemsetD32Async(one, 0, 4, stream))
        fill = check(cu.cuGraphInstantiate(check(cu.cuStreamEndCapture(stream)), 0))
        check(cu.cuMemFreeAsync(one, stream))
        for graph in (copy, fill):  # an error, and not the end of the process
            assert cu.cuGraphLaunch(graph, stream)[0] == cu.CUresult.CUDA_ERROR_INVALID_VALUE
        """
    )


def test_launches_beyond_the_limits_are_refused_and_nothing_breaks():
    run(
        """
        @cuda.jit
        def fill(x):
            i = cuda.grid(1)
            if i < x.size:
                x[i] = i
        x = cuda.device_array(100)
        for grid, block, shared in ((1, 1025, 0), ((1, 70000), 1, 0), (1, (1, 1, 65), 0), (1, 32, 1 << 20)):
            try:
                fill[grid, block, 0, shared](x)
            except Exception as error:
                assert "CUDA_ERROR_INVALID_VALUE" in str(error), error
            else:
                raise AssertionError((grid, block, shared))
        fill[4, 32](x)
        assert (x.copy_to_host() == np.arange(100)).all()
        """
    )


def test_a_cluster_of_several_blocks_is_refused():
    out = run(
        """
        text = b".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry f() { ret; }"
        kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
        cluster, config = cu.CUlaunchAttribute(), cu.CUlaunchConfig()
        cluster.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        for side in ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"):
            setattr(config, side, 2)
        for y in (1, 2):
            cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z = 1, y, 1
            config.attrs, config.numAttrs = [cluster], 1
            print(cu.cuLaunchKernelEx(config, kernel, 0, 0)[0].name)
        text = text.replace(b"f()", b"f() .reqnctapercluster 2, 1, 1")
        kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
        print(cu.cuLaunchKernel(kernel, 2, 1, 1, 2, 1, 1, 0, 0, 0, 0)[0].name)
        """
    )
    assert out == ["CUDA_SUCCESS", "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_NOT_SUPPORTED"]


def test_machine_code_of_a_gpu_is_refused():
    out = run(
        """
        from gpuless.emulator.driver import last_detail
        head = b".version 8.0\\n.target sm_80\\n.address_size 64\\n"
        print(cu.cuModuleLoadData(b"\\x7fELF" + bytes(100))[0].name, last_detail())
        module = check(cu.cuModuleLoadData(head + b".visible .entry f() { ret; }"))
        print(cu.cuModuleGetFunction(module, b"g")[0].name)
        print(cu.cuModuleGetGlobal(module, b"g")[0].name)
        """
    )
    assert out == [
        "CUDA_ERROR_NO_BINARY_FOR_GPU this is machine code of a GPU; the emulated GPU runs PTX "
        '(cuda.core: compile("ptx"), not "cubin")',
        "CUDA_ERROR_NOT_FOUND",
        "CUDA_ERROR_NOT_FOUND",
    ]


def test_pieces_of_ptx_are_linked():
    run(
        """
        head = b".version 8.0\\n.target sm_80\\n.address_size 64\\n"
        callee = head + b'''
        .global .align 4 .u32 own = 30;
        .visible .func (.param .b32 out) twice(.param .b32 in) {
            .reg .b32 %r<4>;
            ld.param.b32 %r1, [in];
            ld.global.u32 %r2, [own];
            mad.lo.s32 %r3, %r1, 2, %r2;
            st.param.b32 [out], %r3;
            ret;
        }'''
        caller = head + b'''
        .extern .func (.param .b32 out) twice(.param .b32 in);
        .global .align 4 .u32 own = 4;
        .visible .entry f(.param .u64 p) {
            .reg .b32 %r<4>; .reg .b64 %rd<4>;
            ld.global.u32 %r1, [own];
            { .param .b32 given; st.param.b32 [given], %r1;
              .param .b32 got; call.uni (got), twice, (given); ld.param.b32 %r2, [got]; }
            ld.param.u64 %rd1, [p];
            st.global.u32 [%rd1], %r2;
            ret;
        }'''
        link = check(cu.cuLinkCreate(0, [], []))
        kind = cu.CUjitInputType.CU_JIT_INPUT_PTX
        for piece in (callee, caller):
            check(cu.cuLinkAddData(link, kind, piece, len(piece), b"piece", 0, [], []))
        image, size = check(cu.cuLinkComplete(link))
        module = check(cu.cuModuleLoadData(image))
        check(cu.cuLinkDestroy(link))
        kernel = check(cu.cuModuleGetFunction(module, b"f"))
        out = check(cu.cuMemAlloc(4))
        check(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, ((int(out),), (ctypes.c_void_p,)), 0))
        assert ctypes.c_uint32.from_address(int(out)).value == 38
        """
    )


def test_registers_are_estimated():
    """In use at once: an address and the terms of the sum, two words each; predicates do not count."""
    printed = run(
        """
        head = b".version 8.0\\n.target sm_80\\n.address_size 64\\n"
        body = b'''(.param .u64 p) LIMIT {
            .reg .b64 %rd<9>; .reg .f64 %fd<9>; .reg .pred %p<2>;
            ld.param.u64 %rd1, [p];
            ld.global.f64 %fd1, [%rd1];
            ld.global.f64 %fd2, [%rd1+8];
            ld.global.f64 %fd3, [%rd1+16];
            fma.rn.f64 %fd4, %fd1, %fd2, %fd3;
            setp.gt.f64 %p1, %fd4, 0d0000000000000000;
            @%p1 st.global.f64 [%rd1], %fd4;
            ret;
        }'''
        for limit in (b"", b".maxnreg 12"):
            module = check(cu.cuModuleLoadData(head + b".visible .entry f" + body.replace(b"LIMIT", limit)))
            kernel = check(cu.cuModuleGetFunction(module, b"f"))
            print(check(cu.cuFuncGetAttribute(cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, kernel)))
        @cuda.jit(max_registers=13)
        def many(x):
            x[0] = x[1] * x[2] + x[3] * x[4] + x[5] * x[6] + x[7] * x[8]
        many[1, 1](np.zeros(9))
        print(*many.get_regs_per_thread().values())
        """
    )
    assert printed == [str(5 * 2 + 8), "12", "13"]


def test_print_lands_in_order_and_an_assertion_is_told():
    out = run(
        """
        @cuda.jit
        def show(x):
            i = cuda.threadIdx.x
            if i < 3:
                print("thread", i, x[i], i == 1)
        show[1, 64](np.array([1.5, -2.0, np.inf]))
        print("after")
        @cuda.jit(debug=True, opt=False)
        def expect(x):
            assert x[cuda.threadIdx.x] < 3, "too large"
        try:
            expect[1, 5](np.arange(5))
        except AssertionError as error:
            print("too large" in str(error), "3" in str(error).partition("tid=")[2])
        show[1, 1](np.array([9.0]))
        """
    )
    assert out == [
        "thread 0 1.500000 False",
        "thread 1 -2.000000 True",
        "thread 2 inf False",
        "after",
        "True True",
        "thread 0 9.000000 False",
    ]


def test_cuda_c_is_compiled_and_run():
    """NVRTC keeps what it has compiled, and asks the driver for that: once it died of the answer."""
    run(
        """
        from cuda.bindings import nvrtc
        text = b"extern \\"C\\" __global__ void f(int *p) { p[threadIdx.x] = 3 * threadIdx.x; }"
        code, program = nvrtc.nvrtcCreateProgram(text, b"f.cu", 0, [], [])
        code, = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])
        assert code == 0, code
        ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
        nvrtc.nvrtcGetPTX(program, ptx)
        kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(bytes(ptx))), b"f"))
        out = check(cu.cuMemAlloc(256))
        check(cu.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, ((int(out),), (ctypes.c_void_p,)), 0))
        assert (np.frombuffer(ctypes.string_at(int(out), 256), np.int32) == 3 * np.arange(64)).all()
        """
    )


def test_structures_are_passed_by_value():
    """To functions that index them, write to them, give them back, and call themselves with them."""
    run(
        """
        from cuda.bindings import nvrtc
        text = b'''
        struct Big { double a[20]; int b; char c; };
        __device__ __noinline__ double at(Big y, int i) { return y.a[i % 20] * y.b + y.c; }
        __device__ __noinline__ Big changed(Big y, int i) { y.a[i % 20] += i; y.c += 1; return y; }
        __device__ __noinline__ double sum(Big y, int i) {
            if (i == 0)
                return y.a[0];
            y.a[i - 1] = y.a[i] + 2 * y.a[i - 1];
            return sum(y, i - 1) + y.a[i];
        }
        extern "C" __global__ void f(Big x, double *out) {
            int i = threadIdx.x;
            x.a[7] = 100 * i;
            out[i] = at(changed(x, i), 7 * i) + sum(x, i % 9);
        }
        '''
        code, program = nvrtc.nvrtcCreateProgram(text, b"f.cu", 0, [], [])
        code, = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])
        assert code == 0, code
        ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
        nvrtc.nvrtcGetPTX(program, ptx)
        assert b"param_0;" in ptx  # an address of one
        kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(bytes(ptx))), b"f"))
        class Big(ctypes.Structure):
            _fields_ = [("a", ctypes.c_double * 20), ("b", ctypes.c_int), ("c", ctypes.c_char)]
        big, out = Big((ctypes.c_double * 20)(*range(1, 21)), 7, b"\\x05"), check(cu.cuMemAlloc(64 * 8))
        given = ctypes.c_uint64(int(out))
        places = (ctypes.c_void_p * 2)(ctypes.addressof(big), ctypes.addressof(given))
        check(cu.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, ctypes.addressof(places), 0))
        def wanted(i):
            a = [*range(1, 21)]
            a[7] = 100 * i
            found, j = 0, i % 9
            changed = list(a)
            changed[i % 20] += i
            while j:
                a[j - 1] = a[j] + 2 * a[j - 1]
                found += a[j]
                j -= 1
            return changed[7 * i % 20] * 7 + 6 + found + a[0]
        found = np.frombuffer(ctypes.string_at(int(out), 512))
        assert found.tolist() == [wanted(i) for i in range(64)], found
        """
    )


def test_an_assertion_is_told_to_the_launch_that_it_failed_in():
    """And what one launch prints is not lost while another, which has failed, is run again."""
    out = run(
        """
        import contextlib, io, sys
        from concurrent.futures import ThreadPoolExecutor
        from cuda.bindings import nvrtc
        from gpuless.emulator import launch
        text = b'''
        extern "C" __device__ void __assertfail(const char *, const char *, unsigned, const char *, size_t);
        extern "C" __global__ void fail(volatile int *p, int trap) {
            __assertfail("p is right", "f.cu", 7, "fail", 1);
            p[0] = 1;
            while (!trap && p[1] == 0);
            if (trap)
                asm("trap;");
        }
        extern "C" __global__ void pass(volatile int *p, int wild) {
            while (p[0] == 0);
            p[wild] = 0;
        }
        '''
        code, program = nvrtc.nvrtcCreateProgram(text, b"f.cu", 0, [], [])
        code, = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])
        assert code == 0, code
        ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
        nvrtc.nvrtcGetPTX(program, ptx)
        module = check(cu.cuModuleLoadData(bytes(ptx)))
        p = check(cu.cuMemAllocManaged(256, 1))
        numbers = (ctypes.c_int * 64).from_address(int(p))
        numbers[:] = [0] * 64
        def start(name, number):
            check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
            kernel = check(cu.cuModuleGetFunction(module, name))
            given = (int(p), number), (ctypes.c_void_p, ctypes.c_int)
            return cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, given, 0)[0].name
        @cuda.jit
        def show(x):
            print("shown", x)
        show[1, 1](1)
        said, work = io.StringIO(), launch.Workers._work
        def work_later(workers, compiled, launch, traced=None, **more):
            if traced:
                show[1, 1](2)
            return work(workers, compiled, launch, *filter(None, [traced]), **more)
        with contextlib.redirect_stderr(said), ThreadPoolExecutor(1) as pool:
            failing = pool.submit(start, b"fail", 0)
            print(start(b"pass", 2))
            numbers[1] = 1
            print(failing.result(), start(b"fail", 1))
            launch.Workers._work = work_later
            print(start(b"pass", 1 << 29))
        line = "f.cu:7: fail: block: [0, 0, 0], thread: [0, 0, 0] Assertion `p is right` failed."
        assert said.getvalue().split("\\n") == [line, line, ""], said.getvalue()
        """,
        GPULESS_THREADS="2",
    )
    assert out == [
        "shown 1",
        "CUDA_SUCCESS",
        "CUDA_ERROR_ASSERT CUDA_ERROR_ASSERT",
        "shown 2",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
    ]


def test_a_heap_that_does_not_fit_gives_nothing():
    ptx = """
        .version 8.0
        .target sm_80
        .address_size 64
        .extern .func (.param .b64 r) malloc (.param .b64 s);
        .visible .entry f(.param .u64 p) {
            .reg .b64 %rd<5>;
            ld.param.u64 %rd1, [p];
            {
                .param .b64 s; .param .b64 r;
                st.param.b64 [s], 16;
                call.uni (r), malloc, (s);
                ld.param.b64 %rd2, [r];
            }
            st.global.u64 [%rd1], %rd2;
            ret;
        }
    """
    run(
        f"""
        kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData({ptx.encode()!r})), b"f"))
        out, rest = check(cu.cuMemAlloc(8)), check(cu.cuMemAlloc(12 << 20))
        for fits in (False, True):
            check(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, ((int(out),), (ctypes.c_void_p,)), 0))
            assert bool(ctypes.c_uint64.from_address(int(out)).value) == fits
            fits or check(cu.cuMemFree(rest))
        """,
        GPULESS_MEMORY=str(1 << 24),
    )


def test_functions_are_called_by_their_addresses():
    run(
        """
        text = b'''.version 8.0\\n.target sm_80\\n.address_size 64
        .visible .func (.param .b32 out) more(.param .b32 in) {
            .reg .b32 %r<3>; ld.param.b32 %r1, [in]; add.s32 %r2, %r1, 1000; st.param.b32 [out], %r2; ret; }
        .visible .func (.param .b32 out) less(.param .b32 in) {
            .reg .b32 %r<3>; ld.param.b32 %r1, [in]; sub.s32 %r2, 0, %r1; st.param.b32 [out], %r2; ret; }
        .visible .entry f(.param .u64 p) {
            .reg .b32 %r<6>; .reg .b64 %rd<6>; .reg .pred %p<2>;
            mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 1; setp.eq.s32 %p1, %r2, 1;
            mov.u64 %rd1, more; mov.u64 %rd2, less; selp.b64 %rd3, %rd1, %rd2, %p1;
            { .param .b32 given; st.param.b32 [given], %r1; .param .b32 got;
              proto: .callprototype (.param .b32 _) _ (.param .b32 _);
              call (got), %rd3, (given), proto; ld.param.b32 %r3, [got]; }
            ld.param.u64 %rd4, [p]; mul.wide.u32 %rd5, %r1, 4; add.s64 %rd4, %rd4, %rd5;
            st.global.u32 [%rd4], %r3; ret;
        }'''
        kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
        out = check(cu.cuMemAlloc(256))
        check(cu.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, ((int(out),), (ctypes.c_void_p,)), 0))
        found = np.frombuffer(ctypes.string_at(int(out), 256), np.int32)
        i = np.arange(64)
        assert (found == np.where(i % 2, i + 1000, -i)).all(), found
        """
    )


def test_variables_begin_with_addresses():
    run(
        """
        from gpuless.emulator.driver import last_detail
        text = b'''.version 8.0\\n.target sm_80\\n.address_size 64 // \\xe9
        .visible .func (.param .b32 out) first() {
            .reg .b32 %r<2>; mov.u32 %r1, 11; st.param.b32 [out], %r1; ret; }
        .visible .func (.param .b32 out) second() {
            .reg .b32 %r<2>; mov.u32 %r1, 22; st.param.b32 [out], %r1; ret; }
        .global .align 4 .u32 numbers[4] = {5, 6, 7, 8};
        .global .align 8 .u64 places[3] = {generic(numbers)+8, numbers-4, generic(numbers)};
        .const .align 8 .u64 chosen[2] = {second, first};
        .visible .entry f(.param .u64 p) {
            .reg .b32 %r<9>; .reg .b64 %rd<9>;
            mov.u32 %r1, %tid.x; mul.wide.u32 %rd1, %r1, 8;
            mov.u64 %rd2, chosen; add.s64 %rd2, %rd2, %rd1; ld.const.u64 %rd3, [%rd2];
            { .param .b32 got; proto: .callprototype (.param .b32 _) _ ();
              call (got), %rd3, (), proto; ld.param.b32 %r2, [got]; }
            ld.global.u64 %rd4, [places]; ld.u32 %r3, [%rd4];
            ld.global.u64 %rd5, [places+8]; ld.u32 %r4, [%rd5+4];
            mad.lo.s32 %r5, %r3, 100, %r2; mad.lo.s32 %r5, %r4, 1000, %r5;
            ld.param.u64 %rd6, [p]; shr.u64 %rd1, %rd1, 1; add.s64 %rd6, %rd6, %rd1;
            st.global.u32 [%rd6], %r5; ret;
        }'''
        kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
        out, used = check(cu.cuMemAlloc(8)), check(cu.cuMemGetInfo())[0]
        check(cu.cuLaunchKernel(kernel, 1, 1, 1, 2, 1, 1, 0, 0, ((int(out),), (ctypes.c_void_p,)), 0))
        assert np.frombuffer(ctypes.string_at(int(out), 8), np.uint32).tolist() == [5722, 5711]
        bad = text.replace(b"numbers-4", b"absent-4")
        assert cu.cuModuleLoadData(bad)[0] == cu.CUresult.CUDA_ERROR_INVALID_PTX
        assert last_detail() == "absent-4 is no address that a variable can begin with"
        assert check(cu.cuMemGetInfo())[0] == used  # nothing is left of it
        """
    )


def test_a_recursion_stays_in_the_stack_of_its_warp_which_a_limit_makes_larger():
    out = run(
        """
        from gpuless.emulator.driver import last_detail
        text = b'''.version 8.0\\n.target sm_80\\n.address_size 64
        .func (.param .b32 out) deeper(.param .b32 n) {
            .local .align 4 .b8 own[1024]; .reg .b32 %r<5>; .reg .b64 %rd<2>; .reg .pred %p<2>;
            ld.param.b32 %r1, [n]; mov.u64 %rd1, own; st.local.u32 [%rd1], %r1; mov.u32 %r3, 0;
            setp.eq.u32 %p1, %r1, 0; @%p1 bra END; sub.u32 %r2, %r1, 1;
            { .param .b32 given; st.param.b32 [given], %r2; .param .b32 got;
              call (got), deeper, (given); ld.param.b32 %r3, [got]; }
            END: ld.local.u32 %r4, [%rd1]; add.u32 %r3, %r3, %r4; st.param.b32 [out], %r3; ret; }
        .visible .entry f(.param .u64 p, .param .u32 depth) {
            .local .align 4 .b8 mine[4]; .reg .b32 %r<6>; .reg .b64 %rd<6>; .reg .pred %p<2>;
            mov.u32 %r1, %tid.x; mov.u64 %rd1, mine; st.local.u32 [%rd1], %r1; bar.sync 0;
            setp.ge.u32 %p1, %r1, 32; @%p1 bra SECOND; ld.param.u32 %r2, [depth];
            { .param .b32 given; st.param.b32 [given], %r2; .param .b32 got;
              call (got), deeper, (given); ld.param.b32 %r3, [got]; }
            st.local.u32 [%rd1], %r3;
            SECOND: bar.sync 0; ld.local.u32 %r4, [%rd1];
            ld.param.u64 %rd2, [p]; mul.wide.u32 %rd3, %r1, 4; add.s64 %rd2, %rd2, %rd3;
            st.global.u32 [%rd2], %r4; ret; }'''
        kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
        out, kinds = check(cu.cuMemAlloc(256)), (ctypes.c_void_p, ctypes.c_uint32)
        def launch(depth):
            return cu.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, ((int(out), depth), kinds), 0)
        def is_right(depth):
            check(launch(depth))
            found = np.frombuffer(ctypes.string_at(int(out), 256), np.uint32)
            return (found[:32] == depth * (depth + 1) // 2).all() and (found[32:] == np.arange(32, 64)).all()
        print(is_right(12))
        print(launch(20)[0].name, "a stack overflow" in last_detail())
        check(cu.cuCtxSetLimit(cu.CUlimit.CU_LIMIT_STACK_SIZE, 30001))
        print(is_right(12), is_right(20), check(cu.cuCtxGetLimit(cu.CUlimit.CU_LIMIT_STACK_SIZE)))
        """
    )
    assert out == ["True", "CUDA_ERROR_LAUNCH_FAILED True", "True True 30001"]


def test_all_blocks_of_a_grid_wait_for_each_other():
    run(
        """
        @cuda.jit
        def turn(a, b):
            grid, i = cuda.cg.this_grid(), cuda.grid(1)
            for step in range(5):
                a[i] = i + step
                grid.sync()
                b[i] += a[(i + 96) % a.size]
                grid.sync()
        a, b = np.zeros(640, np.int64), np.zeros(640, np.int64)
        turn[10, 64](a, b)
        assert (b == 10 + 5 * ((np.arange(640) + 96) % 640)).all()
        big = turn.overloads[turn.signatures[0]].max_cooperative_grid_blocks(64) + 1
        try:
            turn[big, 64](cuda.device_array(64 * big, np.int64), cuda.device_array(64 * big, np.int64))
        except Exception as error:
            assert "exceeds the limit" in str(error)
        else:
            raise AssertionError(big)
        """
    )


def test_workers_have_their_own_memory_and_come_to_an_end():
    """A launch that cannot have one for each block is refused, and leaves nobody behind that waits."""
    out = run(
        """
        import _thread, types
        from gpuless.emulator import launch, layout, threads
        from gpuless.emulator.driver.device import device
        from gpuless.emulator.memory import OutOfMemory
        @cuda.jit
        def meet(x):
            grid = cuda.cg.this_grid()
            x[cuda.grid(1)] += 1
            grid.sync()
            x[cuda.grid(1)] += 1
        def attempt():
            try:
                meet[4, 32](x)
            except Exception as error:
                print(str(error).partition(":")[0], sum(bool(record.launch) for record in workers._records))
            else:
                print(set(x.copy_to_host()))
        x, workers = cuda.to_device(np.zeros(128)), device().workers
        # One of four does not get its local memory, and one not its thread.
        reserve, numbers = launch._Record.reserve_local, iter(range(8))
        def reserve_not_always(record, size):
            if next(numbers, None) == 1:
                raise OutOfMemory
            reserve(record, size)
        launch._Record.reserve_local = reserve_not_always
        attempt()
        launch._Record.reserve_local = reserve
        numbers = iter(range(4))
        def start_not_always(function, arguments):
            if next(numbers) == 2:
                raise RuntimeError("can't start new thread")
            _thread.start_new_thread(function, arguments)
        workers._more = launch.Pool(1000)
        threads._thread = types.SimpleNamespace(start_new_thread=start_not_always)
        attempt()
        threads._thread = _thread
        x.copy_to_device(np.zeros(128))
        attempt()
        held, workers._idle = [], []
        try:
            while True:
                held.append(launch._Record(workers.arena))
        except OutOfMemory:
            print(400 < len(held) < 1000)
        attempt()
        print(set(x.copy_to_host()))
        # Local memory grows where it is, as far as that is its own.
        local = ctypes.c_uint64.from_buffer(held[-1].buffer, layout.OFFSET["local"])
        first = local.value
        for size in (1 << 20, 1 << 26, layout.LOCAL_SPAN):
            held[-1].reserve_local(size)
            ctypes.memset(local.value + size - 1, 1, 1)
        private = workers.arena.base + layout.PRIVATE_SPAN
        print(local.value == first < first + layout.LOCAL_SPAN < private < x.device_ctypes_pointer.value)
        try:
            held[-1].reserve_local(layout.LOCAL_SPAN + 1)
        except OutOfMemory as error:
            print(error)
        """
    )
    assert out == [
        "CUDA_ERROR_OUT_OF_MEMORY 0",
        "CUDA_ERROR_OUT_OF_MEMORY 0",
        "{np.float64(2.0)}",
        "True",
        "CUDA_ERROR_OUT_OF_MEMORY 0",
        "{np.float64(2.0)}",
        "True",
        "a block may have 570425344 bytes of local memory, not 570425345",
    ]


def test_several_threads_launch_at_once():
    """Also for the first time, while another loads the kernel."""
    run(
        """
        import threading, time
        from concurrent.futures import ThreadPoolExecutor
        from numba.cuda.cudadrv import driver
        load, loading = driver.load_module_image, threading.Event()
        def load_slowly(*given):
            loading.set()
            time.sleep(0.5)
            return load(*given)
        driver.load_module_image = load_slowly
        @cuda.jit
        def add(x, value):
            i = cuda.grid(1)
            if i < x.size:
                x[i] += value
        def work(value):
            x, stream = cuda.to_device(np.zeros(50_000)), cuda.stream()
            value == 0 or loading.wait()
            for _ in range(20):
                add[-(-x.size // 128), 128, stream](x, value)
            return x.copy_to_host(stream=stream)
        with ThreadPoolExecutor(4) as pool:
            for value, found in zip(range(8), pool.map(work, range(8)), strict=True):
                assert (found == 20 * value).all(), value
        """
    )


def test_a_shape_of_a_block_is_compiled_once():
    run(
        """
        import os, tempfile
        from gpuless.emulator import machine
        os.environ["GPULESS_CACHE"] = tempfile.mkdtemp()
        count, compile_object = [], machine.compile_object
        machine.compile_object = lambda text: count.append("@kernel" in text) or compile_object(text)
        @cuda.jit
        def fill(x):
            i = cuda.grid(1)
            if i < x.size:
                x[i] = i
        x = cuda.device_array(1000)
        for grid in (1, 2, 8):
            fill[grid, 128](x)
        fill[1, (128, 1)](x)
        assert sum(count) == 1, count
        fill[1, 64](x)
        assert sum(count) == 2, count
        """
    )


def test_a_block_that_has_passed_the_barrier_of_the_grid_waits_no_more():
    # The first warp of one block takes its time, its others come later; all other blocks have ended.
    run(
        """
        @cuda.jit
        def slow(x, rounds):
            grid = cuda.cg.this_grid()
            grid.sync()
            if cuda.blockIdx.x == 1 and cuda.threadIdx.x < 32:
                total = x[0]
                for i in range(rounds):
                    total = total * 0.999 + i
                x[cuda.threadIdx.x] = total
        x = cuda.to_device(np.zeros(32))
        slow[4, 128](x, 100_000_000)
        assert x.copy_to_host()[0] > 0
        """
    )


def test_a_kernel_without_a_machine_code_on_any_gpu_is_refused():
    run(
        """
        import pytest
        def using(count):
            @cuda.jit
            def f(x):
                s = cuda.shared.array(count, np.float32)
                s[cuda.threadIdx.x] = 1
                cuda.syncthreads()
                x[cuda.threadIdx.x] = s[31 - cuda.threadIdx.x]
            return f
        x = cuda.to_device(np.zeros(32, np.float32))
        using(12288)[1, 32](x)
        with pytest.raises(Exception, match="uses too much shared data .49156 bytes, 49152 max"):
            using(12289)[1, 32](x)
        with pytest.raises(Exception, match="48 KB.* not 49156"):
            using(1)[1, 32, 0, 49152](x)
        with pytest.raises(Exception, match="block .1025, 1, 1.: x is 1025, and a GPU allows 1024"):
            using(1)[1, 1025](x)
        """
    )


def test_a_fork_after_use_does_no_harm():
    run(
        """
        import os
        @cuda.jit
        def fill(x):
            x[cuda.grid(1)] = cuda.grid(1)
        x = cuda.to_device(np.zeros(64))
        fill[2, 32](x)
        child = os.fork()
        if child == 0:
            # As CUDA has it, and at once: the threads that run blocks are not there.
            os._exit(int(cu.cuMemAlloc(100)[0] != cu.CUresult.CUDA_ERROR_NOT_INITIALIZED))
        assert os.waitpid(child, 0)[1] == 0
        fill[2, 32](x)
        assert (x.copy_to_host() == np.arange(64)).all()
        """
    )


@pytest.mark.exhaustive_unless(
    lambda first: first == "torch", "PyTorch imported first, which finds the libraries as they were"
)
@pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")
@pytest.mark.parametrize("first", ["torch", "kernel"])
def test_pytorch_stays_on_the_cpu(first):
    run(
        f"""
        def kernel():
            @cuda.jit
            def fill(x):
                x[cuda.grid(1)] = cuda.grid(1)
            x = cuda.to_device(np.zeros(64))
            fill[2, 32](x)
            assert (x.copy_to_host() == np.arange(64)).all()
        def torch():
            import torch
            import warnings
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # nor does it complain of a driver
                assert not torch.cuda.is_available()
                x = torch.ones(3, requires_grad=True)
                (x * 2).sum().backward()
            assert x.grad.tolist() == [2, 2, 2]
        for step in [torch, kernel]["{first}" == "kernel":] + [torch]:
            step()
        """
    )


def test_memory_that_nobody_has_written_holds_nothing_of_use():
    run(
        """
        for dtype in (np.float16, np.float32, np.float64, np.complex64):
            assert np.isnan(cuda.device_array(1000, dtype).copy_to_host()).all()
        for dtype in (np.int16, np.int32, np.int64):
            assert (cuda.device_array(1000, dtype).copy_to_host() > 0.99 * np.iinfo(dtype).max).all()
        x = cuda.to_device(np.ones(1000))  # and what was written and freed is gone
        del x
        assert np.isnan(cuda.device_array(1000).copy_to_host()).all()
        """
    )


def test_memory_costs_nothing_until_it_is_written_to():
    """However much of it is read: 12 GB, where a computer may have 4."""
    run(
        """
        def committed():  # MB; what pages of the file cost that all arrays show counts once
            lines = open("/proc/self/smaps_rollup").read().splitlines()
            return {name: int(value.split()[0]) >> 10 for name, value in (x.split(":") for x in lines[1:])}
        @cuda.jit
        def read(x, out):
            i = cuda.grid(1)
            if i < out.size:
                out[i] = x[4096 * i]
        out = cuda.device_array((64 << 20) // 4096, np.float32)
        read[-(-out.size // 128), 128](cuda.device_array(64 << 20, np.float32), out)
        before = committed()
        held = [cuda.device_array(64 << 20, np.float32) for _ in range(47)]
        assert committed()["Rss"] - before["Rss"] < 50
        for x in held:
            read[-(-out.size // 128), 128](x, out)
            assert np.isnan(out.copy_to_host()).all()
        after = committed()
        assert after["Anonymous"] - before["Anonymous"] < 50 and after["Pss"] - before["Pss"] < 100
        # A part is written to: that much is taken, and what is beside it is as it was.
        for setting in (False, True):
            before = committed()["Anonymous"]
            x = held.pop()
            if setting:
                check(cu.cuMemsetD32(x.device_ctypes_pointer.value + (32 << 20), 0, 8 << 20))
            else:
                x[8 << 20 : 16 << 20].copy_to_device(np.ones(8 << 20, np.float32))
            assert 31 <= committed()["Anonymous"] - before < 90
            assert np.isnan(x[(8 << 20) - 4096 : 8 << 20].copy_to_host()).all()
            assert np.isnan(x[16 << 20 :][:4096].copy_to_host()).all()
        """,
        GPULESS_MEMORY=str(13 << 30),
    )


def test_pieces_of_memory_are_few_however_large_the_arrays_are():
    """The operating system has an end of them; all addresses that there are make 18,000."""
    run(
        """
        from gpuless.emulator.layout import ARENA_SPAN, POISON, PRIVATE_MARGIN, PRIVATE_SPAN
        from gpuless.emulator.memory import PAGE, Arena, OutOfMemory
        arena = Arena(1 << 40)
        size = ARENA_SPAN - PRIVATE_SPAN - PRIVATE_MARGIN - PAGE
        address = arena.allocate(size)
        with open("/proc/self/maps") as maps:
            shown = [line.split()[0].split("-") for line in maps if "gpuless (deleted)" in line]
        pieces = [(int(begin, 16), int(end, 16)) for begin, end in shown]
        pieces = [piece for piece in pieces if arena.base <= piece[0] < arena.end]  # not those of the context
        assert 1000 < len(pieces) < 20_000
        assert pieces[-1][1] == arena.end
        for at in (0, 12345678, size // 3, size - 4):
            assert ctypes.c_uint32.from_address(address + at // 4 * 4).value == POISON
        """
    )
