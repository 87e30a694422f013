"""CUDA's driver, implemented in this process: programs find it in place of NVIDIA's."""

from gpuless import nvidia
from gpuless.emulator.driver import table

# isort: split
# Each registers functions of the driver.
from gpuless.emulator.driver import allocations, device, events, graphs, linking, modules, nodes, streams  # noqa: F401
from gpuless.emulator.driver.table import last_detail

__all__ = ["install", "last_detail"]


def install():
    """Load this driver in place of NVIDIA's, in this process, before anything looks for that."""
    nvidia.driver_is_played("the emulated GPU")
    table.load()
