"""Turn rows of a trace into fields of a finding."""

import numpy as np

from gpuless.access.trace import ATOMIC, READ, WRITE
from gpuless.positions import Shape, coordinates
from gpuless.sanitizer.findings import Note

OPERATIONS = {READ: "read", WRITE: "write", ATOMIC: "update"}


class Fields:
    """Makes the fields of findings from what happened in a launch.

    `memory`, which made the trace, also has the events that are not accesses to arrays. `notes` is a list,
    extended by observations that are not mistakes.
    """

    def __init__(self, trace, memory, notes):
        self.trace, self.memory, self.notes = trace, memory, notes
        self.launch = Shape(trace.grid, trace.block_shape)

    def note(self, kind, text):
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(Note(text, kind))

    def thread_position(self, number):
        """Return the x, y, z of a thread in its block."""
        return coordinates(int(number), self.trace.block_shape)

    def block_position(self, number):
        """Return the x, y, z of a block in the grid."""
        return coordinates(int(number), self.trace.grid)

    def who(self, event):
        """Return the thread and the place of an event of `memory`, as fields of a finding."""
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
        """Return the instruction of a row's access."""
        return self.trace.sites[self.trace.site[row]]

    def instruction(self, site):
        """Return the code and offset of an instruction, given by its number."""
        return self.memory.site_codes[site], self.trace.sites[site].offset

    def array(self, row):
        """Return the array of a row's access."""
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
        """Return the fields of a finding for the second of two accesses."""
        at = self.at(row)
        return {f"other_{name}": at[name] for name in ("operation", "site", "block", "thread")}

    def grouped(self, rows):
        """Yield the rows of each pair of array and site, by first occurrence."""
        if len(rows):
            key = self.trace.array[rows] * len(self.trace.sites) + self.trace.site[rows]
            _, first, which = np.unique(key, return_index=True, return_inverse=True)
            for number in np.argsort(first):
                yield rows[which.ravel() == number]


def is_nan(value):
    """Return whether a value of a trace is NaN."""
    return isinstance(value, (float, np.floating)) and value != value
