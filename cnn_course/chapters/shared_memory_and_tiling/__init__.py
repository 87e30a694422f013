"""The chapter "Shared memory and tiling"."""
