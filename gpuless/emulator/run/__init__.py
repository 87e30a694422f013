"""Compile LLVM IR to machine code, and run the blocks of a grid with it in threads.

`launch` gets the machine code from `machine`, which reads it from disk (`cache`) or translates and compiles.
Each worker thread has a `record` with memory for one block. `faults` catches the processor's signals, `trace`
runs a failed block again, and `explanations` words the error.
"""
