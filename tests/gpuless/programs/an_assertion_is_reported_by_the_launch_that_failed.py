"""An assertion is reported by the launch in which it failed."""

import contextlib
import ctypes
import io
from concurrent.futures import ThreadPoolExecutor

from cuda.bindings import nvrtc
from emulated import check, cu, cuda

from gpuless.emulator.run import launch

text = b"""
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
"""
code, program = nvrtc.nvrtcCreateProgram(text, b"f.cu", 0, [], [])
(code,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_80"])
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
assert said.getvalue().split("\n") == [line, line, ""], said.getvalue()
