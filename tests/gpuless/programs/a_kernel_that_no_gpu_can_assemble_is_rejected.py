"""A kernel that cannot be assembled for any GPU is rejected."""

import numpy as np
import pytest
from emulated import cuda


def using(count):
    @cuda.jit
    def f(x):
        s = cuda.shared.array(count, np.float32)
        s[cuda.threadIdx.x] = 1
        cuda.syncthreads()
        x[cuda.threadIdx.x] = s[31 - cuda.threadIdx.x]

    return f


x = cuda.to_device(np.zeros(32, np.float32))
using(12288)[1, 32](x)
with pytest.raises(Exception, match="uses too much shared data .49156 bytes, 49152 max"):
    using(12289)[1, 32](x)
with pytest.raises(Exception, match="48 KB.* not 49156"):
    using(1)[1, 32, 0, 49152](x)
with pytest.raises(Exception, match="block .1025, 1, 1.: x is 1025, and a GPU allows 1024"):
    using(1)[1, 1025](x)
