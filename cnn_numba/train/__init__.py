"""Training: optimisers, steps, the loop around them, checkpoints."""
