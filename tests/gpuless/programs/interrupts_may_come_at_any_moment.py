"""Interrupts during launches: the second during the handling of the first."""

import os
import random
import signal
import threading
import time

import numpy as np
import ptx_programs
from ptx_programs import DECLARED, STORE, WAIT, DeviceArray, workers

from gpuless.emulator import ptx
from gpuless.emulator.run import launch

#: Most blocks wait for a number that never comes, the others for them.
TOGETHER = f"""setp.eq.u32 %p1, %r2, 0; @%p1 bra L; {{ .param .b64 grid; .param .b32 flags; .param .b32 ended;
    st.param.b64 [grid], 0; st.param.b32 [flags], 0; call (ended), cudaCGSynchronize, (grid, flags); }}
    ret; {WAIT}"""


def interrupt(*_):
    if inside:
        raise KeyboardInterrupt


def interrupt_twice():
    while not inside:
        time.sleep(0)
    for most in (0.02, 0.003):
        time.sleep(random.uniform(0, most))
        os.kill(os.getpid(), signal.SIGINT)


inside = False
signal.signal(signal.SIGINT, interrupt)
launch._PERIOD = 0.0005  # most of the time nobody sleeps
arguments = DeviceArray(np.zeros(64, np.uint32)).address.to_bytes(8, "little")
for body, together in (WAIT, False), (TOGETHER, True):
    text = ptx_programs.HEAD + DECLARED + STORE.replace("BODY", body)
    kernel = launch.Kernel(ptx.parse(text), "f")
    kernel.code((32, 1, 1), arguments)
    for _ in range(60):
        other = threading.Thread(target=interrupt_twice)
        other.start()
        try:
            try:
                inside = True
                workers().launch(kernel, (3, 1, 1), (32, 1, 1), arguments, together=together)
            except KeyboardInterrupt:
                assert not any(record.launch for record in workers()._records)
            inside = False
        except KeyboardInterrupt:
            inside = False
        other.join()
print("stopped")
