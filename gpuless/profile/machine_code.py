"""A kernel's machine code for a device, with control codes, from NVIDIA's compiler or the disk cache."""

import contextlib
import functools
import importlib.metadata
import json
from typing import NamedTuple

from gpuless.compiler.jobs import InspectionError, Job, NoCompiler, compile_jobs
from gpuless.emulator.run import cache, recording
from gpuless.inspector.control import MachineCode, read_control


class Compiled(NamedTuple):
    """A kernel's machine code, and the resources of a thread and a block."""

    code: MachineCode
    registers: int
    shared: int
    spilled: int


def all_machine_codes(launches, ccs):
    """Return, for each launch, its kernel's `Compiled` by compute capability.

    `launches`: pairs of a kernel, made by ``cuda.jit``, and the `TakenLaunch`. Whatever is not on disk is
    compiled together, as starting a compiler takes longer than compiling a kernel.
    """
    keys = [{cc: _key(kernel, taken, cc) for cc in ccs} for kernel, taken in launches]
    kept = {key: cache.read(key) for own in keys for key in own.values()}
    jobs = {}
    for (kernel, taken), own in zip(launches, keys, strict=True):
        types = tuple(taken.source.made_from[2])
        missing = {key: Job(kernel, types, cc, listing="control codes") for cc, key in own.items()}
        jobs |= {key: job for key, job in missing.items() if kept[key] is None}
    for key, result in zip(jobs, compile_jobs(list(jobs.values())), strict=True):
        if "sass" not in result:
            raise NoCompiler(
                "there is no disassembler here, and the model reads machine code: "
                "pip install nvidia-cuda-nvdisasm"
            )
        kept[key] = json.dumps({name: result[name] for name in _KEPT}).encode()
        cache.write(key, kept[key])
    return [
        {cc: _read(json.loads(kept[key]), kernel, cc) for cc, key in own.items()}
        for (kernel, _), own in zip(launches, keys, strict=True)
    ]


def _key(kernel, taken, cc):
    text = taken.kernel.source.text
    lines = recording.LINES.findall(text)
    return cache.key(text, "machine code", cc, lines, sorted(_options(kernel).items()), _toolkit())


_TOOLS = (
    "numba-cuda numba-cuda-mlir nvidia-nvvm nvidia-nvjitlink nvidia-cuda-nvcc nvidia-cuda-nvdisasm".split()
)
_KEPT = ("sass", "registers", "shared", "spill_stores")


@functools.cache
def _toolkit():
    """Return the versions of the compiler and disassembler: others may produce other machine code."""
    found = []
    for name in _TOOLS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found.append((name, importlib.metadata.version(name)))
    return found


def _options(kernel):
    return {
        name: str(kernel.targetoptions.get(name)) for name in ("fastmath", "launch_bounds", "max_registers")
    }


def _read(found, kernel, cc):
    code = read_control(found["sass"])
    if not any(step.line for step in code.steps):
        raise InspectionError(
            f"the machine code of {kernel.py_func.__name__} for compute capability {cc[0]}.{cc[1]} "
            "has no lines, and without them it cannot be counted"
        )
    return Compiled(code, found["registers"], found["shared"], found["spill_stores"])
