"""Dense (linear) layers: the same functions in every backend."""
