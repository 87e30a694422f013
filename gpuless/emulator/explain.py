"""Show a kernel at each stage of its translation: ``python -m gpuless.emulator.explain kernel.py``.

Run a program on the emulated GPU and show the first launch of its kernel: the Python source, the PTX, the
results of the analyses, the LLVM IR, the machine code, and what the run did.
"""

import argparse
import contextlib
import inspect
import os
import re
import sys
import textwrap
from pathlib import Path

from gpuless import counts, emulator, running
from gpuless.emulator.analysis.lanes import VARYING
from gpuless.emulator.ptx.instructions import destinations, readable
from gpuless.emulator.run import lines, machine
from gpuless.emulator.translate import processor
from gpuless.emulator.translate.module import ModuleTranslator
from gpuless.emulator.translate.translator import Translator

#: Lines of a stage that are shown without --full.
SHOWN = 60


class NothingToShow(Exception):
    """The program launches no kernel, or none of the given name."""


def explain(tally, full=False):
    """Describe a kernel at each stage.

    `tally`: of one launch, from `gpuless.emulator.count_launches`; `full`: show long stages completely.
    """
    launched = tally.launched
    translation = _Translation(launched)
    stages = {
        "Python": _python(launched.kernel.source),
        "PTX": _ptx(launched.kernel),
        "Analyses": _analyses(translation),
        "LLVM IR": translation.ir.split("\n"),
        "Machine code": _machine_code(translation, full),
        "Run": _run(counts.summed_up(tally)),
    }
    head = f"{launched.name}[{_shape(launched.grid)}, {_shape(launched.block)}]"
    parts = [head]
    for number, (name, found) in enumerate(stages.items(), 1):
        parts.append("\n".join([f"{number}. {name}", *_shortened(found, full)]))
    return "\n\n".join(parts)


def _shape(sizes):
    """Return the shape of a grid or a block as it is written in a launch."""
    return str(sizes[0]) if sizes[1:] == (1, 1) else str(sizes)


def _shortened(found, full):
    """Return the lines, indented; only the first ones unless `full`."""
    rest = 0 if full else max(len(found) - SHOWN, 0)
    shown = [f"   {line}".rstrip() for line in found[: len(found) - rest]]
    return [*shown, f"   ... {rest} more lines: --full shows them"] if rest else shown


# --- Python and PTX -----------------------------------------------------------------------------------------


def _python(module):
    """Return the source of the function that a module was compiled from."""
    source = lines.source_of(module)
    try:
        return inspect.getsource(source.function()).rstrip().split("\n")
    except (AttributeError, OSError, TypeError):
        return ["(not known: its PTX was not compiled from a Python function in a file)"]


def _ptx(kernel):
    """Return the PTX of a kernel without blank lines, comments and line numbers."""
    text = kernel.source.text
    begin = re.search(rf"\.entry\s+{re.escape(kernel.name)}(?![\w$])", text).start()
    end = re.compile(r"^\}", re.M).search(text, begin)
    text = text[begin : end.end()].replace(kernel.name, readable(kernel.name)).expandtabs(4)
    found = [line.partition("//")[0].rstrip() for line in text.split("\n")]
    found = [re.sub(r"(?<=\S)\s+", " ", line) for line in found]
    return [line for line in found if line.strip() and not re.match(r"\s*\.(loc|file)\b", line)]


# --- Analyses -----------------------------------------------------------------------------------------------


class _Translation:
    """The translation of a kernel: its analysis, its optimised IR and its machine code."""

    def __init__(self, launched):
        kernel = launched.kernel
        given = kernel.source, kernel.name, launched.block, kernel.alignments
        module = ModuleTranslator(*given)
        self.name, self.analysis = kernel.name, Translator(module, module.kernel, "kernel").analysis
        text = ModuleTranslator(*given).translate()
        # LLVM would otherwise inline the kernel into the function that runs a block.
        alone = re.sub(r"^define internal (void @kernel\([^)]*\))", r"define \1 noinline", text, flags=re.M)
        optimised, target = machine.optimise(alone)
        self.ir = _readable_ir(str(optimised.get_function("kernel")).strip())
        self.assembly = _function(target.emit_assembly(optimised), "kernel")


def _readable_ir(text):
    """Return IR without metadata and comments, with long constant vectors shortened."""
    text = re.sub(r", ![\w.]+ !\d+| #\d+| local_unnamed_addr| *;.*", "", text).strip()
    vector = re.compile(r"<(\w+ -?\w+, \w+ -?\w+, \w+ -?\w+), (?:\w+ -?\w+, ){3,}(\w+ -?\w+)>")
    return vector.sub(r"<\1, ..., \2>", text)


def _analyses(translation):
    """Return the basic blocks of a kernel, with the kind of each register that they write."""
    analysis, found = translation.analysis, []
    flow = analysis.flow
    for block in flow.blocks:
        lanes = "some lanes may be off" if block.index in analysis.masked else "all lanes are on"
        last = flow.loop_ends.get(block.index)
        loop = "" if last is None else f"; a loop begins, up to block {last}"
        found.append(f"block {block.index}: {lanes}{loop}")
        for instruction in block.body:
            text = instruction.text.replace(translation.name, readable(translation.name))
            known = ", ".join(_known(analysis, name) for name in destinations(instruction))
            found.append(f"    {text:44}  {known}".rstrip())
        targets = " or ".join(f"block {target}" for target in block.end.targets) or "the end"
        found.append(f"    then {targets}" + (f", by {block.end.condition}" if block.end.condition else ""))
    return found


def _known(analysis, name):
    """Describe what the lanes of a warp hold in a register."""
    kind = analysis.kinds.get(name)
    if kind is not VARYING:
        return _lanes(kind)
    assumed = analysis.assumed.get(name)
    return "a vector" if assumed is VARYING else f"a vector; in addresses {_lanes(assumed)}, or checked"


def _lanes(kind):
    """Describe a kind."""
    first, last = kind.offsets[0], kind.offsets[-1]
    if kind.uniform:
        multiple = f", a multiple of {1 << kind.align}" if 0 < kind.align < 32 else ""
        return str(first) if kind.constant else f"one number{multiple}"
    steps = {b - a for a, b in zip(kind.offsets, kind.offsets[1:], strict=False)}
    numbers = ", ".join(map(str, kind.offsets[:3])) + f", ..., {last}"
    unit = f" times {kind.unit.base}" if kind.unit else ""
    if kind.constant:
        return numbers
    return f"one number + lane{unit}" if steps == {1} else f"one number + ({numbers}){unit}"


# --- Machine code and run -----------------------------------------------------------------------------------


def _function(assembly, name):
    """Return the lines of a function's instructions and labels."""
    text = assembly[assembly.index(f"\n{name}:") + 1 :]
    listed = text[: text.index("\n.Lfunc_end")].expandtabs(4).split("\n")
    return [line.rstrip() for line in listed if not re.match(r"\s+\.|\s*[#/]", line) and line.strip()]


def _machine_code(translation, full):
    """Return the number of machine instructions, how many use vectors, and with `full` all of them."""
    instructions = [line for line in translation.assembly if not line.endswith(":") and line[0] == " "]
    vectors = [line for line in instructions if re.search(r"%?\b[xyz]mm\d|\b[vq]\d+\.\d*[bhsd]", line)]
    head = (
        f"{len(instructions)} instructions, of which {len(vectors)} use vectors, for {processor.target()[0]}"
    )
    return [head, *translation.assembly] if full else [head]


def _run(counted):
    """Describe what a launch did."""
    warps = sum(each.warp for each in counted.by_class.values())
    classes = ", ".join(f"{name} {each.warp}" for name, each in counted.by_class.items() if each.warp)
    found = [f"{counted.blocks} blocks, {warps} instructions of warps:", *textwrap.wrap(classes, 100)]
    for name in ("global_loads", "global_stores", "global_atomics"):
        if (traffic := getattr(counted, name)).requests:
            found.append(f"{name.replace('_', ' ')}: {traffic.requests} requests, {traffic.sectors} sectors")
    for name in ("shared_loads", "shared_stores", "shared_atomics"):
        if (traffic := getattr(counted, name)).requests:
            waves = f"{traffic.wavefronts} wavefronts"
            found.append(f"{name.replace('_', ' ')}: {traffic.requests} requests, {waves}")
    return found


# --- The command --------------------------------------------------------------------------------------------


def launches_of(path, arguments=()):
    """Run a program on the emulated GPU; return the `Tally` of each launch.

    The program's output goes to standard error.
    """
    with emulator.count_launches() as tallies, contextlib.redirect_stdout(sys.stderr):
        try:
            running.run_script(path, list(arguments))
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise
    return tallies


def chosen(tallies, path, name=None):
    """Return the first launch of the named kernel, or of any kernel."""
    names = list(dict.fromkeys(tally.launched.name for tally in tallies))
    if not names:
        raise NothingToShow(f"{path} launches no kernel: call one, as in kernel[1, 32](x)")
    if name is not None and name not in names:
        raise NothingToShow(f"{path} launches no kernel {name!r}, but {', '.join(names)}")
    return next(tally for tally in tallies if name in (None, tally.launched.name))


def _main(arguments):
    parser = argparse.ArgumentParser(
        "python -m gpuless.emulator.explain", description=" ".join(__doc__.split("\n\n")[1].split())
    )
    parser.add_argument("script", help="a program that launches the kernel")
    parser.add_argument("arguments", nargs="*", default=[], help="those of the program, after --")
    parser.add_argument("--kernel", metavar="NAME", help="which kernel; else the first that is launched")
    parser.add_argument("--full", action="store_true", help="shorten nothing, and list the machine code")
    options = parser.parse_args(arguments)
    if not os.path.isfile(options.script):
        parser.error(f"there is no file {options.script!r}")
    try:
        running.inherit("emulator")
    except RuntimeError as error:
        parser.error(str(error))
    tallies = launches_of(options.script, options.arguments)
    try:
        tally = chosen(tallies, Path(options.script).name, options.kernel)
    except NothingToShow as error:
        parser.error(str(error))
    print(explain(tally, options.full))


if __name__ == "__main__":
    _main(sys.argv[1:])
