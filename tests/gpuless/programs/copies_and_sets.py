"""Copies and sets."""

import numpy as np
from emulated import check, cu

x = np.arange(1000, dtype=np.uint16)
one, other = check(cu.cuMemAlloc(2000)), check(cu.cuMemAlloc(2000))
check(cu.cuMemcpyHtoD(one, x.ctypes.data, 2000))
check(cu.cuMemcpyDtoD(int(other) + 1000, one, 1000))
check(cu.cuMemsetD16(other, 0xABCD, 250))
check(cu.cuMemsetD32(int(other) + 500, 0x01020304, 125))
back = np.empty_like(x)
check(cu.cuMemcpyDtoH(back.ctypes.data, other, 2000))
assert (back[:250] == 0xABCD).all() and (back[500:] == x[:500]).all()
assert (back[250:500].view(np.uint32) == 0x01020304).all()
# A copy that goes too far is rejected, and nothing is copied.
bad = cu.CUresult.CUDA_ERROR_INVALID_VALUE
assert cu.cuMemcpyHtoD(int(one) + 1, x.ctypes.data, 2000)[0] == bad
assert cu.cuMemsetD8(int(one) + 1999, 0, 2)[0] == bad
assert cu.cuMemcpyDtoD(one, int(other) + (1 << 30), 4)[0] == bad
check(cu.cuMemcpyDtoH(back.ctypes.data, one, 2000))
assert (back == x).all()
