"""Stage 3, translation: PTX becomes LLVM IR that runs a warp, with IR that runs the warps of a block.

`module` assembles a kernel. `translator` writes a function block by block, and calls the function that is
registered for each instruction. `runtime` and `fibres` run blocks and warps.
"""
