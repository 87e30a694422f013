"""From the rows of a trace to the fields of a finding."""

import numpy as np

from gpuless.access.trace import ATOMIC, READ, WRITE
from gpuless.positions import Shape, coordinates

OPERATIONS = {READ: "read", WRITE: "write", ATOMIC: "update"}


class Fields:
    """Puts into the fields of a finding what happened in a launch.

    The memory that the trace is from knows what is not an access to an array. To the list of notes is added
    what is worth knowing and no mistake.
    """

    def __init__(self, trace, memory, notes):
        self.trace, self.memory, self.notes = trace, memory, notes
        self.launch = Shape(trace.grid, trace.block_shape)

    def note(self, text):
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)

    def thread_position(self, number):
        """Return the x, y, z of a thread in its block."""
        return coordinates(int(number), self.trace.block_shape)

    def block_position(self, number):
        """Return the x, y, z of a block in the grid."""
        return coordinates(int(number), self.trace.grid)

    def who(self, event):
        """Return who made a miss or took part in an operation of a warp, as fields of a finding."""
        return {
            "site": event.site,
            "block": self.block_position(event.block),
            "thread": self.thread_position(event.thread),
            "launch": self.launch,
        }

    def places(self, rows):
        """Return the blocks and barrier intervals that rows are from."""
        return frozenset(
            zip(self.trace.block[rows].tolist(), self.trace.interval[rows].tolist(), strict=True)
        )

    def site(self, row):
        """Return the instruction that made an access."""
        return self.trace.sites[self.trace.site[row]]

    def array(self, row):
        """Return the array that an access was to."""
        return self.trace.arrays[self.trace.array[row]]

    def at(self, row):
        """Return where a row's access happened, as fields of a finding."""
        info = self.array(row)
        return {
            "array": info.name,
            "index": self.trace.index(row),
            "shape": info.shape,
            "space": info.space,
            "operation": OPERATIONS[self.trace.kind[row]],
            "site": self.site(row),
            "block": self.block_position(self.trace.block[row]),
            "thread": self.thread_position(self.trace.thread[row]),
            "launch": self.launch,
        }

    def other(self, row):
        """Return the same for the second of two accesses."""
        at = self.at(row)
        return {f"other_{name}": at[name] for name in ("operation", "site", "block", "thread")}

    def grouped(self, rows):
        """Yield the rows of each array and site."""
        if len(rows):
            key = self.trace.array[rows] * len(self.trace.sites) + self.trace.site[rows]
            _, first, which = np.unique(key, return_index=True, return_inverse=True)
            for number in np.argsort(first):
                yield rows[which.ravel() == number]


def is_nan(value):
    """Return whether a value of a trace is NaN."""
    return isinstance(value, (float, np.floating)) and value != value
