"""The chapter "Backprop by hand"."""
