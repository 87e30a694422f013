"""From PTX to LLVM IR that runs a warp, and what runs the warps of a block."""
