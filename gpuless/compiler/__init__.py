"""NVIDIA's compiler in a process of its own: kernels are pickled and sent to it."""
