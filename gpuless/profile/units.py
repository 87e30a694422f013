"""The demand of each machine instruction on an SM's units, and its latency."""

from collections import Counter

import numpy as np

from gpuless.profile import caches
from gpuless.profile.sass_counts import anchor_of, width

#: The units of an SM. A demand is in cycles of the SM: its four partitions share the work.
UNITS = ("issue", "fma", "multiply", "alu", "float64", "special", "L1")
#: The units that all SMs share, and the transfer from there to L1.
SHARED_UNITS = ("L2", "DRAM", "fill", "atomics")
_PARTITIONS = 4

_FMA = set("FFMA FMUL FADD FFMA32I FMUL32I FADD32I".split())
_MULTIPLY = set("IMAD IMUL XMAD IDP IDP4A".split())
_SPECIAL = set("MUFU I2F F2I F2F FRND I2I POPC FLO BREV".split())
_ALU = set(
    "IADD3 IADD3X LOP3 LEA SHF SHL SHR ISETP FSETP FSEL SEL FMNMX IMNMX VIMNMX IABS PRMT PLOP3 BMSK SGXT MOV "
    "VABSDIFF ICMP ISCADD VOTE P2R R2P MOV32I LOP32I FSET VIADD R2UR VIADDMNMX FCHK CS2R IADD".split()
)
_FLOAT64 = set("DADD DMUL DFMA DSETP DMNMX".split())
_GLOBAL = {"LDG": "load", "LD": "load", "STG": "store", "ST": "store"}
_GLOBAL |= dict.fromkeys(("ATOM", "ATOMG", "RED", "REDG"), "atomic")
_ON_CHIP = {"LDS": "load", "STS": "store", "ATOMS": "atomic"}
_L1 = {*_GLOBAL, *_ON_CHIP, "LDL", "STL", "SHFL", "LDSM", "LDGSTS", "MATCH"}
# Latencies that do not depend on memory: J18 and J19, rounded.
_FIXED = {"LDC": 40, "MUFU": 24, "I2F": 24, "F2I": 24, "F2F": 24, "S2R": 20, "S2UR": 20, "BAR": 20}
_OTHER = 12
_ATOMIC_IN_SHARED = 32  # cycles more than a load
COLUMN_OF_WIDTH = {1: 0, 2: 0, 4: 0, 8: 1, 16: 2}


def is_float64(step):
    """Return whether float64's units execute an instruction."""
    return step.base in _FLOAT64 or ".F64" in step.opcode


def of_memory(step):
    """Return whether an instruction accesses global or local memory, through L1."""
    return step.base in _GLOBAL or step.base in ("LDL", "STL", "LDGSTS")


def _unit(step):
    """Return which unit executes an instruction; None if it only takes an issue slot."""
    if is_float64(step):
        return "float64"
    for unit, names in (("fma", _FMA), ("multiply", _MULTIPLY), ("special", _SPECIAL), ("alu", _ALU)):
        if step.base in names:
            return unit
    return "L1" if step.base in _L1 else None


class Costs:
    """The demands and latencies of each instruction of a launch on a device."""

    def __init__(self, device, counts, traffic):
        self.device, self.counts, self.traffic = device, counts, traffic
        self.demands = np.array([self._demand(step) for step in counts.steps])
        self.latencies = np.concatenate(
            [self._latencies(counts.steps[block.first : block.last]) for block in counts.blocks]
        )

    def _demand(self, step):
        """Return the cycles for which a warp's instruction occupies each of `UNITS`."""
        found = np.zeros(len(UNITS))
        found[0] = 1 / _PARTITIONS
        unit = _unit(step)
        if unit == "L1":
            found[UNITS.index(unit)] = self._l1(step)
        elif unit == "multiply" and self.device.fma == self.device.multiply:  # the same units
            found[UNITS.index("fma")] = self.device.multiply / _PARTITIONS
        elif unit:
            found[UNITS.index(unit)] = getattr(self.device, unit) / _PARTITIONS
        return found

    def _l1(self, step):
        """Return the cycles for which a request occupies L1 and shared memory, which are one unit."""
        passing, taken = 32 / self.device.lsu_lanes, 1.0
        if step.base in ("LDS", "STS"):
            delivered = self.traffic.shared.get((_ON_CHIP[step.base], step.file, step.line))
            if delivered:
                taken = delivered[COLUMN_OF_WIDTH.get(width(step.opcode), 2)] * 128 / self.device.l1_bytes
        elif step.base == "ATOMS":
            delivered = self.traffic.shared.get(("atomic", step.file, step.line), (1.0, 1.0, 1.0))
            # Increments of the same word are combined by counting lanes; other operations are serialised.
            taken = 2 * delivered[0 if ".POPC" in step.opcode else 2 if ".64" in step.opcode else 1]
        elif (row := self._row(step)) is not None:
            lines, sectors = row[caches.LINES] / row[caches.ALL], row[caches.SECTORS] / row[caches.ALL]
            taken = max(lines, sectors * caches.SECTOR / self.device.l1_bytes)
        taken = max(passing, taken) * (self.device.loads if step.base in ("LDG", "LD") else 1.0)
        anchor = anchor_of(step)
        share = self.counts.shares.get(anchor[0], 1.0) if anchor and step.predicate else 1.0
        return taken * share + passing * (1 - share)  # instructions that a predicate turns off pass as well

    def _row(self, step):
        """Return the row of `Traffic.lines` for an access to global memory, None if there is none."""
        what = _GLOBAL.get(step.base)
        row = self.traffic.lines.get((what, step.file, step.line)) if what else None
        return row if row is not None and row[caches.SECTORS] > 0 else None

    def _latencies(self, steps):
        """Return the latency of each instruction of a basic block."""
        loads = Counter((step.file, step.line) for step in steps if step.base in ("LDG", "LD"))
        return [self._latency(step, loads[step.file, step.line]) for step in steps]

    def _latency(self, step, together):
        device = self.device
        if step.base in ("LDG", "LD", "ATOM", "ATOMG"):
            return self._memory_latency(self._row(step), max(1, together))
        if step.base in ("LDS", "LDSM", "SHFL", "ATOMS"):
            return device.shared_latency + (_ATOMIC_IN_SHARED if step.base == "ATOMS" else 0)
        if is_float64(step):
            return 48 if device.float64 >= 16 else _OTHER
        return _FIXED.get(step.base, _OTHER)

    def _memory_latency(self, row, together):
        """Return the mean latency of `together` requests of a line that are in flight at once.

        A request waits for its slowest sector, a warp for the slowest of its requests. In an unrolled loop
        these are neighbours, and one of them is the first in its sector.
        """
        device = self.device
        if row is None:
            return device.l2_latency
        missed, fetched = np.minimum(1.0, together * row[[caches.MISSED, caches.FETCHED]] / row[caches.ALL])
        mean = device.l1_latency + missed * (device.l2_latency - device.l1_latency)
        mean += fetched * (device.dram_latency - device.l2_latency)
        return mean + max(0.0, row[caches.LINES] / row[caches.ALL] - 1)
