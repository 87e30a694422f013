"""What compilers produce from kernels: PTX, registers, machine code. No GPU is needed.

`gpuless.inspector` reads Numba's kernels; these are NVRTC's and Triton's.
"""

import base64
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from cnn_course.chapters.other_roads.roads.complaints import needs_too_much_shared

# The attribute of a cubin with its kernel's number of registers: its format, number and length.
_REGISTERS = b"\x04\x2f\x08\x00"
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)")


class MachineCode(NamedTuple):
    """A compiled kernel."""

    ptx: str
    registers: int
    """Of a thread."""
    shared: int
    """Bytes of a block."""
    instructions: Counter
    """How often each occurs in the machine code, by the first part of its name.

    Empty without a disassembler.
    """


# A process that compiles must not have interpreted: Triton's interpreter leaves its own functions in the
# library when a kernel has called what is written in Triton itself, such as `tl.sum`.
_COMPILE = """
import base64, importlib.util, json, sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

asked = json.load(sys.stdin)
spec = importlib.util.spec_from_file_location("kernels", asked["file"])
sys.modules["kernels"] = kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
program = ASTSource(getattr(kernels, asked["name"]), signature=asked["types"], constexprs=asked["constants"])
target, options = GPUTarget("cuda", asked["cc"], 32), {"num_warps": asked["warps"]}
found = triton.compile(program, target=target, options=options)
cubin = base64.b64encode(found.asm["cubin"]).decode()
print(json.dumps({"ptx": found.asm["ptx"], "shared": found.metadata.shared, "cubin": cubin}))
"""


def of_triton(kernel, signature: dict, constants: dict, cc: int, warps: int = 4) -> MachineCode:
    """Compile a Triton kernel in a new process, whether it is interpreted here or not.

    Parameters
    ----------
    kernel : function with ``@triton.jit``
        From a file that imports nothing but Triton; the new process loads it.
    signature : dict
        By parameter: ``"*fp32"``, a pointer, or ``"i32"``.
    constants : dict
        The values of the others.
    cc : int
        Compute capability, 80 for 8.0.
    warps : int
        How many warps share a program's work.

    Raises
    ------
    RuntimeError
        If Triton cannot compile it; the message is Triton's.
    """
    types = {**signature, **dict.fromkeys(constants, "constexpr")}
    asked = {"file": kernel.fn.__code__.co_filename, "name": kernel.fn.__name__}
    asked |= {"types": types, "constants": constants, "cc": cc, "warps": warps}
    done = subprocess.run(
        [sys.executable, "-c", _COMPILE],
        input=json.dumps(asked),
        env={name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"Triton does not compile `{kernel.fn.__name__}`:\n{done.stderr.strip()}")
    found = json.loads(done.stdout.splitlines()[-1])
    cubin = base64.b64decode(found["cubin"])
    return MachineCode(found["ptx"], registers_in(cubin), found["shared"], instructions_in(cubin))


def registers_in(cubin: bytes) -> int:
    """Return the number of registers per thread of the only kernel in a cubin.

    Raises
    ------
    ValueError
        If the cubin does not contain it.
    """
    at = cubin.find(_REGISTERS)
    if at < 0:
        raise ValueError("the cubin does not say how many registers its kernel has")
    return int.from_bytes(cubin[at + 8 : at + 12], "little")  # after the number of its symbol


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
        messages = log.getvalue()
    except Exception as error:
        if not needs_too_much_shared(error):  # its message says how much that is
            raise
        messages = str(error)
    shared = re.search(r"(\d+) bytes smem", messages)
    return int(re.search(r"Used (\d+) registers", messages)[1]), int(shared[1]) if shared else 0
