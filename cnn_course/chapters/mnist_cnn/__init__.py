"""The chapter "The MNIST CNN"."""
