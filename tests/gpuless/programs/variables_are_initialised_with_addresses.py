"""Variables are initialised with addresses."""

import ctypes

import numpy as np
from emulated import check, cu

from gpuless.emulator.driver import last_detail

text = b""".version 8.0\n.target sm_80\n.address_size 64 // \xe9
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
}"""
kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
out, used = check(cu.cuMemAlloc(8)), check(cu.cuMemGetInfo())[0]
check(cu.cuLaunchKernel(kernel, 1, 1, 1, 2, 1, 1, 0, 0, ((int(out),), (ctypes.c_void_p,)), 0))
assert np.frombuffer(ctypes.string_at(int(out), 8), np.uint32).tolist() == [5722, 5711]
bad = text.replace(b"numbers-4", b"absent-4")
assert cu.cuModuleLoadData(bad)[0] == cu.CUresult.CUDA_ERROR_INVALID_PTX
assert last_detail() == "absent-4 is no address that a variable can begin with"
assert check(cu.cuMemGetInfo())[0] == used  # nothing is left
