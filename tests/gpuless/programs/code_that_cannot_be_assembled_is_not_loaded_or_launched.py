"""Code that cannot be assembled is neither loaded nor launched."""

import numpy as np
from emulated import cu, cuda

big = np.ones(8_193)  # 8 bytes too many


@cuda.jit
def constants(out, i):
    out[0] = big[i]


@cuda.jit
def local(out, i):
    a = cuda.local.array(size, np.int8)
    for j in range(a.size):
        a[j] = j
    out[0] = a[i]


x = cuda.to_device(np.zeros(1))
for size in (524_288, 524_289):  # noqa: B007 (a kernel reads it)
    for kernel in (constants, local):
        try:
            cuda.jit(kernel.py_func)[1, 1](x, 5)
            print(x.copy_to_host())
        except Exception as error:
            print(str(error))
# A log has the message too.
text = b".version 8.1\n.target sm_80\n.address_size 64\n.const .b8 c[70000];"
option, log = cu.CUjit_option, bytearray(200)
options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
print(cu.cuModuleLoadDataEx(text, 2, options, [log, len(log)])[0].name, log.rstrip(b"\0").decode())
