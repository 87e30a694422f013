"""From IR to machine code and a launch: compiled, kept on disk, run by threads, with memory and faults."""
