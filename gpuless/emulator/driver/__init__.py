"""CUDA's driver, played by this process: what programs that speak to a GPU find in its place."""

from gpuless import nvidia
from gpuless.emulator.driver import table

# isort: split
# Each registers functions of the driver.
from gpuless.emulator.driver import allocations, device, events, graphs, linking, modules, nodes, streams  # noqa: F401
from gpuless.emulator.driver.table import last_detail

__all__ = ["install", "last_detail"]


def install():
    """Put the emulated GPU in the place of a driver, for this process; before anything asks for one."""
    nvidia.driver_is_played("the emulated GPU")
    table.load()
