"""Parse PTX, the assembly language of NVIDIA's virtual machine, to a `Module`.

This stage handles only the syntax; `analysis` comes next. The reference is NVIDIA's "PTX ISA"; section
numbers in the emulator are those of version 9.
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
