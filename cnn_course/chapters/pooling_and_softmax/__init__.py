"""The chapter "Pooling and softmax"."""
