"""What compilers make of kernels for a GPU that need not be there: PTX, registers, machine code.

`gpuless.inspector` reads Numba's kernels; these are NVRTC's and Triton's.
"""

import io
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

# Where a cubin says how many registers its kernel has: the attribute's form, number and length.
_REGISTERS = b"\x04\x2f\x08\x00"
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")


class MachineCode(NamedTuple):
    """What a kernel became."""

    ptx: str
    registers: int
    """Of a thread."""
    shared: int
    """Bytes of a block."""
    instructions: Counter
    """How often each stands in the machine code, by the first part of its name.

    Empty without a disassembler.
    """


def of_triton(kernel, signature: dict, constants: dict, cc: int, warps: int = 4) -> MachineCode:
    """Compile a kernel of Triton's, interpreted here or not.

    Parameters
    ----------
    kernel : function with ``@triton.jit``
        It calls nothing of Triton's library that is itself written in Triton (`tl.sum`): where kernels are
        interpreted, so is that.
    signature : dict
        By parameter: ``"*fp32"``, a pointer, or ``"i32"``.
    constants : dict
        The values of the others.
    cc : int
        Compute capability, 80 for 8.0.
    warps : int
        How many share a program's work.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.runtime.jit import JITFunction

    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    program = ASTSource(JITFunction(kernel.fn), signature=types, constexprs=constants)
    found = triton.compile(program, target=GPUTarget("cuda", cc, 32), options={"num_warps": warps})
    cubin = found.asm["cubin"]
    return MachineCode(found.asm["ptx"], registers_in(cubin), found.metadata.shared, instructions_in(cubin))


def registers_in(cubin: bytes) -> int:
    """Return how many registers a thread of the one kernel in a cubin has.

    Raises
    ------
    ValueError
        If that is not written there.
    """
    at = cubin.find(_REGISTERS)
    if at < 0:
        raise ValueError("the cubin does not say how many registers its kernel has")
    return int.from_bytes(cubin[at + 8 : at + 12], "little")  # behind the number of its symbol


def instructions_in(cubin: bytes) -> Counter:
    """Disassemble a cubin, and count its instructions by name.

    Returns
    -------
    Counter
        Empty if there is no ``nvdisasm``.
    """
    from cuda.pathfinder import find_nvidia_binary_utility

    nvdisasm = find_nvidia_binary_utility("nvdisasm")
    if not nvdisasm:
        return Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        command = [nvdisasm, "--print-code", str(path)]
        text = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    return Counter(_INSTRUCTION.findall(text))


def usage(text: str, define: dict, cc: int) -> tuple[int, int]:
    """Compile a program in CUDA C++ of one kernel; return its registers and its bytes of shared memory.

    Parameters
    ----------
    text : str
    define : dict
        Names that it finds defined.
    cc : int
        Compute capability, 90 for 9.0.
    """
    from cuda.core import Program, ProgramOptions

    macros = [(name, str(value)) for name, value in define.items()]
    options = ProgramOptions(arch=f"sm_{cc}", std="c++17", define_macro=macros or None, ptxas_options="-v")
    log = io.StringIO()
    try:
        Program(text, "c++", options).compile("cubin", logs=log)
        told = log.getvalue()
    except Exception as error:
        told = str(error)
        if "too much shared data" not in told:  # of which it is told how much it would be
            raise
    shared = re.search(r"(\d+) bytes smem", told)
    return int(re.search(r"Used (\d+) registers", told)[1]), int(shared[1]) if shared else 0
