"""The inspector's report on a kernel, as an object, as text and as HTML."""

import functools
import html
import linecache
from collections import Counter
from dataclasses import dataclass, field

from gpuless.inspector.advice import advise
from gpuless.inspector.architectures import ARCHITECTURES, Occupancy, occupancy as compute_occupancy
from gpuless.inspector.assembly import KINDS, memory_bits
from gpuless.wrapping import wrapped

_MEMORY_KINDS = ("global load", "global store", "shared load", "shared store", "local load", "local store")
# Kinds that are marked in the annotated source.
_MARKED = ("FP64", "tensor core", "local load", "local store", "atomic", "barrier")
_BLOCK_SIZES = (64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class KernelReport:
    """A kernel as compiled for one architecture; `print` it, or let a notebook show it."""

    name: str
    signature: str
    cc: tuple
    """Compute capability, (major, minor)."""
    registers: int
    """32-bit registers per thread."""
    spill_bytes: int
    """Bytes per thread that are spilled for lack of registers."""
    shared_bytes: int
    """Bytes of shared arrays per block."""
    dynamic_shared: int
    """Bytes of dynamic shared memory, as given by the caller."""
    local_bytes: int
    """Bytes of local memory per thread: arrays that registers cannot hold, and spills."""
    occupancy: Occupancy
    instructions: tuple = field(repr=False)
    """Every `gpuless.inspector.assembly.Instruction`, in the order of the program."""
    language: str
    """ "SASS", which is machine code, or "PTX", which the assembler still changes."""
    arguments: dict
    """Numba's types, by argument name."""
    launch_bounds: int | None
    """The most threads per block that the kernel is compiled for, if this is limited."""
    file: str
    line: int

    @functools.cached_property
    def advice(self):
        """What to change, the most important first: a tuple of `gpuless.inspector.advice.Advice`."""
        return advise(self)

    @property
    def mix(self):
        """The number of instructions by kind, in the order of `assembly.KINDS`."""
        counts = Counter(instruction.kind for instruction in self.instructions)
        return {kind: counts[kind] for kind in KINDS if counts[kind]}

    @property
    def float64(self):
        """The number of float64 instructions by (file, line)."""
        places = Counter((i.file, i.line) for i in self.instructions if i.kind == "FP64")
        return dict(sorted(places.items()))

    @property
    def vector_widths(self):
        """The number of loads and stores by kind and width in bits: {"global load": {32: 4, 128: 2}}."""
        widths = {}
        for kind in _MEMORY_KINDS:
            bits = Counter(memory_bits(i) for i in self.instructions if i.kind == kind)
            if bits:
                widths[kind] = dict(sorted(bits.items()))
        return widths

    @property
    def uses_tensor_cores(self):
        """Whether any instruction runs on the Tensor Cores."""
        return "tensor core" in self.mix

    def occupancy_at(self, threads_per_block):
        """Return the `Occupancy` for another block size.

        Parameters
        ----------
        threads_per_block : int

        Returns
        -------
        Occupancy
        """
        shared = self.shared_bytes + self.dynamic_shared
        return compute_occupancy(self.cc, threads_per_block, self.registers, shared)

    def listing(self, line=None):
        """Return the assembly as text, with its source lines.

        Parameters
        ----------
        line : int, optional
            Show only the instructions of this line of the kernel's file.

        Returns
        -------
        str
        """
        rows, place = [], None
        for instruction in self.instructions:
            if line is not None and (instruction.file, instruction.line) != (self.file, line):
                continue
            if (instruction.file, instruction.line) != place:
                place = (instruction.file, instruction.line)
                rows.append(f"{instruction.line:5}  {linecache.getline(*place).strip()}")
            rows.append(f"{'':11}{instruction.text}")
        return "\n".join(rows)

    def annotated(self):
        """Return the kernel's source, each line with its number of instructions and notable kinds of them.

        Returns
        -------
        str
        """
        by_line = {}
        for instruction in self.instructions:
            if instruction.file == self.file:
                by_line.setdefault(instruction.line, Counter())[instruction.kind] += 1
        if not by_line:
            return ""
        source = [linecache.getline(self.file, n).rstrip("\n") for n in range(self.line, max(by_line) + 1)]
        indent = min((len(row) - len(row.lstrip()) for row in source if row.strip()), default=0)
        rows = []
        for number, row in enumerate(source, self.line):
            kinds = by_line.get(number, Counter())
            marks = ", ".join(f"{kinds[kind]} {kind}" for kind in _MARKED if kinds[kind])
            rows.append(f"{number:5} {kinds.total() or '':>5} | {row[indent:]}{marks and '   <- ' + marks}")
        return "\n".join(rows)

    def __str__(self):
        facts = self._facts()
        width = max(len(name) for name, _ in facts)
        lines = [f"{self.name} {self.signature}".strip()]
        for name, value in facts:
            lines += wrapped(value, first=f"  {name:{width}}  ", rest=" " * (width + 4))
        lines += ["advice"] if self.advice else ["nothing to advise"]
        for advice in self.advice:
            lines += wrapped(str(advice), first="- ", rest="  ")
        return "\n".join(lines)

    def _repr_html_(self):
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
            f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
            for name, value in self._facts()
        )
        advice = "".join(f"<li>{html.escape(str(item))}</li>" for item in self.advice)
        return (
            f"<p><b>{html.escape(self.name)}</b> <code>{html.escape(self.signature)}</code></p>"
            f"<table>{cells}</table>"
            f"<p>{'Advice' if advice else 'Nothing to advise.'}</p><ul>{advice}</ul>"
            f"<details><summary>Instructions by source line</summary>"
            f"<pre>{html.escape(self.annotated())}</pre></details>"
            f"<details><summary>{self.language}</summary><pre>{html.escape(self.listing())}</pre></details>"
        )

    def _facts(self):
        """Return pairs of name and text, in the order in which they are shown."""
        architecture, found = ARCHITECTURES[self.cc], self.occupancy
        major, minor = self.cc
        sizes = [(size, self.occupancy_at(size).fraction) for size in _BLOCK_SIZES]
        limits = " and ".join(found.limited_by)
        widths = [
            f"{count} of {bits}-bit {kind}"
            for kind, counts in self.vector_widths.items()
            for bits, count in counts.items()
        ]
        places = ", ".join(f"{line} ({count})" for (_, line), count in self.float64.items())
        float64 = (
            f"{sum(self.float64.values())} in lines {places}, at {architecture.float64} of float32's speed"
        )
        language = "SASS" if self.language == "SASS" else "PTX, which the assembler will still change"
        return [
            ("architecture", f"{architecture.name}, compute capability {major}.{minor}"),
            ("registers", f"{self.registers} per thread, {self.spill_bytes} bytes spilled"),
            ("shared memory", f"{self.shared_bytes + self.dynamic_shared} bytes per block"),
            ("local memory", f"{self.local_bytes} bytes per thread"),
            (
                "occupancy",
                f"{found.fraction:.0%} in blocks of {found.threads_per_block}, limited by {limits} "
                f"({', '.join(f'{size}: {fraction:.0%}' for size, fraction in sizes)})",
            ),
            ("instructions", f"{len(self.instructions)} of {language}"),
            ("  mix", ", ".join(f"{count} {kind}" for kind, count in self.mix.items())),
            ("  loads, stores", ", ".join(widths) or "none"),
            ("  float64", float64 if places else "none"),
            ("  Tensor Cores", "used" if self.uses_tensor_cores else "not used"),
        ]
