"""Registers that are the sum of a uniform number and a vector that changes less often.

In ``x[n, c, h, w]`` the lanes often have different `n`, `h` and `w`, and a loop runs over `c`: it adds the
same number to the addresses of all lanes. Such a register is kept as two. The vector is computed before the
loop, and a check of it there holds for the whole loop.
"""

import functools

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.lanes import VARYING
from gpuless.emulator.ptx.instructions import destinations, sources

_SUMS, _PRODUCTS, _WORDS = {"add", "sub"}, {"mul", "mad", "shl"}, {"u64", "s64", "b64"}
_PURE = {"add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "neg", "not", "mov", "cvt", "cvta"}
_PURE |= {"selp", "setp", "min", "max"}


def is_word(opcode):
    """Return whether an instruction computes 64-bit integers from 64-bit integers, modulo 2**64."""
    return opcode[-1] in _WORDS and not {"cc", "sat", "hi", "wide"}.intersection(opcode)


def is_copy(instruction):
    """Return whether an instruction copies 64 bits."""
    opcode, second = instruction.opcode, instruction.operands[1]
    if opcode[0] == "cvta":
        return "param" not in opcode and "shared" not in "".join(opcode)
    return opcode[0] == "mov" and is_word(opcode) and isinstance(second, str)


class Sums:
    """The 64-bit registers that are kept as sums: `names`; `analysis`: of their function."""

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
        """Return whether the result of an instruction has a uniform summand."""
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

    # --- Loop invariants -------------------------------------------------------------------------------

    @functools.cached_property
    def _loops(self):
        return [range(first, last + 1) for first, last in self.analysis.flow.loop_ends.items()]

    def steady(self, name, block):
        """Return whether the vector of a sum is invariant in the innermost loop around a block.

        Only speed depends on it: a vector that is not invariant is checked each time.
        """
        around = [loop for loop in self._loops if block in loop]
        return bool(around) and self._stays(name, min(around, key=len), frozenset(), frozenset())

    def is_early(self, name):
        """Return whether a register may be written before it is known whether any lane is on.

        It may if it has one definition, and its old value is not read after that.
        """
        (at, _), *others = self._definitions[name]
        asking = [loop[0] for loop in self._loops if at in loop] + [0, at]
        return not others and not any(self.analysis.lives(name, block) for block in asking)

    def _stays(self, name, loop, alike, behind):
        """Return whether the vector of a register, or a uniform number, is invariant in a loop.

        `alike`: registers that have the same vector if it is invariant; `behind`: registers computed from it.
        """
        if name not in self.analysis.function.registers:
            return True
        if name in self.analysis.crossing and name not in self.names:  # it is a vector only
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
        """Return whether an instruction in a loop writes the same vector or number in each iteration."""
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
        if opcode[0] in _PRODUCTS and vectors != operands[3:4]:  # a uniform summand may change
            return self._all_stay({*vectors, *operands[1:3]}, loop, below)
        if vectors in (operands[1:2], operands[3:4]):
            return self._stays(vectors[0], loop, alike | {name}, behind)
        return self._all_stay(vectors, loop, below)

    def _all_stay(self, names, loop, behind):
        return all(self._stays(name, loop, frozenset(), behind) for name in names)
