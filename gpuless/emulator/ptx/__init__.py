"""PTX, the assembly language of NVIDIA's virtual machine: read, and nothing understood yet but the form.

"PTX ISA" (NVIDIA) is the reference; section numbers in the emulator are of version 9.
"""

from gpuless.emulator.ptx.model import BITS, Address, Function, Instruction, Module, PtxError, Variable
from gpuless.emulator.ptx.parser import identity, number, parse

__all__ = [
    "BITS",
    "Address",
    "Function",
    "Instruction",
    "Module",
    "PtxError",
    "Variable",
    "identity",
    "number",
    "parse",
]
