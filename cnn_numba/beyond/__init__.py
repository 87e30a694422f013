"""What a CNN for MNIST does not need: workers, reduced precision. The core imports nothing of it."""
