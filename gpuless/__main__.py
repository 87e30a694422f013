"""The command ``python -m gpuless``: runs a program, where there is no GPU on the emulated one."""

import argparse
import sys

from gpuless import nvidia
from gpuless.running import inherit, run_code, run_module, run_script

_USAGE = "python -m gpuless [--gpu emulator|simulator|hardware] [script.py | -m module | -c code | -] ..."
_DESCRIPTION = """Run a program that uses Numba-CUDA, as python does; without a GPU, on the emulated one.
Alone, say what kernels run on, and why."""


def _parser():
    parser = argparse.ArgumentParser(
        "python -m gpuless", usage=_USAGE, description=_DESCRIPTION, allow_abbrev=False
    )
    kinds = ("emulator", "simulator", "hardware")
    parser.add_argument("--gpu", choices=kinds, help="as GPULESS in the environment: what kernels run on")
    rest = {"nargs": argparse.REMAINDER, "help": argparse.SUPPRESS}
    parser.add_argument("-m", dest="module", **rest)
    parser.add_argument("-c", dest="code", **rest)
    parser.add_argument("script", **rest)
    return parser


def _main(arguments):
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        selection = inherit(options.gpu)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    if [] in (options.module, options.code):
        parser.error("-m and -c want an argument")
    for run, program in (
        (run_module, options.module),
        (run_code, options.code),
        (run_script, options.script),
    ):
        if program:
            return run(program[0], program[1:])
    print(selection)
    print(*nvidia.versions(), sep=", ")
    if not selection.simulated:
        return _describe()


def _describe():
    from numba import cuda

    try:
        device = cuda.get_current_device()
    except cuda.CudaSupportError as error:
        sys.exit(str(error).strip())
    capability = "{}.{}".format(*device.compute_capability)
    total = cuda.current_context().get_memory_info().total / 2**30
    name = device.name.decode() if isinstance(device.name, bytes) else device.name
    print(f"{name}: compute capability {capability}, {total:.1f} GiB of memory")


if __name__ == "__main__":
    _main(sys.argv[1:])
