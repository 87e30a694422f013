"""The alignment of addresses: an access at an address that is not a multiple of its size is a fault.

A proved alignment need not be checked while the kernel runs. Proofs start from the kernel's parameters,
whose alignment is checked at launch.
"""

from gpuless.emulator.analysis import lanes
from gpuless.emulator.analysis.waits import instructions_of
from gpuless.emulator.ptx import BITS, Address, number
from gpuless.emulator.ptx.instructions import destinations, listed

_ACCESSES = {"ld", "ldu", "st", "atom", "red"}
#: The indices of the operands that an instruction adds, and of those that it multiplies.
_SUMS = {"add": (1, 2), "sub": (1, 2), "mov": (1,), "cvta": (1,), "cvt": (1,), "selp": (1, 2), "mad": (3,)}
_SUMS |= {"or": (1, 2), "xor": (1, 2)}
_PRODUCTS = {"mul": (1, 2), "mad": (1, 2), "shl": (1, 2)}
_MOST = 5  # as a power of two: an access has at most 32 bytes


def access_size(instruction):
    """Return the bytes of memory that an instruction accesses in each lane; 0 if it accesses none."""
    opcode, operands = instruction.opcode, instruction.operands
    if opcode[0] not in _ACCESSES or "param" in opcode:
        return 0
    given = operands[1] if opcode[0] == "st" else operands[0]
    return len(listed(given)) * BITS[next(part for part in reversed(opcode) if part in BITS)] // 8


def _parameter(instruction):
    """Return the name of the parameter that an instruction loads, or None."""
    if instruction.opcode[:2] == ("ld", "param") and not instruction.operands[1].offset:
        return instruction.operands[1].base
    return None


def _power(operand, type_):
    """Return the largest n such that an immediate is a multiple of 2**n; None if it is no immediate."""
    if not isinstance(operand, str) or not (operand[0].isdigit() or operand[0] == "-"):
        return None
    return lanes.trailing_zeros(number(operand, type_ if type_ in BITS else "u64"))


def _is_integer(instruction):
    kinds = instruction.opcode[-2:] if instruction.opcode[0] == "cvt" else instruction.opcode[-1:]
    return all(kind[0] in "us" or kind in ("b32", "b64") for kind in kinds) and "hi" not in instruction.opcode


def needed_alignments(function):
    """Return the alignments that a kernel's pointer parameters need for all accesses to be aligned."""
    written, needed, seen = {}, {}, {}
    for instruction in instructions_of(function):
        for name in destinations(instruction):
            written.setdefault(name, []).append(instruction)

    def need(name, power):
        """Note that a register must be a multiple of 2**power."""
        if power <= seen.get(name, 0):
            return
        seen[name] = power
        for source in written.get(name, ()):
            parameter = _parameter(source)
            if parameter is not None:
                needed[parameter] = max(needed.get(parameter, 1), 1 << power)
            if not _is_integer(source):
                continue
            waiting.extend((source.operands[i], power) for i in _SUMS.get(source.opcode[0], ()))
            factors = [source.operands[i] for i in _PRODUCTS.get(source.opcode[0], ())]
            for one, other in zip(factors, factors[::-1], strict=True):
                power_of_other = _power(other, source.opcode[-1])
                loads = [_parameter(found) for found in written.get(one, ())]
                if power_of_other is not None:
                    by = int(other, 0) if source.opcode[0] == "shl" else power_of_other
                    waiting.append((one, power - by))
                elif loads and None not in loads and source.opcode[0] != "shl":
                    waiting.append((one, power))

    waiting = [
        (operand.base, lanes.trailing_zeros(access_size(instruction)))
        for instruction in instructions_of(function)
        for operand in instruction.operands
        if isinstance(operand, Address) and access_size(instruction)
    ]
    while waiting:
        name, power = waiting.pop()
        if isinstance(name, str):
            need(name, power)
    sizes = {variable.name: variable.size for variable in function.parameters}
    return {name: size for name, size in needed.items() if sizes.get(name) == 8}


class Multiples:
    """The largest n, for each register, such that all lanes hold multiples of 2**n.

    `alignments`: the alignments of parameters and of the addresses of variables.
    """

    def __init__(self, analysis, alignments):
        self._analysis, self._alignments = analysis, alignments
        # A fixed point: assume the largest alignment everywhere, and weaken it until nothing changes.
        self._powers = {name: _MOST for _, written in analysis.instructions for name in written}
        changed = True
        while changed:
            changed = False
            for instruction, written in analysis.instructions:
                for name in written:
                    power = min(self._powers[name], self._of_result(instruction))
                    changed |= power != self._powers[name]
                    self._powers[name] = power

    def power(self, operand, type_="u64"):
        """Return the largest n such that an operand is known to be a multiple of 2**n."""
        if isinstance(operand, tuple):
            return 0
        immediate = _power(operand, type_)
        if immediate is not None:
            return immediate
        kind = self._analysis.kind(operand)
        known = 0
        if kind is not lanes.VARYING:
            offsets, align = lanes.relative(kind)
            known = min([align, *map(lanes.trailing_zeros, map(abs, offsets))])
        own = self._powers.get(operand)
        return max(lanes.trailing_zeros(self._alignments.get(operand, 1)) if own is None else own, known)

    def _of_result(self, instruction):
        opcode, operands, type_ = instruction.opcode, instruction.operands, instruction.opcode[-1]
        name, parameter = opcode[0], _parameter(instruction)
        if parameter is not None:
            return lanes.trailing_zeros(self._alignments.get(parameter, 1))
        if not _is_integer(instruction) or isinstance(operands[0], tuple):
            return 0
        if name == "and":
            return max(self.power(operands[i], type_) for i in (1, 2))
        powers = [self.power(operands[i], type_) for i in _SUMS.get(name, ())]
        if name == "shl":
            by = operands[2]
            powers.append(self.power(operands[1], type_) + (int(by, 0) if by.isdigit() else 0))
        elif name in _PRODUCTS:
            powers.append(sum(self.power(operands[i], type_) for i in _PRODUCTS[name]))
        return min(powers, default=0)
