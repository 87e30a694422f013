"""The lines of a fault in a kernel of IPython's second cell, launched twice."""

import os
from importlib import import_module

from IPython.core.interactiveshell import InteractiveShell

module, name = os.environ["COMPILER"].rsplit(".", 1)
shell = InteractiveShell.instance()
shell.compile = getattr(import_module(module), name)()
launch = """try:
    far[1, 32](x)
    cuda.synchronize()
except Exception as error:
    print(str(error).splitlines()[1])"""
cells = [
    "import numpy as np\nfrom numba import cuda\nx = cuda.to_device(np.zeros(64, np.float32))",
    "@cuda.jit\ndef far(x):\n    x[cuda.grid(1) + 1_000_000] = 1",
    launch,
    launch,
]
for cell in cells:
    shell.run_cell(cell, store_history=True).raise_error()
