"""Stage 1, parsing: PTX, the assembly language of NVIDIA's virtual machine, becomes a `Module`.

Only the syntax is handled here. The reference is NVIDIA's "PTX ISA"; section numbers in the emulator are
those of version 9.
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
