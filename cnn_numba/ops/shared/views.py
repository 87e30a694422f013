"""Views of arrays on the host or the device."""


def merge_axes(x):
    """View (A, B, ...) as (A * B, ...)."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def flat_planes(x):
    """View images (N, C, H, W) as (N, C, H * W)."""
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])
