"""The record of the block that a worker runs, and the block's memory: shared, local, stacks of warps."""

import ctypes

from gpuless.emulator.run import faults, host
from gpuless.emulator.run.memory import PAGE, OutOfMemory
from gpuless.emulator.translate import layout


class Record:
    """The data that a worker passes to the warps of its block.

    `keeps_stacks`: whether stacks stay while they are idle. Each takes two memory mappings, and a process has
    65,530 by default (vm.max_map_count), so hundreds of workers cannot keep 32 stacks each.
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
        """Provide `size` bytes of shared memory, rounded up to whole pages."""
        room = -(-size // PAGE) * PAGE
        if room > self.room:
            self.arena.provide(self.shared + self.room, room - self.room)
        elif room < self.room:
            self.arena.withdraw(self.shared + room, self.room - room)
        self.room = room
        put(self.buffer, layout.OFFSET["shared.room"], room, True)

    def have_stacks(self, warps):
        """Provide a stack for each warp, above a guard page that detects an overflow."""
        while self.warps < warps:
            self.arena.provide(self.stacks + self.warps * layout.STACK + PAGE, layout.STACK - PAGE)
            self.warps += 1

    def give_stacks_back(self):
        """Free the stacks, if the operating system allows it."""
        if self.arena.empty(self.stacks, self.warps * layout.STACK):
            self.warps = 0

    def reserve_local(self, size):
        """Provide at least `size` bytes of local memory."""
        if size > layout.LOCAL_SPAN:
            raise OutOfMemory(f"a block may have {layout.LOCAL_SPAN} bytes of local memory, not {size}")
        if size > self.local:
            at = ctypes.c_uint64.from_buffer(self.buffer, layout.OFFSET["local"]).value
            self.arena.provide(at, size)
            self.local = size


def put(buffer, offset, value, wide):
    """Write a number into a buffer, in 64 bits if `wide`, else in 32."""
    kind = ctypes.c_uint64 if wide else ctypes.c_uint32
    kind.from_buffer(buffer, offset).value = value
