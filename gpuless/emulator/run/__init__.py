"""Stage 4, running: LLVM IR becomes machine code, and threads run the blocks of a grid.

`launch` looks for the machine code on disk (`cache`) or has it made (`machine`), and gives each worker thread
a `record` with memory for one block. The processor's signals become errors in `faults` and `explanations`.
"""
