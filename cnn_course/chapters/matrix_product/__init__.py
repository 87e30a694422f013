"""The chapter "The matrix product"."""
