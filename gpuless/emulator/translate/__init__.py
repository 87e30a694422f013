"""Translate PTX to LLVM IR that runs a warp, with IR that runs the warps of a block; `run` compiles it.

`module` assembles a kernel. `translator` writes a function block by block, and calls the function that is
registered for each instruction. `runtime` and `fibres` have the loops over blocks and warps.
"""
