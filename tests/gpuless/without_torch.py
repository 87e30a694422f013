"""A plugin of pytest: PyTorch is not there. numba-cuda-mlir imports it where it is, which takes seconds."""

import sys

sys.modules["torch"] = None
