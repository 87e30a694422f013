"""Parameter updates: the same functions in every backend."""
