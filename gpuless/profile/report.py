"""What a profile says, as an object and as text."""

class Report:
    def __init__(self, name, taken, device, occupancy, counts, traffic, prediction):
        self.name, self.taken, self.device = name, taken, device
        self.occupancy, self.counts, self.traffic, self.prediction = occupancy, counts, traffic, prediction
        self.microseconds = prediction.microseconds

    def __str__(self):
        p = self.prediction
        t = self.traffic
        return (f"{self.name} on {self.device.name}: modelled {self.microseconds:.1f} us; bound {p.bound}; occ {self.occupancy.blocks}x{self.taken.warps}"
          + " ".join(f"{u}:{v:.2f}" for u, v in p.busy.items()) + f" L1 {t.l1_hit_rate:.2f} L2 {t.l2_hit_rate:.2f} alone {p.alone:.0f} missed {len(self.counts.missed)}")
