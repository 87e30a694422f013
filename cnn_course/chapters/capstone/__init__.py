"""The chapter "Capstone"."""
