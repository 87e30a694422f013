"""A recursion stays in the stack of its warp; a limit makes the stack larger."""

import ctypes

import numpy as np
from emulated import check, cu

from gpuless.emulator.driver import last_detail

text = b""".version 8.0\n.target sm_80\n.address_size 64
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
    st.global.u32 [%rd2], %r4; ret; }"""
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
