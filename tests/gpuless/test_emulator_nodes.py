"""Graphs that are built node by node, by the driver's functions and as `cuda.core` does it."""

import pytest
from test_emulator_driver import pytestmark, run  # noqa: F401 (the mark holds here too)

BUILD = '''
from cuda.core import Device, Program, ProgramOptions
kernel = """extern "C" __global__ void add(float *x, float v) { x[threadIdx.x] += v; }"""
kernel = Program(kernel, "c++", options=ProgramOptions(arch="sm_80")).compile("ptx").get_kernel("add")
relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
invalid = cu.CUresult.CUDA_ERROR_INVALID_VALUE
one, other, stream = check(cu.cuMemAlloc(128)), check(cu.cuMemAlloc(128)), check(cu.cuStreamCreate(1))
def read(pointer):
    return np.frombuffer(ctypes.string_at(int(pointer), 128), np.float32)
def adding(value, threads=32, pointer=one):
    given = cu.CUDA_KERNEL_NODE_PARAMS()
    given.func = cu.CUfunction(int(kernel.handle))
    given.gridDimX = given.gridDimY = given.gridDimZ = given.blockDimY = given.blockDimZ = 1
    given.blockDimX = threads
    given.kernelParams = (int(pointer), value), (ctypes.c_void_p, ctypes.c_float)
    return given
def copying(to, source, width=128, height=1, pitch=0):
    given = cu.CUDA_MEMCPY3D()
    given.srcMemoryType = given.dstMemoryType = cu.CUmemorytype.CU_MEMORYTYPE_DEVICE
    given.srcDevice, given.dstDevice, given.srcPitch, given.dstPitch = source, to, pitch, pitch
    given.WidthInBytes, given.Height, given.Depth = width, height, 1
    return given
def setting(to, value, width=32, height=1, pitch=0, size=4):
    given = cu.CUDA_MEMSET_NODE_PARAMS()
    given.dst, given.value, given.elementSize, given.width, given.height = to, value, size, width, height
    given.pitch = pitch
    return given
context = check(cu.cuCtxGetCurrent())
graph = check(cu.cuGraphCreate(0))
first = check(cu.cuGraphAddMemsetNode(graph, None, 0, setting(one, 0), context))
second = check(cu.cuGraphAddKernelNode(graph, [first], 1, adding(3)))
third = check(cu.cuGraphAddMemcpyNode(graph, [second], 1, copying(other, one), context))
'''


def build(program):
    return run(BUILD + "\n" + "\n".join(line.removeprefix("        ") for line in program.split("\n")))


def test_nodes_are_run_one_after_the_other_and_not_before():
    build(
        """
        check(cu.cuMemsetD32(other, 0, 32))
        nodes = first, second, third
        kinds = [check(cu.cuGraphNodeGetType(node)).name.rpartition("_")[2] for node in nodes]
        assert kinds == ["MEMSET", "KERNEL", "MEMCPY"]
        steps = check(cu.cuGraphInstantiate(graph, 0))
        assert not read(other).any()
        for _ in range(2):
            check(cu.cuGraphLaunch(steps, stream))
            assert read(other).tolist() == [3] * 32
        # A graph that is no more, or another one now, changes nothing of what was made of it.
        check(cu.cuGraphKernelNodeSetParams(second, adding(4)))
        check(cu.cuGraphLaunch(steps, stream))
        assert read(other).tolist() == [3] * 32
        check(cu.cuGraphExecUpdate(steps, graph))
        check(cu.cuGraphDestroy(graph))
        check(cu.cuGraphLaunch(steps, stream))
        assert read(other).tolist() == [4] * 32
        """
    )


def test_what_a_node_does_may_change_without_another_graph():
    build(
        """
        steps = check(cu.cuGraphInstantiate(graph, 0))
        check(cu.cuGraphExecKernelNodeSetParams(steps, second, adding(5, threads=16)))
        check(cu.cuGraphExecMemsetNodeSetParams(steps, first, setting(one, 0x40000000), context))
        check(cu.cuGraphLaunch(steps, stream))
        assert read(other).tolist() == [7] * 16 + [2] * 16
        check(cu.cuGraphExecMemcpyNodeSetParams(steps, third, copying(other, int(one) + 64, 32), context))
        check(cu.cuGraphLaunch(steps, stream))
        assert read(other).tolist() == [2] * 8 + [7] * 8 + [2] * 16
        check(cu.cuGraphNodeSetEnabled(steps, second, 0))
        assert check(cu.cuGraphNodeGetEnabled(steps, second)) == 0
        check(cu.cuGraphLaunch(steps, stream))
        assert read(one).tolist() == [2] * 32
        # Only with parameters of its kind, and of what can be done.
        assert cu.cuGraphExecKernelNodeSetParams(steps, first, adding(5))[0] == invalid
        assert cu.cuGraphKernelNodeSetParams(second, adding(5, threads=2048))[0] == invalid
        assert cu.cuGraphAddMemcpyNode(graph, None, 0, copying(other, one, 129), context)[0] == invalid
        assert cu.cuGraphAddMemsetNode(graph, None, 0, setting(one, 0, size=3), context)[0] == invalid
        assert cu.cuGraphAddEmptyNode(graph, [cu.CUgraphNode(16)], 1)[0] == invalid
        assert check(cu.cuGraphGetNodes(graph, 9))[1] == 3
        """
    )


def test_what_a_node_was_given_can_be_asked_for():
    """Of nodes that were captured as well; the arguments of a kernel are the node's own."""
    build(
        """
        stream = check(cu.cuStreamCreate(1))
        check(cu.cuStreamBeginCapture(stream, relaxed))
        check(cu.cuMemsetD32Async(one, 0, 32, stream))
        values = (int(one), 3.0), (ctypes.c_void_p, ctypes.c_float)
        check(cu.cuLaunchKernel(int(kernel.handle), 1, 1, 1, 32, 1, 1, 0, stream, values, 0))
        check(cu.cuMemcpyDtoDAsync(other, one, 128, stream))
        captured = check(cu.cuStreamEndCapture(stream))
        kinds = cu.CUgraphNodeType
        for which in (graph, captured):
            nodes = check(cu.cuGraphGetNodes(which, 3))[0]
            nodes = {check(cu.cuGraphNodeGetType(node)): node for node in nodes}
            given = check(cu.cuGraphMemsetNodeGetParams(nodes[kinds.CU_GRAPH_NODE_TYPE_MEMSET]))
            assert (int(given.dst), given.value, given.elementSize, given.width) == (int(one), 0, 4, 32)
            given = check(cu.cuGraphMemcpyNodeGetParams(nodes[kinds.CU_GRAPH_NODE_TYPE_MEMCPY]))
            ends = int(given.srcDevice), int(given.dstDevice)
            assert (ends, given.WidthInBytes, given.Height) == ((int(one), int(other)), 128, 1)
            node = nodes[kinds.CU_GRAPH_NODE_TYPE_KERNEL]
            given = check(cu.cuGraphKernelNodeGetParams(node))
            assert (given.gridDimX, given.blockDimX, given.sharedMemBytes) == (1, 32, 0)
            again = check(cu.cuGraphKernelNodeGetParams(node))
            assert int(again.kernelParams) == int(given.kernelParams)
            pointers = (ctypes.c_uint64 * 2).from_address(int(given.kernelParams))
            assert ctypes.c_uint64.from_address(pointers[0]).value == int(one)
            assert ctypes.c_float.from_address(pointers[1]).value == 3
            assert cu.cuGraphMemsetNodeGetParams(node)[0] == invalid
        """
    )


def test_rows_of_a_copy_and_of_a_set():
    build(
        """
        graph = check(cu.cuGraphCreate(0))
        check(cu.cuMemsetD32(one, 0, 32))
        check(cu.cuMemsetD32(other, 0, 32))
        node = check(cu.cuGraphAddMemsetNode(graph, None, 0, setting(one, 0x3F800000, 2, 3, 32), context))
        check(cu.cuGraphAddMemcpyNode(graph, [node], 1, copying(other, one, 4, 4, 32), context))
        check(cu.cuGraphLaunch(check(cu.cuGraphInstantiate(graph, 0)), stream))
        assert read(one).tolist() == [1, 1, 0, 0, 0, 0, 0, 0] * 3 + [0] * 8
        assert read(other).tolist() == [1, 0, 0, 0, 0, 0, 0, 0] * 3 + [0] * 8
        """
    )


def test_edges_decide_the_order():
    build(
        """
        def known(answer, which=0):
            return [int(each) for each in check(answer)[which]]
        sources, targets = (known(cu.cuGraphGetEdges(graph, 2), side) for side in (0, 1))
        assert set(zip(sources, targets)) == {(int(first), int(second)), (int(second), int(third))}
        assert known(cu.cuGraphNodeGetDependencies(second, 1)) == [int(first)]
        assert known(cu.cuGraphNodeGetDependentNodes(second, 1)) == [int(third)]
        assert known(cu.cuGraphGetRootNodes(graph, 1)) == [int(first)]
        # The kernel before the set, and its result goes nowhere.
        check(cu.cuGraphRemoveDependencies(graph, [first, second], [second, third], None, 2))
        check(cu.cuGraphAddDependencies(graph, [second, first], [first, third], None, 2))
        assert cu.cuGraphAddDependencies(graph, [second], [first], None, 1)[0] == invalid
        check(cu.cuGraphLaunch(check(cu.cuGraphInstantiate(graph, 0)), stream))
        assert not read(other).any()
        check(cu.cuGraphDestroyNode(first))
        check(cu.cuMemsetD32(one, 0, 32))
        check(cu.cuGraphAddDependencies(graph, [second], [third], None, 1))
        check(cu.cuGraphLaunch(check(cu.cuGraphInstantiate(graph, 0)), stream))
        assert read(other).tolist() == [3] * 32
        # In a circle nothing comes first.
        check(cu.cuGraphAddDependencies(graph, [third], [second], None, 1))
        assert cu.cuGraphInstantiate(graph, 0)[0] == invalid
        """
    )


def test_graphs_in_a_graph_events_and_functions_of_the_host():
    build(
        """
        outer, event, called = check(cu.cuGraphCreate(0)), check(cu.cuEventCreate(0)), []
        child = check(cu.cuGraphAddChildGraphNode(outer, None, 0, graph))
        check(cu.cuGraphDestroyNode(third))  # of the graph that it was made of
        assert check(cu.cuGraphGetNodes(check(cu.cuGraphChildGraphNodeGetGraph(child)), 9))[1] == 3
        moment = check(cu.cuGraphAddEventRecordNode(outer, [child], 1, event))
        waited = check(cu.cuGraphAddEventWaitNode(outer, [moment], 1, event))
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(called.append)
        given = cu.CUDA_HOST_NODE_PARAMS()
        given.fn, given.userData = cu.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value), 7
        check(cu.cuGraphAddHostNode(outer, [waited], 1, given))
        assert cu.cuGraphChildGraphNodeGetGraph(moment)[0] == invalid
        steps = check(cu.cuGraphInstantiate(outer, 0))
        assert cu.cuEventElapsedTime(event, event)[0] == cu.CUresult.CUDA_ERROR_INVALID_HANDLE
        check(cu.cuMemsetD32(other, 0, 32))
        check(cu.cuGraphLaunch(steps, stream))
        assert read(other).tolist() == [3] * 32 and called == [7]
        assert check(cu.cuEventElapsedTime(event, event)) == 0
        assert cu.cuLaunchHostFunc(stream, cu.CUhostFn(0), 0)[0] == invalid
        """
    )


def test_a_graph_of_cuda_core():
    pytest.importorskip("cuda.core.graph")
    out = build(
        """
        from cuda.core import LaunchConfig
        from cuda.core.graph import GraphDefinition
        device = Device()
        device.set_current()
        stream, buffers = device.create_stream(), []
        for _ in range(2):
            buffers.append(device.allocate(128, stream=stream))
        definition = GraphDefinition()
        node = definition.memset(buffers[0], 0, 128)
        node = node.launch(LaunchConfig(grid=1, block=32), kernel, buffers[0], np.float32(3))
        node = node.memcpy(buffers[1], buffers[0], 128).callback(lambda: print("called"))
        print(len(definition.nodes()), len(definition.edges()), [type(each).__name__ for each in node.pred])
        definition.instantiate().launch(stream)
        stream.sync()
        print(read(buffers[1].handle).tolist() == [3] * 32)
        """
    )
    assert out == ["4 3 ['MemcpyNode']", "called", "True"]
