"""CUDA C is compiled and run."""

import ctypes

import numpy as np
from cuda.bindings import nvrtc
from emulated import check, cu

text = b'extern "C" __global__ void f(int *p) { p[threadIdx.x] = 3 * threadIdx.x; }'
code, program = nvrtc.nvrtcCreateProgram(text, b"f.cu", 0, [], [])
(code,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])
assert code == 0, code
ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
nvrtc.nvrtcGetPTX(program, ptx)
kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(bytes(ptx))), b"f"))
out = check(cu.cuMemAlloc(256))
check(cu.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, ((int(out),), (ctypes.c_void_p,)), 0))
assert (np.frombuffer(ctypes.string_at(int(out), 256), np.int32) == 3 * np.arange(64)).all()
