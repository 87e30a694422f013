"""Parameters that have one value in most launches, such as the strides of contiguous arrays.

The frontend notes them in the PTX (`noted`). A launch that passes these values gets code in which they are
constants, so the translator sees which lanes read neighbours. Any other launch gets code for all values.
"""

import re
from functools import cached_property

from gpuless.emulator import ptx
from gpuless.emulator.analysis.alignment import needed_alignments

_NOTE = re.compile(r'\.pragma "usual (\S+) = (\d+)";')  # PTX tools ignore unknown pragmas
_LOAD = re.compile(r"ld\.param\.u64(\s+)(%\w+), \[(\w+)\];")


def noted(text, values):
    """Return PTX with notes of the usual values of 64-bit parameters, given by name."""
    notes = "".join(f'.pragma "usual {name} = {value}";\n' for name, value in values.items())
    end = len(text.rstrip("\0"))
    return f"{text[:end]}\n{notes}{text[end:]}"


class Usual:
    """The usual values of a kernel's parameters; `places`: their offsets in the argument buffer."""

    def __init__(self, source, name, places):
        self._text, self._name, self._places = source.text, name, places
        self.values = {name: int(value) for name, value in _NOTE.findall(source.text) if name in places}

    def passed(self, arguments):
        """Return whether a launch passes all the usual values; False if there are none."""
        return bool(self.values) and all(
            int.from_bytes(arguments[self._places[name] :][:8], "little") == value
            for name, value in self.values.items()
        )

    @cached_property
    def source(self):
        """The module with these values in place of the parameters."""

        def said(load):
            value = self.values.get(load[3])
            return load[0] if value is None else f"mov.u64{load[1]}{load[2]}, {value};"

        return ptx.parse(_LOAD.sub(said, self._text))

    @cached_property
    def alignments(self):
        """The result of `needed_alignments` for that module."""
        return needed_alignments(self.source.functions[self._name])
