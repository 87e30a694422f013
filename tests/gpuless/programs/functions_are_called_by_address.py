"""Functions are called by address."""

import ctypes

import numpy as np
from emulated import check, cu

text = b""".version 8.0\n.target sm_80\n.address_size 64
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
}"""
kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
out = check(cu.cuMemAlloc(256))
check(cu.cuLaunchKernel(kernel, 1, 1, 1, 64, 1, 1, 0, 0, ((int(out),), (ctypes.c_void_p,)), 0))
found = np.frombuffer(ctypes.string_at(int(out), 256), np.int32)
i = np.arange(64)
assert (found == np.where(i % 2, i + 1000, -i)).all(), found
