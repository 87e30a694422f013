"""The record of the block that a worker runs, and its memory: shared, local, and the stacks of its warps."""

import ctypes

from gpuless.emulator.run import faults, host
from gpuless.emulator.run.memory import PAGE, OutOfMemory
from gpuless.emulator.translate import layout


class Record:
    """What a worker hands to the warps of the block that it runs.

    `keeps_stacks`: whether the stacks stay when nobody uses them. Each takes two memory mappings, of which a
    process has 65,530 by default (vm.max_map_count): hundreds of workers cannot keep 32 stacks each.
    """

    def __init__(self, arena, keeps_stacks):
        self.arena, self.buffer = arena, ctypes.create_string_buffer(layout.BLOCK_SIZE)
        self.keeps_stacks = keeps_stacks
        put(self.buffer, layout.OFFSET["host"], host.address(), True)
        self.local, self.launch, self.address = 0, None, ctypes.addressof(self.buffer)
        self.shared, self.room, self.warps = arena.reserve(), 0, 0
        self.stacks, at = self.shared + layout.STACKS_AT, self.shared + layout.LOCAL_AT
        fields = {"arena": arena.base, "shared": self.shared, "stack.area": self.stacks, "local": at}
        for name, value in fields.items():
            put(self.buffer, layout.OFFSET[name], value, True)
        try:
            faults.watch(self.buffer)
        except BaseException:
            arena.release(self.shared)
            raise

    def have_shared(self, size):
        """Have `size` bytes of shared memory, and what is left of the last page; none after that."""
        room = -(-size // PAGE) * PAGE
        if room > self.room:
            self.arena.provide(self.shared + self.room, room - self.room)
        elif room < self.room:
            self.arena.withdraw(self.shared + room, self.room - room)
        self.room = room
        put(self.buffer, layout.OFFSET["shared.room"], room, True)

    def have_stacks(self, warps):
        """Have a stack for each warp, above a page without memory, so that an overflow is noticed."""
        while self.warps < warps:
            self.arena.provide(self.stacks + self.warps * layout.STACK + PAGE, layout.STACK - PAGE)
            self.warps += 1

    def give_stacks_back(self):
        """Have no stacks, unless the operating system refuses even that."""
        if self.arena.empty(self.stacks, self.warps * layout.STACK):
            self.warps = 0

    def reserve_local(self, size):
        """Have `size` bytes of local memory."""
        if size > layout.LOCAL_SPAN:
            raise OutOfMemory(f"a block may have {layout.LOCAL_SPAN} bytes of local memory, not {size}")
        if size > self.local:
            at = ctypes.c_uint64.from_buffer(self.buffer, layout.OFFSET["local"]).value
            self.arena.provide(at, size)
            self.local = size


def put(buffer, offset, value, wide):
    """Write a number of 64 bits or of 32 into a buffer."""
    kind = ctypes.c_uint64 if wide else ctypes.c_uint32
    kind.from_buffer(buffer, offset).value = value
