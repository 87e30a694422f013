"""The machine code of a kernel for a device, with control codes: from NVIDIA's compiler, or from disk."""

import contextlib
import functools
import importlib.metadata
import json
from typing import NamedTuple

from gpuless.compiler.jobs import InspectionError, Job, NoCompiler, compile_jobs
from gpuless.emulator.run import cache, recording
from gpuless.inspector.control import MachineCode, read_control


class Compiled(NamedTuple):
    """A kernel's machine code, and what a thread and a block take."""

    code: MachineCode
    registers: int
    shared: int
    spilled: int


def machine_codes(kernel, taken, ccs):
    """Return the `Compiled` of a launch's kernel for some compute capabilities, by these.

    `kernel`: made by ``cuda.jit``; `taken`: the `TakenLaunch`.
    """
    text = taken.kernel.source.text
    lines = recording.LINES.findall(text)
    about = lines, sorted(_options(kernel).items()), _toolkit()
    keys = {cc: cache.key(text, "machine code", cc, *about) for cc in ccs}
    kept = {cc: cache.read(key) for cc, key in keys.items()}
    missing = [cc for cc, content in kept.items() if content is None]
    if missing:
        types = taken.source.made_from[2]
        jobs = [Job(kernel, tuple(types), cc, listing="control codes") for cc in missing]
        for cc, result in zip(missing, compile_jobs(jobs), strict=True):
            if "sass" not in result:
                raise NoCompiler(
                    "there is no disassembler here, and the model reads machine code: "
                    "pip install nvidia-cuda-nvdisasm"
                )
            kept[cc] = json.dumps({name: result[name] for name in _KEPT}).encode()
            cache.write(keys[cc], kept[cc])
    return {cc: _read(json.loads(content), kernel, cc) for cc, content in kept.items()}


_TOOLS = ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "nvidia-cuda-nvcc", "nvidia-cuda-nvdisasm")
_KEPT = ("sass", "registers", "shared", "spill_stores")


@functools.cache
def _toolkit():
    """Return the versions of what compiles and disassembles: another one may write other machine code."""
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
            "has no lines, "
            "and without them it cannot be counted"
        )
    return Compiled(code, found["registers"], found["shared"], found["spill_stores"])
