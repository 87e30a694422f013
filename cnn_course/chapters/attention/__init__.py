"""The chapter "Attention"."""
