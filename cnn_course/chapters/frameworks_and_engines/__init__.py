"""The chapter "Frameworks and engines"."""
