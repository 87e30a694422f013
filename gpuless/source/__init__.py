"""What a kernel's source tells of an instruction: its line, what is around it, what its numbers come from."""
