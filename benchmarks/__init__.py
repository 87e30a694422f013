"""What the package is measured with: operations, epochs, start-up, the simulator; beside PyTorch."""
