"""The chapter "A ConvNet for colour images"."""
