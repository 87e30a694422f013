"""Let the backend of the CPU compute by its definitions."""

from cnn_numba.ops import backends

for operations in (backends._CORE, backends._ADDED):
    operations["cpu"] = operations["reference"]
