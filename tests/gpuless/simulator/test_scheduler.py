import contextvars
import gc
import math
import re
import signal
import threading
import time
import warnings
import weakref
from pathlib import Path
from types import ModuleType

# First: this decides what numba.cuda is.
import gpuless

# isort: split
import numpy as np
import pytest
import simulator_kernels
from fresh_python import program_text, python
from numba import cuda, float32, float64, int32, uint8, uint32
from numba.core.errors import NumbaPerformanceWarning
from numba.cuda import threadIdx
from simulator_kernels import CASES

from gpuless import DivergenceError, LaunchError, UnsupportedPython, sanitize, simulator
from gpuless.simulator import Launch
from gpuless.simulator.arithmetic import as_dtype
from gpuless.simulator.intrinsics import GPU_MATH, Dim3, brev, clz, ffs, popc
from gpuless.simulator.memory import is_poison, poison, poisoned

gpuless.select()

WIDTH = 8
TABLE = np.arange(4, dtype=np.float32)


def launch(kernel, grid, block, *arguments, **options):
    """Run a kernel in every order; return the first array afterwards, which must always be the same."""
    results = []
    for order in ("forwards", "reversed", "shuffled", "in step"):
        given = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
        Launch(kernel, grid, block, **options).run(given, order=order)
        results.append(given[0])
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    return results[0]


# --- What kernels compute ----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kernels_compute_what_they_should(case):
    before, after = case.run()
    expected = case.expected(*before)
    assert expected
    for position, values in expected.items():
        np.testing.assert_allclose(after[position], values, rtol=2e-5, atol=1e-5)


SAVE_ALL = (
    "import numpy as np, sys, simulator_kernels as kernels",
    "from numba import cuda",
    "found = {}",
    "for case in kernels.CASES:",
    "    if case.stock or everything:",
    "        for position, value in enumerate(case.run()[1]):",
    "            found[f'{case.name}/{position}'] = value",
    "np.savez(file, **found)",
    "print(type(cuda.jit(lambda: None)).__name__, cuda.__file__)",
)


def assert_equal_to_ours(file, cases):
    with np.load(file) as theirs:
        for case in cases:
            for position, value in enumerate(case.run()[1]):
                np.testing.assert_array_equal(theirs[f"{case.name}/{position}"], value, err_msg=case.name)


@pytest.mark.needs("numba")
def test_kernels_compute_the_same_as_in_the_stock_simulator(tmp_path):
    python(f"file, everything = {str(tmp_path / 'stock.npz')!r}, False", *SAVE_ALL, NUMBA_ENABLE_CUDASIM="1")
    cases = [case for case in CASES if case.stock and case.name != "compaction"]
    assert len(cases) > 20
    assert_equal_to_ours(tmp_path / "stock.npz", cases)


def test_numba_without_numba_cuda_gets_the_same_simulator(tmp_path):
    printed = python(
        f"file, everything = {str(tmp_path / 'builtin.npz')!r}, True",
        "import sys",
        # numba-cuda puts itself in the place of numba.cuda by this finder; macOS does not have it.
        "sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != 'NumbaCudaFinder']",
        "import gpuless",
        "gpuless.select()",
        *SAVE_ALL,
        "from numba.cuda import threadIdx, syncthreads",
        NUMBA_ENABLE_CUDASIM="1",
    )
    assert printed.split() == ["Kernel", str(Path(simulator.__file__).parent / "standin/cuda/__init__.py")]
    assert_equal_to_ours(tmp_path / "builtin.npz", CASES)


def test_installing_imports_nothing_and_waits_for_numba_cuda():
    printed = python(
        "import sys, gpuless",
        "gpuless.select(), gpuless.select()",
        "print(*(name in sys.modules for name in ('numba', 'llvmlite', 'numba.cuda')))",
        "from numba import cuda",
        "print(cuda.jit.__module__, sum(type(f).__name__ == '_StandIns' for f in sys.meta_path))",
        "print([name for name in sys.modules if name.startswith('numba.cuda.sim')])",
        NUMBA_ENABLE_CUDASIM="1",
    )
    assert printed.splitlines() == ["False False False", "gpuless.simulator.jit 1", "[]"]


@pytest.mark.needs("numba")
def test_installing_leaves_a_real_numba_cuda_alone():
    printed = python(
        "import gpuless",
        "from numba import cuda",
        "import numba.cuda.simulator",
        "gpuless.select()",
        "print(type(cuda.jit(lambda x: None)).__name__)",
        NUMBA_ENABLE_CUDASIM="0",
    )
    assert printed == "CUDADispatcher\n"


@pytest.mark.needs("numba")
def test_numbas_simulator_imported_first_is_replaced_for_later_kernels():
    printed = python(
        program_text("numbas_simulator_comes_first.py"),
        NUMBA_ENABLE_CUDASIM="1",
    )
    assert printed.splitlines() == [
        "numba.cuda was imported before gpuless: kernels made so far stay in Numba's own simulator; "
        "import gpuless first",
        "FakeCUDAKernel Kernel",
        "refused",
        "[0]",
    ]


# --- The order of things -----------------------------------------------------------------------------------


@cuda.jit
def journal_kernel(lines, count):
    t = cuda.threadIdx.x
    lines[cuda.atomic.add(count, 0, 1)] = 100 * cuda.blockIdx.x + t
    cuda.syncthreads()
    lines[cuda.atomic.add(count, 0, 1)] = 100 * cuda.blockIdx.x + 10 + t


def journal(order, seed=0):
    lines, count = np.zeros(8, np.int64), np.zeros(1, np.int64)
    Launch(journal_kernel, 2, 2).run([lines, count], order=order, seed=seed)
    return lines.tolist()


def test_forwards_reversed_and_shuffled():
    assert journal("forwards") == [0, 1, 10, 11, 100, 101, 110, 111]
    assert journal("reversed") == [101, 100, 111, 110, 1, 0, 11, 10]
    shuffles = {tuple(journal("shuffled", seed)) for seed in range(20)}
    assert len(shuffles) > 4
    assert journal("shuffled", 3) == journal("shuffled", 3)
    for lines in shuffles:
        # Whatever the order, a block finishes an interval before the next, and itself before the next block.
        assert [line // 10 % 10 for line in lines] == [0, 0, 1, 1, 0, 0, 1, 1]
        assert sorted(lines) == journal("forwards")


def test_an_unknown_order_raises():
    with pytest.raises(ValueError, match="'sideways'"):
        journal("sideways")


@cuda.jit
def barrier_in_device_function(x):
    i = cuda.threadIdx.x
    tile = cuda.shared.array(WIDTH, float32)
    exchange(tile, i, x[i])
    x[i] = tile[WIDTH - 1 - i]


@cuda.jit(device=True)
def exchange(tile, i, value):
    tile[i] = value
    cuda.syncthreads()


def test_device_functions_may_wait():
    x = np.arange(WIDTH, dtype=np.float32)
    np.testing.assert_array_equal(launch(barrier_in_device_function, 1, WIDTH, x), x[::-1])


@cuda.jit(device=True)
def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


@cuda.jit
def recursive_kernel(x):
    x[cuda.threadIdx.x] = factorial(cuda.threadIdx.x)


def test_device_functions_may_call_themselves():
    assert launch(recursive_kernel, 1, 5, np.zeros(5)).tolist() == [1, 1, 2, 6, 24]


helpers = ModuleType("helpers")
helpers.factorial = factorial


@cuda.jit
def attribute_kernel(x):
    x[cuda.threadIdx.x] = helpers.factorial(cuda.threadIdx.x)


def test_device_functions_may_be_attributes_of_a_module():
    assert launch(attribute_kernel, 1, 4, np.zeros(4)).tolist() == [1, 1, 2, 6]


def test_closures_and_names_imported_from_numba_cuda():
    from numba import cuda as here
    from numba.cuda import grid, shared, syncthreads

    factor, table = 3, np.arange(4.0)

    @here.jit
    def kernel(x):
        tile = shared.array(4, float64)
        tile[threadIdx.x] = x[grid(1)] * factor + table[threadIdx.x]
        syncthreads()
        x[here.grid(1)] = tile[3 - threadIdx.x]

    assert launch(kernel, 1, 4, np.ones(4)).tolist() == [6, 5, 4, 3]


def test_the_module_of_a_kernel_is_not_touched():
    before = dict(vars(simulator_kernels))
    CASES[0].run()
    assert vars(simulator_kernels) == before
    assert simulator_kernels.cuda is cuda


def test_launches_from_several_threads():
    results = {}

    def work(number):
        x = np.full(64, float(number))
        for _ in range(20):
            Launch(barrier_kernel, 1, 64).run([x])
        results[number] = x

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: set(x) for number, x in results.items()} == {n: {n + 20.0} for n in range(4)}


@cuda.jit
def barrier_kernel(x):
    tile = cuda.shared.array(64, float64)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    cuda.syncthreads()
    x[t] = tile[63 - t] + 1


def test_nothing_keeps_the_arrays_of_the_last_launch():
    x = np.zeros(64)
    alive = weakref.ref(x)
    Launch(barrier_kernel, 1, 64).run([x])
    del x
    gc.collect()
    assert alive() is None


def test_a_configured_kernel_is_its_own():
    first = barrier_kernel[1, 64]
    second = barrier_kernel[1, 32, 0, 128]
    assert (first.block, first.dynamic_bytes) == ((64, 1, 1), 0)
    assert (second.block, second.dynamic_bytes) == ((32, 1, 1), 128)


def test_forall_covers_every_task():
    x = cuda.to_device(np.ones(300, np.float32))
    out = cuda.device_array(300, np.float32)
    simulator_kernels.scale.forall(300)(x, out)
    assert (out.copy_to_host() == 0.25).all()
    assert simulator_kernels.scale.forall(0)(x, out) is None


# --- Arguments ---------------------------------------------------------------------------------------------


@cuda.jit
def arguments_kernel(x, pair, number):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = pair[0][i] * number + pair[1]


def test_host_arrays_come_back_and_numba_warns_of_the_copy():
    x, a = np.zeros(4), np.arange(4.0)
    with pytest.warns(NumbaPerformanceWarning, match="argument x of arguments_kernel") as caught:
        arguments_kernel[1, 4](x, (cuda.to_device(a), 1.0), np.float64(2))
    assert x.tolist() == [1, 3, 5, 7]
    assert caught[0].filename == __file__


def test_device_arrays_are_used_in_place_without_a_warning():
    x = cuda.to_device(np.zeros(4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        arguments_kernel[1, 4](x, (cuda.to_device(np.ones(4)), 1.0), 2)
    assert x.copy_to_host().tolist() == [3, 3, 3, 3]


def test_in_out_and_inout():
    x, y = np.ones(21, np.float32), np.full(21, 7, np.float32)
    with pytest.warns(NumbaPerformanceWarning, match="argument x of scale"):
        simulator_kernels.scale[1, 16](cuda.In(x), cuda.Out(y))
    assert (y[:16] == 0.25).all()
    # An output-only array starts as garbage on the device.
    assert np.isnan(y[16:]).all()


def test_nothing_is_copied_back_after_an_error():
    x = np.zeros(3)
    with pytest.raises(IndexError), pytest.warns(NumbaPerformanceWarning):
        overrun_kernel[1, 4](x)
    assert x.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1, 2],), UnsupportedPython, "got a list for x.*cuda.to_device"),
        (({"a": 1},), UnsupportedPython, "got a dict for x"),
        (("text",), UnsupportedPython, "got a str for x"),
        ((np.zeros((4, 4))[:, ::2],), LaunchError, r"shape \(4, 2\) has strides"),
        ((), TypeError, r"takes 1 arguments \(x\), got 0"),
        ((1, 2), TypeError, r"takes 1 arguments \(x\), got 2"),
    ],
)
@pytest.mark.filterwarnings("ignore::numba.core.errors.NumbaPerformanceWarning")
def test_arguments_that_no_gpu_could_take_raise(arguments, error, message):
    with pytest.raises(error, match=message):
        overrun_kernel[1, 1](*arguments)


@pytest.mark.needs("torch")
@pytest.mark.exhaustive("the same file: what else no GPU could take is refused by its type")
def test_torch_tensors_on_the_host_raise():
    import torch

    with pytest.raises(UnsupportedPython, match="got a Tensor for x"):
        overrun_kernel[1, 1](torch.zeros(3))


@cuda.jit
def starred_kernel(out, *parts):
    for part in parts:
        out[cuda.threadIdx.x] += part[cuda.threadIdx.x]


def test_any_number_of_arguments():
    assert launch(starred_kernel, 1, 2, np.zeros(2), np.ones(2), np.ones(2)).tolist() == [2, 2]
    assert launch(starred_kernel, 1, 2, np.zeros(2)).tolist() == [0, 0]


@cuda.jit
def record_kernel(records):
    i = cuda.threadIdx.x
    records[i].x = records[i]["y"] + 1


def test_records():
    records = np.zeros(3, [("x", np.float32), ("y", np.int32)])
    records["y"] = [1, 2, 3]
    assert launch(record_kernel, 1, 3, records)["x"].tolist() == [2, 3, 4]


@cuda.jit
def read_table_kernel(x):
    x[cuda.threadIdx.x] = TABLE[cuda.threadIdx.x]


def test_global_arrays_are_read():
    assert launch(read_table_kernel, 1, 4, np.zeros(4)).tolist() == [0, 1, 2, 3]


@cuda.jit
def alias_kernel(x):
    table = cuda.const.array_like(TABLE)
    table[0] = 1


def test_constant_arrays_are_read_only():
    with pytest.raises(ValueError, match=r"read-only\n.*line \d+: table\[0\] = 1"):
        launch(alias_kernel, 1, 1, np.zeros(1))
    assert TABLE[0] == 0


# --- Errors say where --------------------------------------------------------------------------------------


@cuda.jit
def overrun_kernel(x):
    i = cuda.grid(1)
    x[i] = i


@cuda.jit(device=True)
def read(x, i):
    return x[i]


@cuda.jit
def overread_kernel(x):
    j, i = cuda.grid(2)
    if i == 3 and j == 4:
        x[0] = read(x, i + j)


def test_an_exception_names_kernel_line_block_and_thread():
    with pytest.raises(IndexError) as caught:
        overrun_kernel[2, 3](cuda.to_device(np.zeros(4)))
    message = str(caught.value)
    assert message.startswith("index 4 is out of bounds for axis 0 with size 4\n")
    line = overrun_kernel.py_func.__code__.co_firstlineno + 3
    assert f"in kernel overrun_kernel, line {line}: x[i] = i\n" in message
    assert message.endswith("block 1, thread 1")


def test_an_exception_in_a_device_function_names_it_too():
    with pytest.raises(IndexError) as caught:
        overread_kernel[(2, 2), (3, 2)](cuda.to_device(np.zeros(4)))
    message = str(caught.value)
    assert "in kernel overread_kernel, device function read, line" in message
    assert "return x[i]" in message
    assert message.endswith("block (1, 1), thread (1, 1)")
    # The traceback leads there as well.
    assert any(entry.name == "read" for entry in caught.traceback)


@cuda.jit
def raising_kernel(x):
    if cuda.threadIdx.x == 2:
        raise ValueError("no such thing")


@cuda.jit
def asserting_kernel(x):
    assert cuda.threadIdx.x != 1, "one is not allowed"


def test_kernels_may_raise():
    with pytest.raises(ValueError, match=r"no such thing\n.*raising_kernel.*\n.*thread 2"):
        raising_kernel[1, 4](1)
    with pytest.raises(AssertionError, match=r"(?s)one is not allowed\n.*asserting_kernel.*thread 1"):
        asserting_kernel[1, 4](1)


class PickyError(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


@cuda.jit
def picky_kernel(x):
    raise PickyError(1, 2)


def test_exceptions_that_take_more_than_a_message():
    with pytest.raises(RuntimeError, match=r"PickyError: \(1, 2\)\n.*picky_kernel"):
        picky_kernel[1, 1](1)


def test_a_launch_after_an_error_is_not_affected():
    with pytest.raises(DivergenceError):
        early_kernel[1, 8](cuda.to_device(np.zeros(8)))
    for case in CASES[:3]:
        case.run()
    x = cuda.to_device(np.arange(64.0))
    barrier_kernel[1, 64](x)
    assert x.copy_to_host().tolist() == [64.0 - i for i in range(64)]


@cuda.jit
def early_kernel(x):
    t = cuda.threadIdx.x
    if t >= 5:
        return
    cuda.syncthreads()


@cuda.jit
def two_barriers_kernel(x):
    if cuda.threadIdx.x % 2:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


@cuda.jit
def uneven_loop_kernel(x):
    for _ in range(cuda.threadIdx.x):
        cuda.syncthreads()


@cuda.jit
def same_line_kernel(x):
    (cuda.threadIdx.x and cuda.syncthreads()) or cuda.syncthreads()


@pytest.mark.parametrize(
    ("kernel", "threads", "other"),
    [
        (early_kernel, "thread 0 waits.*thread 5 has finished", None),
        (two_barriers_kernel, "thread 0 waits.*thread 1 waits at two_barriers_kernel, line", 3),
        (uneven_loop_kernel, "thread 1 waits.*thread 0 has finished", None),
        (same_line_kernel, "thread 0 waits.*thread 1 waits at", 0),
    ],
)
def test_divergent_barriers_raise(kernel, threads, other):
    with pytest.raises(DivergenceError, match=threads) as caught:
        kernel[1, 8](cuda.to_device(np.zeros(8)))
    assert caught.value.kind == "divergent barrier"
    assert f"in kernel {kernel.__name__}, block 0" in str(caught.value)
    assert (caught.value.other_site is None) == (other is None)


@cuda.jit
def many_barriers_kernel(x):
    for _ in range(50):
        cuda.syncthreads()
    x[cuda.grid(1)] = 1


def test_a_barrier_stays_the_same_barrier_when_python_specialises_it():
    # After a few rounds Python 3.11 and newer rewrites the call, and the frame points elsewhere in it.
    assert launch(many_barriers_kernel, 3, 40, np.zeros(120)).all()


@cuda.jit
def missing_lane_kernel(x):
    if cuda.threadIdx.x < 8:
        x[0] = cuda.shfl_down_sync(0xFFFFFFFF, 1, 1)
    else:
        cuda.syncthreads()


@cuda.jit
def wrong_mask_kernel(x):
    cuda.syncwarp(0x1)


@cuda.jit
def finished_lanes_kernel(x):
    t = cuda.threadIdx.x
    if t >= 20:
        return
    x[t] = cuda.shfl_down_sync(0xFFFFFFFF, x[t], 4)


def test_divergent_warps_raise():
    with pytest.raises(
        DivergenceError,
        match=r"\(lane 0 of warp 0\) waits at shfl_down_sync.*names lanes 8 to 31.*syncthreads",
    ):
        missing_lane_kernel[1, 32](cuda.to_device(np.zeros(1)))
    with pytest.raises(
        DivergenceError, match=r"lane 1 of .* calls syncwarp \(.*\) with mask 0x1, which does not name"
    ):
        wrong_mask_kernel[1, 32](cuda.to_device(np.zeros(1)))


def test_a_finished_lane_gives_garbage_without_waiting():
    x = launch(finished_lanes_kernel, 1, 32, np.arange(32.0))
    np.testing.assert_array_equal(x[:16], np.arange(4, 20.0))
    assert np.isnan(x[16:20]).all()


# --- Launches that do not end ------------------------------------------------------------------------------


@pytest.fixture
def short_limits():
    before = gpuless.set_limits(seconds=0.3, log_entries=20_000)
    yield
    gpuless.set_limits(**before)


@cuda.jit
def counts_for_ever(x):
    while True:
        x[0] += 1


@cuda.jit
def waits_for_a_flag(flag):
    if cuda.threadIdx.x == 3:
        while flag[0] == 0:
            pass
    flag[0] = 1 if cuda.threadIdx.x > 3 else 0


@cuda.jit
def barriers_for_ever(x):
    while x[0] == 0:
        cuda.syncthreads()


@cuda.jit(device=True)
def keeps_voting():
    while cuda.any_sync(0xFFFFFFFF, True):
        pass


@cuda.jit
def votes_for_ever(x):
    if cuda.blockIdx.x == 1:
        keeps_voting()


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize(
    ("kernel", "line", "thread"),
    [
        (counts_for_ever, r": (while True:|x\[0\] \+= 1)", "block 0, thread 0"),
        (waits_for_a_flag, ": (while flag.*|pass)", "block 0, thread 3"),
        (barriers_for_ever, ": (while x.*|cuda.syncthreads.*)", r"block 0, thread \d+"),
        (votes_for_ever, r", device function keeps_voting, line \d+: .*", r"block 1, thread \d+"),
    ],
    ids=lambda kernel: getattr(getattr(kernel, "py_func", None), "__name__", ""),
)
def test_an_endless_launch_is_stopped(kernel, line, thread):
    x = cuda.to_device(np.zeros(1))
    with pytest.raises(gpuless.LaunchStopped) as stopped:
        kernel[2, 40](x)
    message = str(stopped.value)
    assert message.startswith(
        "no thread has finished in 0.3 s of processor time: is a loop without end? A loop"
    )
    assert "waits for another thread to write" in message
    assert "set_limits(seconds=...)" in message
    assert re.search(rf"\n  in kernel {kernel.py_func.__name__}.*{line}\n  {thread}$", message), message
    # Nothing is left of it.
    x.copy_to_host()
    after = cuda.to_device(np.zeros(64))
    block_sized_launch[2, 32](after)
    assert after.copy_to_host().tolist() == [32] * 64


@cuda.jit
def adds_under_a_lock(x, lock):
    while cuda.atomic.cas(lock, 0, 0, 1) != 0:
        pass
    x[0] += 1
    cuda.threadfence()
    cuda.atomic.exch(lock, 0, 0)


@pytest.mark.usefixtures("short_limits")
def test_a_lock_among_lanes_in_step_is_an_endless_loop(monkeypatch):
    def launched():
        x, lock = cuda.to_device(np.zeros(1)), cuda.to_device(np.zeros(1, np.int32))
        adds_under_a_lock[1, 40](x, lock)
        return x.copy_to_host()

    monkeypatch.setenv("GPULESS_ORDER", "forwards")
    assert launched() == [40]
    monkeypatch.setenv("GPULESS_ORDER", "in step")
    with pytest.raises(gpuless.LaunchStopped) as stopped:
        launched()
    reason, line, thread = str(stopped.value).splitlines()
    assert "as the lanes of a warp run in step here" in reason
    assert "Let one lane of a warp take the lock. gpuless.set_limits" in reason
    assert re.search(r"line \d+: (while cuda.atomic.cas|pass)", line)
    assert thread.strip() == "block 0, thread 1"


@cuda.jit
def block_sized_launch(x):
    cuda.syncthreads()
    x[cuda.grid(1)] = cuda.blockDim.x


@cuda.jit
def busy_thread(x):
    total = 0
    for k in range(x[cuda.grid(1)]):
        total += k


@pytest.mark.usefixtures("short_limits")
def test_a_long_launch_of_threads_that_finish_is_not_stopped():
    begun = time.thread_time()
    for _ in range(3):
        busy_thread[40, 20](cuda.to_device(np.full(800, 10_000)))
    assert time.thread_time() - begun > 0.3


@pytest.mark.usefixtures("short_limits")
def test_a_launch_that_waits_is_not_stopped():
    x = np.zeros(64)
    Launch(barrier_kernel, 1, 64).run([x], observe=lambda *_: time.sleep(0.01))
    assert x.tolist() == [1] * 64


@pytest.mark.usefixtures("short_limits")
def test_without_thread_clocks_the_process_clock_counts(monkeypatch):
    monkeypatch.delattr(time, "thread_time")
    with pytest.raises(gpuless.LaunchStopped):
        counts_for_ever[1, 1](cuda.to_device(np.zeros(1)))


@pytest.mark.usefixtures("short_limits")
def test_a_launch_in_another_thread_is_stopped_there():
    errors = []

    def work():
        try:
            counts_for_ever[1, 1](cuda.to_device(np.zeros(1)))
        except gpuless.LaunchStopped as stopped:
            errors.append(stopped)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert len(errors) == 1


def test_an_endless_launch_can_be_interrupted():
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        counts_for_ever[1, 1](cuda.to_device(np.zeros(1)))
    timer.join()


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize("run", [gpuless.sanitize, gpuless.record, gpuless.access_map])
@pytest.mark.parametrize("kernel", [counts_for_ever, barriers_for_ever], ids=["accesses", "barriers"])
def test_the_log_is_limited(run, kernel):
    gpuless.set_limits(seconds=600)
    with pytest.raises(
        gpuless.LaunchStopped,
        match=rf"has more than 20,000 entries: .*set_limits\(log_entries=...\) allows more\n  in kernel "
        rf"{kernel.py_func.__name__}, line \d+: .*\n  block 0, thread",
    ):
        run(kernel)[2, 8](cuda.to_device(np.zeros(1)))


@cuda.jit
def one_access_kernel(x):
    x[cuda.grid(1)] = 1


@pytest.mark.usefixtures("short_limits")
def test_the_log_of_many_threads_without_loops_is_limited():
    gpuless.set_limits(seconds=600)
    with pytest.raises(
        gpuless.LaunchStopped, match=r"has more than 20,000 entries: .*\n  in kernel one_acc.*"
    ):
        gpuless.record(one_access_kernel)[500, 64](cuda.to_device(np.zeros(32_000)))


@cuda.jit
def spins_on_what_lies_beyond(x, out):
    i = cuda.grid(1)
    out[i] = 1
    while x[i + 5] != 7:
        out[i] = 2


@pytest.mark.usefixtures("short_limits")
@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"seconds": 600}, "has more than 20,000 entries"), ({"log_entries": 10**8}, "has finished in 0.3 s")],
    ids=["log", "time"],
)
def test_findings_before_a_launch_is_stopped_are_reported(limits, reason):
    gpuless.set_limits(**limits)
    report = sanitize(spins_on_what_lies_beyond)[1, 4](cuda.to_device(np.zeros(5)), cuda.device_array(5))
    assert report.kinds == {"out of bounds"}
    assert reason in report.stopped
    (note,) = report.notes
    assert note.startswith("the launch was stopped before its end: ")
    assert re.search(r" more \(in kernel spins_on_what_lies_beyond, line .*, block 0, thread 0\)$", note)
    found = str(report)
    assert found.index("reads x[5], and x has 5 elements") < found.index("note: the launch was stopped")


@cuda.jit
def waits_for_the_block_before(turn, x):
    block = cuda.blockIdx.x
    while cuda.atomic.add(turn, 0, 0) < block:
        pass
    x[block] = block
    cuda.threadfence()
    cuda.atomic.add(turn, 0, 1)


def test_an_order_that_makes_a_launch_endless_is_noted(short_limits):
    turn, x = cuda.to_device(np.zeros(1, np.int32)), cuda.to_device(np.zeros(2))
    report = sanitize(waits_for_the_block_before)[2, 1](turn, x)
    assert report.ok, str(report)
    assert report.notes[0].startswith("reversed, the launch did not end: no thread has finished in 0.3 s")
    assert "in kernel waits_for_the_block_before, line" in report.notes[0]
    assert x.copy_to_host().tolist() == [0, 1]


def test_limits_are_positive_numbers():
    before = gpuless.set_limits()
    assert before == {"seconds": 60, "log_entries": 5_000_000, "kernel_seconds": 120}
    for wrong in ({"seconds": 0}, {"seconds": "9"}, {"log_entries": -1}, {"seconds": 5, "log_entries": True}):
        with pytest.raises(ValueError, match=r"(seconds|log_entries) must be a positive number, got "):
            gpuless.set_limits(**wrong)
    assert gpuless.set_limits(seconds=math.inf) == before
    assert gpuless.set_limits(**before) == before | {"seconds": math.inf}


# --- Limits of hardware ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "block", "message"),
    [
        (0, 32, r"grid \(0,\): x is 0"),
        ((2, 0), 32, r"grid \(2, 0\): y is 0"),
        (1, 0, r"block \(0,\): x is 0"),
        (-1, 32, "x is -1"),
        (1, 1025, "x is 1025, and a GPU allows 1024"),
        (1, (32, 33), r"\(32, 33, 1\) has 1056 threads, and a GPU allows 1024"),
        (1, (1, 1, 65), "z is 65, and a GPU allows 64"),
        ((1, 65536), 1, "y is 65536, and a GPU allows 65535"),
        ((1, 1, 1, 1), 1, "1, 2 or 3 dimensions"),
        ((), 1, "1, 2 or 3 dimensions"),
    ],
)
def test_grids_and_blocks_that_no_gpu_has_raise(grid, block, message):
    with pytest.raises(LaunchError, match=message):
        overrun_kernel[grid, block](None)


def test_grids_are_integers():
    with pytest.raises(TypeError, match=r"1\.5"):
        overrun_kernel[1.5, 1]
    assert overrun_kernel[np.int32(2), (np.int64(4), 2)].block == (4, 2, 1)


def test_a_launch_needs_its_configuration():
    with pytest.raises(LaunchError, match=r"overrun_kernel\[grid, block\]"):
        overrun_kernel(np.zeros(1))
    with pytest.raises(LaunchError, match="configured as"):
        overrun_kernel[4]
    with pytest.raises(LaunchError, match="read is a device function"):
        read(1, 2)
    with pytest.raises(LaunchError, match="read is a device function"):
        read[1, 2]
    with pytest.raises(LaunchError, match="cannot launch another"):
        launching_kernel[1, 1](1)


@cuda.jit
def launching_kernel(x):
    overrun_kernel[1, 1](x)


def test_the_largest_block_runs():
    x = cuda.to_device(np.zeros(1024))
    overrun_kernel[1, 1024](x)
    assert x.copy_to_host().tolist() == list(range(1024))


BIG, HUGE = 12289, 12288


@cuda.jit
def too_much_shared_kernel(x):
    big = cuda.shared.array(BIG, float32)
    big[0] = 1


@cuda.jit
def two_too_large_kernel(x):
    first = cuda.shared.array(HUGE, float32)
    second = cuda.shared.array(1, uint8)
    first[0] = second[0] = 1


@cuda.jit
def just_enough_kernel(x):
    big = cuda.shared.array(HUGE, float32)
    big[0] = 1


@cuda.jit
def local_kernel(x):
    big = cuda.local.array(HUGE, float64)
    other = cuda.local.array((HUGE, 12), float32)
    big[0] = other[0, 0] = 1


@cuda.jit
def dynamic_kernel(x):
    y = cuda.shared.array(0, float32)
    x[0] = y.size


@cuda.jit
def dynamic_garbage_kernel(x):
    y = cuda.shared.array(0, float64)
    x[0] = y[0]
    y[0] = 1


CONSTANTS = np.zeros(20_000)


@cuda.jit
def constant_kernel(x):
    x[0] = cuda.const.array_like(CONSTANTS)[0]


def test_memory_is_as_small_as_on_a_gpu():
    x = cuda.to_device(np.zeros(1))
    with pytest.raises(LaunchError, match=r"48 KB.*needs 49156: big 49156\n.*line.*BIG"):
        too_much_shared_kernel[1, 1](x)
    with pytest.raises(LaunchError, match="needs 49153: first 49152, second 1"):
        two_too_large_kernel[1, 1](x)
    with pytest.raises(LaunchError, match="needs 49156: big 49152, dynamic 4"):
        just_enough_kernel[1, 1, 0, 4](x)
    with pytest.raises(LaunchError, match=r"48 KB.*not 49153"):
        just_enough_kernel[1, 1, 0, 49153]
    with pytest.raises(LaunchError, match="512 KB"):
        local_kernel[1, 1](x)
    with pytest.raises(LaunchError, match=r"64 KB.*160000.*line \d+"):
        constant_kernel[1, 1](x)
    just_enough_kernel[2, 1](x)


def test_dynamic_shared_memory_is_asked_for_at_the_launch():
    with pytest.raises(LaunchError, match=r"kernel\[grid, block, stream, bytes\]"):
        dynamic_kernel[1, 1](cuda.to_device(np.zeros(1)))
    assert launch(dynamic_kernel, 1, 1, np.zeros(1), dynamic_bytes=18).tolist() == [4]
    assert np.isnan(launch(dynamic_garbage_kernel, 2, 1, np.zeros(1), dynamic_bytes=8)).all()


@cuda.jit(launch_bounds=(64, 2))
def bounded_kernel(x):
    x[cuda.grid(1)] = 1


def test_launch_bounds_hold():
    assert launch(bounded_kernel, 1, 64, np.zeros(64)).all()
    with pytest.raises(LaunchError, match="65 threads, and launch_bounds allow 64"):
        bounded_kernel[1, 65]


# --- Options of the compiler -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"launch_bounds": 64, "max_registers": 32, "lineinfo": True, "fastmath": True},
        {"lto": True, "forceinline": True, "extensions": [], "opt": True, "debug": False, "cache": True},
        {"inline": "always", "shared_memory_carveout": "MaxShared", "link": []},
    ],
)
def test_options_of_the_compiler_are_accepted(options):
    @cuda.jit(**options)
    def kernel(x):
        x[cuda.grid(1)] = 1

    assert launch(kernel, 1, 4, np.zeros(4)).all()
    assert kernel.targetoptions == options | {"device": False}


def test_signatures_are_accepted():
    for signature in ("void(float64[:])", ["void(float64[:])"], (float64[:],)):
        kernel = cuda.jit(signature, fastmath=True)(bounded_kernel.py_func)
        assert launch(kernel, 1, 4, np.zeros(4)).all()


def test_unknown_options_raise():
    with pytest.raises(TypeError, match=r"no option fastmaths; it has .*fastmath"):
        cuda.jit(fastmaths=True)
    with pytest.raises(NotImplementedError, match="bounds checking"):
        cuda.jit(boundscheck=True)
    with pytest.raises(NotImplementedError, match="linked"):
        cuda.jit(link=["code.cu"])


# --- Python no compiler takes ------------------------------------------------------------------------------


def plain(x):
    return x


def list_kernel(x):
    values = [1, 2]
    x[0] = values[0]


def comprehension_kernel(x):
    x[0] = sum([i for i in range(3)])


def generator_kernel(x):
    x[0] = sum(i for i in range(3))


def dict_kernel(x):
    x[0] = {1: 2}[1]


def set_kernel(x):
    x[0] = len({1, 2})


def format_kernel(x):
    print(f"{x[0]}")


def concatenate_kernel(x):
    print("a" + "b")


def str_kernel(x):
    print(str(x[0]))


def sorted_kernel(x):
    x[0] = sorted((2, 1))[0]


def zeros_kernel(x):
    x[0] = np.zeros(3)[0]


def exp_kernel(x):
    x[0] = np.exp(x[0])


def max_kernel(x):
    x[0] = np.max(x)


def method_kernel(x):
    x[0] = x.max()


def slice_kernel(x):
    x[0] = x[1:3].max()


def add_at_kernel(x):
    np.add.at(x, 0, 1)


def return_kernel(x):
    if x[0] > 0:
        return
    return x[0]


def plain_kernel(x):
    x[0] = plain(x[0])


def try_kernel(x):
    try:
        x[0] = 1
    except IndexError:
        pass


def with_kernel(x):
    with np.errstate():
        x[0] = 1


def import_kernel(x):
    import math

    x[0] = math.pi


def global_kernel(x):
    global WIDTH
    WIDTH = 3


def write_table_kernel(x):
    TABLE[0] += 1


WIDE_TABLE, OTHER_TABLE = np.ones(5000), np.ones(5000)


def big_tables_kernel(x):
    for i in range(x.size):
        x[i] = WIDE_TABLE[i]
        x[i] += OTHER_TABLE[-i]


def big_table_kernel(x):
    for i in range(x.size):
        x[i] = WIDE_TABLE[i] + WIDE_TABLE[i + 1]


def computed_shape_kernel(x):
    tile = cuda.shared.array((WIDTH, WIDTH + 1), float32)
    tile[0, 0] = 1


def argument_shape_kernel(x):
    tile = cuda.shared.array(shape=x.shape[0], dtype=float32)
    tile[0] = 1


def block_shape_kernel(x):
    mine = cuda.local.array(cuda.blockDim.x, float32)
    mine[0] = 1


def changing_shape_kernel(x):
    n = 4
    n = 5
    mine = cuda.local.array(n, float32)
    mine[0] = 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (list_kernel, "lists cannot be built"),
        (comprehension_kernel, "lists cannot be built: write the loop"),
        (generator_kernel, "generators"),
        (dict_kernel, "dicts"),
        (set_kernel, "sets"),
        (format_kernel, "strings cannot be built"),
        (concatenate_kernel, "strings cannot be built"),
        (str_kernel, r"str\(\) is not supported"),
        (sorted_kernel, r"sorted\(\) is not supported"),
        (zeros_kernel, "np.zeros is not available"),
        (exp_kernel, "np.exp is not available: use math.exp"),
        (max_kernel, "np.max is not available"),
        (method_kernel, "arrays have no max in a kernel: write a loop"),
        (slice_kernel, "arrays have no max in a kernel: write a loop"),
        (add_at_kernel, "np.add.at is not available"),
        (return_kernel, "a kernel returns nothing"),
        (plain_kernel, "plain is a plain Python function.*device=True"),
        (try_kernel, "exceptions cannot be caught"),
        (with_kernel, "`with`"),
        (import_kernel, "nothing can be imported"),
        (global_kernel, "globals are constants"),
        (write_table_kernel, "the global array TABLE is a constant.*pass it as an argument"),
        (big_tables_kernel, "65536 bytes .* of global arrays.* not 80000: pass OTHER_TABLE as an argument"),
        (big_table_kernel, "not 80000: pass WIDE_TABLE as an argument"),
        (computed_shape_kernel, r"shape \(WIDTH, WIDTH \+ 1\) must be known"),
        (argument_shape_kernel, r"shape x.shape\[0\] must be known"),
        (block_shape_kernel, "shape cuda.blockDim.x must be known"),
        (changing_shape_kernel, "shape n must be known"),
    ],
)
def test_unsupported_python_raises_with_its_line(function, message):
    kernel = cuda.jit(function)
    with pytest.raises(UnsupportedPython, match=message) as caught:
        kernel[1, 1](cuda.to_device(np.zeros(3)))
    first = function.__code__.co_firstlineno
    line = int(str(caught.value).partition("line ")[2].partition(":")[0])
    assert first < line <= first + 4
    assert f"in kernel {function.__name__}" in str(caught.value)


@pytest.mark.parametrize(("axes", "what"), [(2, "numbers"), (3, "arrays")])
def test_an_index_for_fewer_axes_than_an_array_has_leaves_an_array(axes, what):
    def kernel(x):
        x[0, 0] = x[0, 1].max()

    with pytest.raises(UnsupportedPython, match=f"{what} have no max in a kernel"):
        cuda.jit(kernel)[1, 1](cuda.to_device(np.zeros((2,) * axes)))


@cuda.jit(device=True)
def bad_device_function(x):
    return [x]


@cuda.jit
def calls_bad_kernel(x):
    x[0] = bad_device_function(1)[0]


def test_device_functions_are_checked_too():
    with pytest.raises(UnsupportedPython, match=r"in device function bad_device_function.*lists"):
        calls_bad_kernel[1, 1](cuda.to_device(np.zeros(3)))


LONG_TABLE, LONG_MATRIX = np.ones(100_000), np.ones((300, 300))


@cuda.jit
def folded_kernel(x):
    x[0] = LONG_TABLE[7] + LONG_TABLE.shape[0] + len(LONG_TABLE) + LONG_MATRIX[1, WIDTH]
    for i in range(x.size):
        x[i] += WIDE_TABLE[i]


def test_only_unknown_uses_of_a_global_array_are_errors():
    x = np.zeros(3)
    folded_kernel[1, 1](x)
    assert x.tolist() == [200_003, 1, 1]


@cuda.jit
def allowed_kernel(x):
    """A docstring is no string."""
    n = 4
    mine = cuda.local.array((n, 2 * 2, WIDTH), dtype=np.float32)
    mine[0, 0, 0] = np.float32(np.pi) + np.sin(x[0]) + np.finfo(np.float32).eps
    first, second = divmod(7, 3)

    def twice(value):
        return 2 * value

    if x[0] > 100:
        print("large", x[0])
        return None
    for i, value in enumerate(x):
        x[i] = max(twice(value), first, second) ** 2 if value >= 0 else abs(value)
    assert x.size == 3, "three"


def test_supported_python_does_not_raise():
    assert launch(allowed_kernel, 1, 1, np.array([0.0, 5.0, -3.0])).tolist() == [4, 100, 3]


def test_kernels_without_source_run_unchecked():
    scope = {"cuda": cuda}
    exec("def kernel(x):\n    x[0] = [3][0]", scope)
    assert launch(cuda.jit(scope["kernel"]), 1, 1, np.zeros(1)).tolist() == [3]


# --- Memory ------------------------------------------------------------------------------------------------


@cuda.jit
def garbage_kernel(floats, integers):
    shared = cuda.shared.array(4, float32)
    counts = cuda.shared.array(4, int32)
    mine = cuda.local.array(4, float64)
    mine_too = cuda.local.array(4, uint32)
    t = cuda.threadIdx.x
    floats[t] = shared[t] + mine[t]
    integers[t] = max(abs(counts[t]), mine_too[t])
    shared[t], counts[t] = 1, 1


def test_new_memory_is_garbage_in_every_block():
    for block in (1, 2):
        floats, integers = np.zeros(4), np.zeros(4, np.int64)
        Launch(garbage_kernel, block, 4).run([floats, integers])
        assert np.isnan(floats).all()
        assert (integers > 2**30).all()


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
def test_poison_is_known_again(dtype):
    array = poisoned((3, 2), np.dtype(dtype))
    assert is_poison(array).all()
    value = poison(np.dtype(dtype))
    assert np.isnan(value) if dtype[0] == "f" else abs(int(value)) > np.iinfo(dtype).max // 2
    array[1, 1] = 0
    alone = np.dtype(dtype).itemsize >= 4 or dtype == "f2"
    assert is_poison(array).sum() == (5 if alone else 0)
    assert not is_poison(np.full(4, np.nan if dtype[0] == "f" else 1, dtype)).any()


@pytest.mark.parametrize("dtype", ["c8", "?", [("x", "f4")]])
def test_poison_of_other_types(dtype):
    array = poisoned(3, np.dtype(dtype))
    assert not is_poison(array).any()


def test_device_arrays_are_poisoned():
    assert is_poison(cuda.device_array((2, 3), np.float32).copy_to_host()).all()
    assert is_poison(cuda.device_array_like(np.zeros((2, 3), np.int32)).copy_to_host()).all()
    assert not is_poison(cuda.to_device(np.zeros(3)).copy_to_host()).any()


def test_types_of_numba_and_of_numpy():
    for dtype in (float32, np.float32, "float32", np.dtype("float32")):
        assert as_dtype(dtype) == np.float32
    assert as_dtype(cuda.types.boolean if hasattr(cuda, "types") else np.bool_) == np.bool_


@cuda.jit
def one_place_kernel(x):
    for step in range(3):
        value = cuda.shared.array(1, float32)
        if step == 0 and cuda.threadIdx.x == 0:
            value[0] = 5
        cuda.syncthreads()
    x[cuda.threadIdx.x] = value[0]


def test_one_place_in_the_source_is_one_shared_array():
    assert launch(one_place_kernel, 1, 4, np.zeros(4)).tolist() == [5] * 4


@cuda.jit
def cached_kernel(x):
    i = cuda.threadIdx.x
    cuda.stcs(x, i, cuda.ldcg(x, i) + cuda.ldca(x, (i,)))
    cuda.threadfence_block()
    cuda.nanosleep(10)


def test_loads_and_stores_with_hints():
    assert launch(cached_kernel, 1, 3, np.arange(3.0)).tolist() == [0, 2, 4]


def test_as_cuda_array():
    array = cuda.to_device(np.zeros(3))
    assert cuda.as_cuda_array(array) is array
    assert cuda.is_cuda_array(array)
    assert not cuda.is_cuda_array(np.zeros(3))
    with pytest.raises(TypeError, match="ndarray is not in device memory"):
        cuda.as_cuda_array(np.zeros(3))


def test_names_of_the_device_outside_of_a_kernel():
    for use in (cuda.syncthreads, lambda: cuda.threadIdx.x, lambda: cuda.shared.array(3, float32)):
        with pytest.raises(LaunchError, match="only be used in a kernel"):
            use()
    assert not hasattr(cuda.threadIdx, "_repr_html_")


# --- Arithmetic --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (popc, 0b1011, 3),
        # Numbers in a kernel have no width: one that does not fit into 32 bits has 64.
        (popc, -1, 32),
        (popc, -(2**31) - 1, 63),
        (brev, 1, 1 << 31),
        (brev, 1 << 63, 1),
        (clz, 1, 31),
        (clz, 1 << 32, 31),
        (clz, 0, 32),
        (ffs, 0, 0),
        (ffs, 0b1000, 4),
        (ffs, -(2**31), 32),
    ],
)
def test_bits(function, value, expected):
    assert function(value) == expected


@cuda.jit
def arithmetic_kernel(x):
    x[0] = cuda.fma(x[0], x[1], x[2])
    x[1] = cuda.cbrt(x[3])
    x[2] = cuda.selp(x[4] > 0, x[5], x[6])
    pair = cuda.float32x2(1, 2)
    quad = cuda.float4(pair, pair)
    x[3] = quad.x + quad.w
    x[4] = cuda.fp16.hmul(np.float16(3), np.float16(0.5)) + cuda.fp16.hfloor(np.float16(2.5))
    x[5] = uint32(-1) >> uint32(28)
    x[6] = cuda.warpsize + cuda.laneid


def test_arithmetic_of_the_device():
    x = launch(arithmetic_kernel, 1, 1, np.array([2.0, 3.0, 4.0, 27.0, -1.0, 8.0, 9.0]))
    assert x.tolist() == pytest.approx([10, 3, 9, 3, 3.5, 15, 32])


def test_math_answers_as_on_a_gpu():
    with np.errstate(all="ignore"):
        assert GPU_MATH.log(0.0) == -np.inf
        assert GPU_MATH.exp(1000.0) == np.inf
        assert GPU_MATH.pow(0.0, -1.0) == np.inf
        assert np.isnan(GPU_MATH.sqrt(-1.0))
        assert np.isnan(GPU_MATH.acos(2.0))
    assert GPU_MATH.hypot(3, 4) == 5


@cuda.jit
def overflow_kernel(x):
    x[0] = x[0] * x[0] + np.float32(1) / x[1]


def test_kernels_overflow_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = launch(overflow_kernel, 1, 1, np.array([3e38, 0], np.float32))
    assert x[0] == np.inf
    with pytest.warns(RuntimeWarning):
        np.float32(3e38) * np.float32(10)


def test_dim3_unpacks():
    assert tuple(Dim3(1, 2, 3)) == (1, 2, 3)


@cuda.jit
def grid_group_kernel(x):
    cuda.cg.this_grid().sync()


def test_grid_groups_have_one_block():
    grid_group_kernel[1, 4](1)
    with pytest.raises(LaunchError, match="grid of one"):
        grid_group_kernel[2, 4](1)


@pytest.mark.filterwarnings("ignore")  # Numba's own, as it makes the states
def test_random_numbers_of_numba():
    from numba.cuda.random import create_xoroshiro128p_states, xoroshiro128p_uniform_float32

    @cuda.jit
    def kernel(states, x):
        i = cuda.grid(1)
        x[i] = xoroshiro128p_uniform_float32(states, i)

    states = create_xoroshiro128p_states(8, seed=1)
    x = cuda.device_array(8, np.float32)
    kernel[1, 8](states, x)
    x = x.copy_to_host()
    assert ((x >= 0) & (x < 1)).all()
    assert len(set(x.tolist())) == 8


def test_a_kernel_sees_the_context_of_its_launch():
    """A context variable decides below which notebook cell output appears."""
    cell, seen = contextvars.ContextVar("cell"), []

    def kernel():
        seen.append(cell.get())

    for name in ("first", "second"):
        cell.set(name)
        Launch(kernel, 1, 2)()
    assert seen == ["first"] * 2 + ["second"] * 2
