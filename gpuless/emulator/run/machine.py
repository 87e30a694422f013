"""Compile LLVM IR to machine code, or read that from the cache, and load it into this process."""

import ctypes
import functools
import itertools
import json
import math
from typing import NamedTuple

import llvmlite.binding as llvm

from gpuless.emulator.run import cache
from gpuless.emulator.translate import processor
from gpuless.limits import WARP


@functools.cache
def _target():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm.Target.from_default_triple()


def _target_machine():
    features = llvm.get_host_cpu_features().flatten()
    # On some processors LLVM prefers 256-bit vectors to 512-bit ones.
    features += ",-prefer-256-bit" if "+avx512f" in features else ""
    return _target().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2, reloc="pic", codemodel="small"
    )


def optimise(text):
    """Return the optimised module of IR, and its target machine.

    Each function is optimised alone, at level 1. Passes over the whole module at level 2 take 50 % longer,
    and hardly any kernel runs faster for it.
    """
    machine = _target_machine()
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getFunctionPassManager()
    # Much is needed only if an assumption about addresses fails: sink it to where it is used.
    passes.add_sinking_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return module, machine


def compile_object(text):
    """Compile IR to an object file."""
    module, machine = optimise(text)
    return machine.emit_object(module)


@functools.cache
def _linker():
    return llvm.create_lljit_compiler(_target_machine(), use_jit_link=True)


_numbers = itertools.count()


class Code:
    """Machine code that can be called: ``run`` takes the addresses of a launch and of a block's record."""

    def __init__(self, object_file):
        library = llvm.JITLibraryBuilder().add_object_img(object_file).add_current_process()
        self._library = library.export_symbol("run").link(_linker(), f"kernel{next(_numbers)}")
        self.run = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(self._library["run"])


class Compiled(NamedTuple):
    """The machine code of a kernel for one shape of block.

    `lane_stack`: bytes of local memory per lane; `spins`: whether blocks may wait for others.
    """

    code: Code
    block: tuple
    lane_stack: int
    spins: bool

    @property
    def threads(self):
        """Threads of a block."""
        return math.prod(self.block)

    @property
    def warps(self):
        """Warps of a block."""
        return -(-self.threads // WARP)


def compiled(translator, source, name, block, alignments, *further):
    """Return the `Compiled` of a kernel and the rest of its translator's `facts`, from the cache if possible.

    `translator`: a class; `further`: what the code depends on beside the PTX and the other arguments.
    """
    key = cache.key(source.text, translator.__name__, name, block, alignments, *further, *processor.target())
    kept = cache.read(key)
    if kept is None:
        translation = translator(source, name, block, alignments)
        object_file = compile_object(translation.translate())
        facts = json.dumps(translation.facts).encode()
        kept = len(facts).to_bytes(8, "little") + facts + object_file
        cache.write(key, kept)
    end = 8 + int.from_bytes(kept[:8], "little")
    lane_stack, spins, *facts = json.loads(kept[8:end])
    return Compiled(Code(kept[end:]), block, lane_stack, spins), facts
