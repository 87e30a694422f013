"""The chapter "Many GPUs"."""
