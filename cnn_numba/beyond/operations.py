"""The modules of the operations beyond the core, by backend; imported when a model first needs one."""


def cpu():
    """Return the modules of the cpu backend, by operation."""
    from cnn_numba.beyond.attention import cpu as attention
    from cnn_numba.beyond.embedding import cpu as embedding
    from cnn_numba.beyond.norm import cpu as norm
    from cnn_numba.beyond.recurrent import cpu as recurrent

    return {"attention": attention, "embedding": embedding, "norm": norm, "recurrent": recurrent}


def gpu():
    """Return the modules of the gpu backend, by operation."""
    from cnn_numba.beyond.attention import gpu as attention
    from cnn_numba.beyond.embedding import gpu as embedding
    from cnn_numba.beyond.norm import gpu as norm
    from cnn_numba.beyond.recurrent import gpu as recurrent

    return {"attention": attention, "embedding": embedding, "norm": norm, "recurrent": recurrent}


def reference():
    """Return the modules of the reference backend, by operation."""
    from cnn_numba.beyond.attention import reference as attention
    from cnn_numba.beyond.embedding import reference as embedding
    from cnn_numba.beyond.norm import reference as norm
    from cnn_numba.beyond.recurrent import reference as recurrent

    return {"attention": attention, "embedding": embedding, "norm": norm, "recurrent": recurrent}
