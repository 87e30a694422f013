"""The command ``python -m gpuless``: run a program, on the emulated GPU if there is no real one.

``python -m gpuless profile`` models its time on a GPU: `gpuless.profile.command`.
"""

import argparse
import sys

from gpuless import nvidia
from gpuless.running import inherit, program_of

_USAGE = "python -m gpuless [--gpu emulator|simulator|hardware] [script.py | -m module | -c code | -] ..."
_DESCRIPTION = """Run a program that uses Numba-CUDA, as python does; without a GPU, on the emulated one.
Without a program, print what kernels run on, and why. `python -m gpuless profile --help` explains how to
model its times; `gpuless.sanitize(kernel)[grid, block](...)` in it finds races and accesses past an array's
end."""


def _parser():
    parser = argparse.ArgumentParser(
        "python -m gpuless", usage=_USAGE, description=_DESCRIPTION, allow_abbrev=False
    )
    kinds = ("emulator", "simulator", "hardware")
    parser.add_argument("--gpu", choices=kinds, help="what kernels run on; overrides the variable GPULESS")
    rest = {"nargs": argparse.REMAINDER, "help": argparse.SUPPRESS}
    parser.add_argument("-m", dest="module", **rest)
    parser.add_argument("-c", dest="code", **rest)
    parser.add_argument("script", **rest)
    return parser


def _main(arguments):
    if arguments[:1] == ["profile"]:
        from gpuless.profile.command import main

        return main(arguments[1:])
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        selection = inherit(options.gpu)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    if [] in (options.module, options.code):
        parser.error("-m and -c need an argument")
    program = program_of(options)
    if program is not None:
        return program()
    print(selection)
    versions = nvidia.versions()
    if selection.simulated:  # the simulator works with newer versions than compilers do
        print(*(f"{each.name} {each.here}" for each in versions), sep=", ")
        return None
    print(*versions, sep=", ")
    return _describe()


def _describe():
    from gpuless import frontends

    cuda = frontends.cuda()
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
