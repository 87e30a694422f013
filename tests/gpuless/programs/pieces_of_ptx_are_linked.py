"""Pieces of PTX are linked."""

import ctypes

from emulated import check, cu

head = b".version 8.0\n.target sm_80\n.address_size 64\n"
callee = (
    head
    + b"""
.global .align 4 .u32 own = 30;
.visible .func (.param .b32 out) twice(.param .b32 in) {
    .reg .b32 %r<4>;
    ld.param.b32 %r1, [in];
    ld.global.u32 %r2, [own];
    mad.lo.s32 %r3, %r1, 2, %r2;
    st.param.b32 [out], %r3;
    ret;
}"""
)
caller = (
    head
    + b"""
.extern .func (.param .b32 out) twice(.param .b32 in);
.global .align 4 .u32 own = 4;
.visible .entry f(.param .u64 p) {
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.global.u32 %r1, [own];
    { .param .b32 given; st.param.b32 [given], %r1;
      .param .b32 got; call.uni (got), twice, (given); ld.param.b32 %r2, [got]; }
    ld.param.u64 %rd1, [p];
    st.global.u32 [%rd1], %r2;
    ret;
}"""
)
link = check(cu.cuLinkCreate(0, [], []))
kind = cu.CUjitInputType.CU_JIT_INPUT_PTX
for piece in (callee, caller):
    check(cu.cuLinkAddData(link, kind, piece, len(piece), b"piece", 0, [], []))
image, size = check(cu.cuLinkComplete(link))
module = check(cu.cuModuleLoadData(image))
check(cu.cuLinkDestroy(link))
kernel = check(cu.cuModuleGetFunction(module, b"f"))
out = check(cu.cuMemAlloc(4))
check(cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, ((int(out),), (ctypes.c_void_p,)), 0))
assert ctypes.c_uint32.from_address(int(out)).value == 38
