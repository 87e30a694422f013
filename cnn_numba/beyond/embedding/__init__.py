"""From characters to vectors: windows of a text, and embeddings; the same functions in every backend."""
