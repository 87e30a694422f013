"""The chapter "Repairing a program"."""
