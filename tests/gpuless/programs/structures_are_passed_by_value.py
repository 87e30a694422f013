"""Structures are passed by value."""

import ctypes

import numpy as np
from cuda.bindings import nvrtc
from emulated import check, cu

text = b"""
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
"""
code, program = nvrtc.nvrtcCreateProgram(text, b"f.cu", 0, [], [])
(code,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])
assert code == 0, code
ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
nvrtc.nvrtcGetPTX(program, ptx)
assert b"param_0;" in ptx  # an address of one
kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(bytes(ptx))), b"f"))


class Big(ctypes.Structure):
    _fields_ = [("a", ctypes.c_double * 20), ("b", ctypes.c_int), ("c", ctypes.c_char)]


big, out = Big((ctypes.c_double * 20)(*range(1, 21)), 7, b"\x05"), check(cu.cuMemAlloc(64 * 8))
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
