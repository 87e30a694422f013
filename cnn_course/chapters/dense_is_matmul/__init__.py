"""The chapter "Dense is matmul"."""
