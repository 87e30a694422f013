"""Registers are estimated."""

import numpy as np
from emulated import check, cu, cuda

head = b".version 8.0\n.target sm_80\n.address_size 64\n"
body = b"""(.param .u64 p) LIMIT {
    .reg .b64 %rd<9>; .reg .f64 %fd<9>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [p];
    ld.global.f64 %fd1, [%rd1];
    ld.global.f64 %fd2, [%rd1+8];
    ld.global.f64 %fd3, [%rd1+16];
    fma.rn.f64 %fd4, %fd1, %fd2, %fd3;
    setp.gt.f64 %p1, %fd4, 0d0000000000000000;
    @%p1 st.global.f64 [%rd1], %fd4;
    ret;
}"""
for limit in (b"", b".maxnreg 12"):
    module = check(cu.cuModuleLoadData(head + b".visible .entry f" + body.replace(b"LIMIT", limit)))
    kernel = check(cu.cuModuleGetFunction(module, b"f"))
    print(check(cu.cuFuncGetAttribute(cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, kernel)))


@cuda.jit(max_registers=13)
def many(x):
    x[0] = x[1] * x[2] + x[3] * x[4] + x[5] * x[6] + x[7] * x[8]


many[1, 1](np.zeros(9))
print(*many.get_regs_per_thread().values())
