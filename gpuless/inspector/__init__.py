"""Inspect a kernel as compiled for a real GPU: registers, occupancy, instructions, advice. Needs no GPU."""

from gpuless.compiler.jobs import InspectionError, NoCompiler
from gpuless.inspector.architectures import ARCHITECTURES, capability, occupancy, registers_for
from gpuless.inspector.assembly import read_ptx
from gpuless.inspector.beginnings import float64_beginnings
from gpuless.inspector.float64 import Float64Cause, float64_causes
from gpuless.inspector.inspect import find_kernel, inspect_kernel, inspect_kernels
from gpuless.limits import WARP

__all__ = [
    "ARCHITECTURES",
    "WARP",
    "Float64Cause",
    "InspectionError",
    "NoCompiler",
    "capability",
    "find_kernel",
    "float64_beginnings",
    "float64_causes",
    "inspect_kernel",
    "inspect_kernels",
    "occupancy",
    "read_ptx",
    "registers_for",
]
