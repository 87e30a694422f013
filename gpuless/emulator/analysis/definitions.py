"""Rename registers so that each definition which is the only one to reach some reader has its own name.

Compilers reuse registers, and a fact about a register must hold for all its definitions. With separate names
more is known of each definition.
"""

from dataclasses import replace

from gpuless.emulator.ptx.instructions import destinations, renamed, sources


def separate(flow, registers):
    """Rename registers in the basic blocks of a function, in place.

    `registers`: widths by name; the new registers are added.
    """
    blocks, sites = flow.blocks, _sites(flow.blocks, registers)
    if not sites:
        return
    numbers = {site: i for i, site in enumerate(site for found in sites.values() for site in found)}
    of_name = {name: sum(1 << numbers[site] for site in found) for name, found in sites.items()}
    entering = _reaching(flow, sites, numbers, of_name)
    alone, shared = {}, set()
    for at, block in enumerate(blocks):
        reaching = entering[at]
        for i, instruction in enumerate([*block.body, None]):
            read = sources(instruction) if instruction else [block.end.condition]
            for name in read:
                found = reaching & of_name.get(name, 0)
                if found and not found & (found - 1):
                    alone.setdefault(found.bit_length() - 1, []).append((at, i, name))
                else:
                    shared.update(_bits(found))
            for name in destinations(instruction) if instruction else ():
                if name in of_name:
                    reaching = reaching & ~of_name[name] | 1 << numbers[at, i, name]
    _rename(blocks, registers, {number: site for site, number in numbers.items()}, alone, shared)


def _bits(number):
    while number:
        yield (number & -number).bit_length() - 1
        number &= number - 1


def _sites(blocks, registers):
    """Return the definitions (block, instruction, name) of each register that has more than one."""
    found = {}
    for at, block in enumerate(blocks):
        for i, instruction in enumerate(block.body):
            for name in destinations(instruction):
                if registers.get(name) in _TYPES:
                    found.setdefault(name, []).append((at, i, name))
    return {name: sites for name, sites in found.items() if len(sites) > 1}


def _reaching(flow, sites, numbers, of_name):
    """Return the definitions that reach the beginning of each block, as bit sets."""
    given, killed = [0] * len(flow.blocks), [0] * len(flow.blocks)
    for name, found in sites.items():
        for at in {at for at, _, _ in found}:
            killed[at] |= of_name[name]
            given[at] |= 1 << numbers[max(site for site in found if site[0] == at)]
    entering = [0] * len(flow.blocks)
    waiting = list(range(len(flow.blocks)))
    while waiting:
        at = waiting.pop(0)
        leaving = entering[at] & ~killed[at] | given[at]
        for follower in flow.successors[at]:
            if leaving & ~entering[follower]:
                entering[follower] |= leaving
                waiting.append(follower)
    return entering


def _rename(blocks, registers, sites, alone, shared):
    """Write the new names; a definition that also reaches shared readers is copied to the old name."""
    reads, writes = {}, {}
    for number, places in alone.items():
        at, i, name = sites[number]
        own = f"{name}.d{number}"
        registers[own] = registers[name]
        writes.setdefault((at, i), {})[name] = own, number in shared
        for block, j, _ in places:
            reads.setdefault((block, j), {})[name] = own
    for at, block in enumerate(blocks):
        body = []
        for i, instruction in enumerate(block.body):
            body += _rewritten(instruction, registers, reads.get((at, i), {}), writes.get((at, i), {}))
        condition = reads.get((at, len(block.body)), {}).get(block.end.condition, block.end.condition)
        block.body, block.end = body, block.end._replace(condition=condition)


def _rewritten(instruction, registers, reads, writes):
    """Return an instruction with its registers renamed, and the copies to old names."""
    if not reads and not writes:
        return [instruction]
    own = {name: new for name, (new, _) in writes.items()}
    first, rest = instruction.operands[:1], instruction.operands[1:]
    first = [renamed(operand, own if destinations(instruction) else reads) for operand in first]
    changed = replace(instruction, operands=[*first, *(renamed(operand, reads) for operand in rest)])
    copies = [
        replace(instruction, opcode=("mov", _TYPES[registers[name]]), operands=[name, own[name]])
        for name, (_, also) in writes.items()
        if also
    ]
    return [changed, *copies]


_TYPES = {1: "pred", 16: "b16", 32: "b32", 64: "b64"}
