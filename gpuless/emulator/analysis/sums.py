"""Which vectors are sums of one number, the same in all lanes, and of a vector that changes less often.

In ``x[n, c, h, w]`` each lane often has an image and a place, and a loop runs over channels: what it adds to
the address is the same for all lanes. Such registers are kept as two. Then the vector's part of an address
can be computed before the loop, and what is found out about it holds as long as the loop runs.
"""

import functools

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import VARYING
from gpuless.emulator.ptx.instructions import destinations, sources

_SUMS, _PRODUCTS, _WORDS = {"add", "sub"}, {"mul", "mad", "shl"}, {"u64", "s64", "b64"}
_PURE = {"add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "neg", "not", "mov", "cvt", "cvta"}
_PURE |= {"selp", "setp", "min", "max"}


def is_word(opcode):
    """Return whether an instruction computes whole integers of 64 bits from such."""
    return opcode[-1] in _WORDS and not {"cc", "sat", "hi", "wide"}.intersection(opcode)


def is_copy(instruction):
    """Return whether an instruction copies 64 bits."""
    opcode, second = instruction.opcode, instruction.operands[1]
    if opcode[0] == "cvta":
        return "param" not in opcode and "shared" not in "".join(opcode)
    return opcode[0] == "mov" and is_word(opcode) and isinstance(second, str)


class Sums:
    """The registers of 64 bits that are kept as sums: `names`; `analysis`: of their function."""

    def __init__(self, analysis):
        self.analysis = analysis
        self._definitions, self._known = {}, {}
        for block in analysis.flow.blocks:
            for instruction in block.body:
                for name in destinations(instruction):
                    self._definitions.setdefault(name, []).append((block.index, instruction))
        self.names = set()
        candidates = {name: found for name, found in self._definitions.items() if self._may_be(name)}
        before = None
        while before != len(self.names):
            before = len(self.names)
            for name, found in candidates.items():
                if name not in self.names and any(self._adds(instruction) for _, instruction in found):
                    self.names.add(name)

    def _may_be(self, name):
        a = self.analysis
        if a.function.registers.get(name) != 64 or a.kinds.get(name, VARYING) is not VARYING:
            return False
        kept = name in a.crossing and (name in a.blended or name in a.restless)
        return not a.assumed.get(name) and not kept

    def _adds(self, instruction):
        """Return whether a number that all lanes share is a part of what an instruction writes."""
        opcode, operands = instruction.opcode, instruction.operands
        if is_copy(instruction):
            return operands[1] in self.names
        if not is_word(opcode):
            return False
        if opcode[0] in _SUMS:
            return any(self._shares(operand) for operand in operands[1:])
        if opcode[0] == "shl":
            return operands[1] in self.names and operands[2][0].isdigit()
        if opcode[0] in ("mul", "mad"):
            factors = operands[1:3]
            product = any(self._uniform(x) and y in self.names for x, y in (factors, factors[::-1]))
            added = opcode[0] == "mad" and (self._shares(operands[3]) or all(map(self._uniform, factors)))
            return product or added
        return False

    def _uniform(self, operand):
        return lanes.uniform(self.analysis.kind(operand))

    def _shares(self, operand):
        return operand in self.names or self.analysis.kind(operand) is not VARYING

    # --- What loops change -------------------------------------------------------------------------------

    @functools.cached_property
    def _loops(self):
        return [range(first, last + 1) for first, last in self.analysis.flow.loop_ends.items()]

    def steady(self, name, block):
        """Return whether the vector of a sum stays what it is in the innermost loop around a block.

        It is about speed alone: what is not steady is found out each time.
        """
        around = [loop for loop in self._loops if block in loop]
        return bool(around) and self._stays(name, min(around, key=len), frozenset(), frozenset())

    def is_early(self, name):
        """Return whether a register may be written before it is known whether any lane is there to do it.

        That is so if it is written in one place, and no lane asks there for what it held before.
        """
        (at, _), *others = self._definitions[name]
        asking = [loop[0] for loop in self._loops if at in loop] + [0, at]
        return not others and not any(self.analysis.lives(name, block) for block in asking)

    def _stays(self, name, loop, alike, behind):
        """Return whether a loop leaves the vector of a register alone, or for one number the number itself.

        `alike`: registers of which the vector is the same, if it stays; `behind`: those it is a part of.
        """
        if name not in self.analysis.function.registers:
            return True
        if name in self.analysis.crossing and name not in self.names:  # the vector is all that it is
            behind, alike = behind | alike, frozenset()
        if name in alike:
            return True
        if name in behind:
            return False
        if (name, loop) not in self._known:
            changes = [one for at, one in self._definitions.get(name, ()) if at in loop]
            self._known[name, loop] = all(self._repeats(one, name, loop, alike, behind) for one in changes)
        return self._known[name, loop]

    def _repeats(self, instruction, name, loop, alike, behind):
        """Return whether an instruction of a loop writes the same vector, or number, each time."""
        opcode, operands = instruction.opcode, instruction.operands
        below = behind | alike | {name}
        if self._uniform(name):
            pure = opcode[0] in _PURE and self._all_stay(sources(instruction), loop, below)
            return pure or opcode[:2] == ("ld", "param")
        if is_copy(instruction):
            return self._stays(operands[1], loop, alike | {name}, behind)
        if not is_word(opcode) or opcode[0] not in _SUMS | _PRODUCTS:
            return opcode[0] in _PURE and self._all_stay(sources(instruction), loop, below)
        vectors = [operand for operand in operands[1:] if not self._uniform(operand)]
        if opcode[0] in _PRODUCTS and not vectors == operands[3:4]:  # what is added is free to change
            return self._all_stay({*vectors, *operands[1:3]}, loop, below)
        if vectors in (operands[1:2], operands[3:4]):
            return self._stays(vectors[0], loop, alike | {name}, behind)
        return self._all_stay(vectors, loop, below)

    def _all_stay(self, names, loop, behind):
        return all(self._stays(name, loop, frozenset(), behind) for name in names)
