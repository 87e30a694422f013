"""An exception raised by a signal handler arrives unchanged."""

import signal
import time

import numpy as np
from emulated import cuda


@cuda.jit
def endless(x):
    i = 0
    while x[0] == 0:
        i += 1
    x[1] = i


@cuda.jit
def good(x):
    x[cuda.grid(1)] = 5


class Mine(BaseException):
    pass


x, calls = cuda.to_device(np.ones(32)), 0
endless[1, 1](x)  # ends, and is compiled: a finaliser may drop an exception that a handler raises meanwhile
good[1, 32](x)
x.copy_to_device(np.zeros(32))


def handler(number, frame):
    global calls
    calls += 1
    raise error


signal.signal(signal.SIGALRM, handler)
for error in (TimeoutError("late"), Mine("mine"), SystemExit(3), KeyboardInterrupt()):
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        endless[1, 1](x)
        time.sleep(5)
    except BaseException as raised:
        print(raised is error, calls)
    y = cuda.to_device(np.zeros(32))
    good[1, 32](y)
    assert y.copy_to_host().sum() == 160
