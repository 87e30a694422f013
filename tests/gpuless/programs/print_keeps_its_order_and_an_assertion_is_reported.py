"""Print keeps its order, and an assertion is reported."""

import numpy as np
from emulated import cuda


@cuda.jit
def show(x):
    i = cuda.threadIdx.x
    if i < 3:
        print("thread", i, x[i], i == 1)


show[1, 64](np.array([1.5, -2.0, np.inf]))
print("after")


@cuda.jit(debug=True, opt=False)
def expect(x):
    assert x[cuda.threadIdx.x] < 3, "too large"


try:
    expect[1, 5](np.arange(5))
except AssertionError as error:
    print("too large" in str(error), "3" in str(error).partition("tid=")[2])
show[1, 1](np.array([9.0]))
