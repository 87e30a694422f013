"""A graph of a set, a kernel and a copy, built node by node, and functions for such nodes."""

import ctypes

import numpy as np
from cuda.core import Program, ProgramOptions
from emulated import check, cu

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
