"""The chapter "Debugging GPU code"."""
