"""The chapter "Launches and graphs"."""
