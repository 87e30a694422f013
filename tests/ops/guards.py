"""Gaps between the arrays of a chain's memory, which show kernels that leave their array."""

from cnn_numba.ops.fused import cpu_stage

GAP = 256  # elements before, between and after arrays: more than the vectors of one row


class Guards:
    """The gaps in all memory that is laid out from now on; filled, they must not change.

    Parameters
    ----------
    monkeypatch : MonkeyPatch
    value : float
        Fills the gaps between floats. NaN shows in the result if it is read; -0.0 becomes 0.0 if anything,
        even zero, is added to it.
    """

    def __init__(self, monkeypatch, value):
        self.value, self.arenas, self.gaps = value, [], []
        guards = self

        class GuardedArena(cpu_stage._Arena):
            def __init__(self):
                super().__init__()
                guards.arenas.append(gaps := [])
                self.gaps = gaps
                self.add(0)

            def add(self, size):
                start = super().add(size + GAP)
                self.gaps.append(slice(start + size, start + size + GAP))
                return start

        monkeypatch.setattr(cpu_stage, "_Arena", GuardedArena)

    def _filling(self, array):
        return {"f": self.value, "i": -1, "u": 255}[array.dtype.kind]

    def fill(self, *memories):
        """Fill the gaps in memory, which is given in the order in which it was laid out."""
        arenas = iter(self.arenas)
        for memory in memories:
            for block in memory:
                for gap in next(arenas):
                    block[gap] = self._filling(block)
                    self.gaps.append((block[gap], block[gap].tobytes()))
        assert next(arenas, None) is None

    def check(self):
        """Check that nobody wrote into a gap."""
        assert self.gaps
        changed = [index for index, (gap, before) in enumerate(self.gaps) if gap.tobytes() != before]
        assert not changed, f"a kernel left its array: gaps {changed} of {len(self.gaps)} have changed"
