"""What a kernel's source says about an instruction: its line, what is around it, its numbers' origin."""
