"""The emulated GPU's driver, as programs see it: each in its own process, with the real `numba.cuda`."""

from importlib.util import find_spec

import pytest
from driver_programs import pytestmark, run  # noqa: F401 (the mark holds here too)

from gpuless.emulator.run import settings


def test_the_device_describes_itself():
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


def test_a_missing_function_is_named():
    out = run(
        """
        from gpuless.emulator.driver import last_detail
        print(cu.cuGraphicsUnmapResources(0, 0, 0)[0].name, last_detail())
        """
    )
    assert out == ["CUDA_ERROR_NOT_SUPPORTED cuGraphicsUnmapResources is not supported by the emulated GPU"]


def test_errors_have_names_and_descriptions():
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


def test_each_thread_has_a_stack_of_contexts():
    run("each_thread_has_a_stack_of_contexts.py")


def test_kinds_of_memory():
    run("kinds_of_memory.py")


def test_kernels_use_pinned_and_mapped_memory():
    run("kernels_use_pinned_and_mapped_memory.py")


def test_memory_is_limited():
    out = run(
        "memory_is_limited.py",
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
def test_the_memory_limit_of_a_container(membership, limits, wanted, tmp_path):
    for name, content in {f"sys/fs/cgroup/{name}": f"{limits[name]}\n" for name in limits}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    if membership is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(membership)
    assert settings.memory_limits(tmp_path) == wanted


def test_half_of_the_memory_limit_is_the_capacity(monkeypatch):
    monkeypatch.delenv("GPULESS_MEMORY", raising=False)
    for limits, wanted in (([1 << 62, 1 << 28], 1 << 27), ([1 << 20], 1 << 24)):
        monkeypatch.setattr(settings, "memory_limits", lambda limits=limits: limits)
        assert settings.capacity() == wanted


def test_freed_addresses_are_used_for_other_sizes():
    run("freed_addresses_are_used_for_other_sizes.py")


def test_more_arrays_than_the_operating_system_can_map():
    out = run("more_arrays_than_the_operating_system_can_map.py")
    assert out == ["CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_OUT_OF_MEMORY True"]


def test_copies_and_sets():
    run("copies_and_sets.py")


def test_streams_and_events():
    run("streams_and_events.py")


def test_waiting_for_a_stream_waits_for_its_callbacks():
    run("waiting_for_a_stream_waits_for_its_callbacks.py")


def test_work_after_a_callback_waits_for_it_on_any_stream():
    run("work_after_a_callback_waits_for_it_on_any_stream.py")


def test_exceptions_of_a_signal_handler_arrive_unchanged():
    """Such as the exception of a time limit, or `sys.exit()` in a handler of SIGTERM."""
    out = run("exceptions_of_a_signal_handler_arrive_unchanged.py")
    assert out == ["True 1", "True 2", "True 3", "True 4"]


def test_an_interrupt_while_waiting_for_a_callback_is_no_driver_error():
    """After it the host waits for the callback again."""
    run("an_interrupt_while_waiting_for_a_callback_is_no_driver_error.py")


def test_a_graph_runs_captured_work_only_when_launched():
    run("a_graph_runs_captured_work_only_when_launched.py")


def test_an_event_of_a_capture_is_valid_only_in_it():
    run("an_event_of_a_capture_is_valid_only_in_it.py")


def test_forbidden_calls_invalidate_a_capture():
    """It can only be ended then, without a graph."""
    run("forbidden_calls_invalidate_a_capture.py")


def test_a_capture_with_an_unjoined_stream_is_an_error():
    run("a_capture_with_an_unjoined_stream_is_an_error.py")


def test_a_destroyed_graph_leaves_nothing():
    run("a_destroyed_graph_leaves_nothing.py")


def test_a_graph_allocates_no_memory_and_fails_after_a_free():
    run("a_graph_allocates_no_memory_and_fails_after_a_free.py")


def test_launches_beyond_the_limits_are_rejected_harmlessly():
    run("launches_beyond_the_limits_are_rejected_harmlessly.py")


def test_a_cluster_of_several_blocks_is_rejected():
    out = run("a_cluster_of_several_blocks_is_rejected.py")
    assert out == ["CUDA_SUCCESS", "CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_NOT_SUPPORTED"]


def test_machine_code_of_a_gpu_is_rejected():
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
    run("pieces_of_ptx_are_linked.py")


def test_registers_are_estimated():
    """Live at once: an address and the terms of the sum, two words each; predicates do not count."""
    printed = run("registers_are_estimated.py")
    assert printed == [str(5 * 2 + 8), "12", "13"]


def test_print_keeps_its_order_and_an_assertion_is_reported():
    out = run("print_keeps_its_order_and_an_assertion_is_reported.py")
    assert out == [
        "thread 0 1.500000 False",
        "thread 1 -2.000000 True",
        "thread 2 inf False",
        "after",
        "True True",
        "thread 0 9.000000 False",
    ]


def test_cuda_c_is_compiled_and_run():
    """NVRTC caches compiled code, and asks the driver about it: it once crashed on the answer."""
    run("cuda_c_is_compiled_and_run.py")


def test_structures_are_passed_by_value():
    """Functions index them, write to them, return them, and call themselves with them."""
    run("structures_are_passed_by_value.py")


def test_an_assertion_is_reported_by_the_launch_that_failed():
    """The output of one launch is not lost while another, which has failed, runs again."""
    out = run(
        "an_assertion_is_reported_by_the_launch_that_failed.py",
        GPULESS_THREADS="2",
    )
    assert out == [
        "shown 1",
        "CUDA_SUCCESS",
        "CUDA_ERROR_ASSERT CUDA_ERROR_ASSERT",
        "shown 2",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
    ]


def test_malloc_returns_null_if_the_heap_is_too_small():
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


def test_functions_are_called_by_address():
    run("functions_are_called_by_address.py")


def test_variables_are_initialised_with_addresses():
    run("variables_are_initialised_with_addresses.py")


def test_a_recursion_stays_in_the_stack_and_a_limit_enlarges_it():
    out = run("a_recursion_stays_in_the_stack_and_a_limit_enlarges_it.py")
    assert out == ["True", "CUDA_ERROR_LAUNCH_FAILED True", "True True 30001"]


def test_all_blocks_of_a_grid_wait_for_each_other():
    run("all_blocks_of_a_grid_wait_for_each_other.py")


def test_worker_threads_have_their_own_memory_and_end():
    """A launch without a thread for each block is rejected, and leaves no waiting thread behind."""
    out = run("worker_threads_have_their_own_memory_and_end.py")
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


def test_idle_worker_threads_have_no_stacks():
    """There are at most as many as blocks to run: the operating system limits mappings of memory."""
    run("idle_worker_threads_have_no_stacks.py")


def test_several_threads_launch_at_once():
    """Also the first launch, while another thread loads the kernel."""
    run("several_threads_launch_at_once.py")


def test_each_block_shape_is_compiled_once():
    run("each_block_shape_is_compiled_once.py")


def test_a_block_past_the_grid_barrier_waits_no_more():
    # The first warp of one block is slow, its other warps arrive later; all other blocks have ended.
    run("a_block_past_the_grid_barrier_waits_no_more.py")


def test_a_kernel_that_no_gpu_can_assemble_is_rejected():
    run("a_kernel_that_no_gpu_can_assemble_is_rejected.py")


def test_a_fork_after_use_does_no_harm():
    run("a_fork_after_use_does_no_harm.py")


@pytest.mark.exhaustive_unless(
    lambda first: first == "torch", "PyTorch imported first, which finds the libraries as they were"
)
@pytest.mark.skipif(find_spec("torch") is None, reason="needs PyTorch")
@pytest.mark.parametrize("first", ["torch", "kernel"])
def test_pytorch_stays_on_the_cpu(first):
    run("pytorch_stays_on_the_cpu.py", FIRST=first)


def test_unwritten_memory_is_poisoned():
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


def test_memory_costs_nothing_until_written():
    """Even if all of it is read: 12 GB, on a computer that may have 4."""
    run(
        "memory_costs_nothing_until_written.py",
        GPULESS_MEMORY=str(13 << 30),
    )


def test_large_arrays_need_few_memory_mappings():
    """The operating system limits mappings; all addresses would need 18,000."""
    run("large_arrays_need_few_memory_mappings.py")
