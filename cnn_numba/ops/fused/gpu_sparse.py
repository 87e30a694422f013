"""The gradient of the images of a pooled 3x3 convolution on the GPU, from the one gradient of each window.

A product of matrices multiplies the three zeros of each window as well: seven times as many products as there
are, at the edges more. Here a window is one gradient and its code. The lanes of a warp are input channels, so
that all of them take the branch of the code, and each adds a multiple of its kernel to the window's 4x4
pixels, in registers, for one output channel after the other. Windows overlap in their pixels, so in the end
the block adds them up in shared memory, in four rounds of windows that do not.
"""

from typing import NamedTuple

from cnn_numba import device
from cnn_numba.device.compiler import cuda, float32, uint32, uint64
from cnn_numba.ops.fused.gpu_forward import DEAD
from cnn_numba.ops.shared.warps import WARP, load4

SIDE, TAPS = 3, 9  # of the kernel
PATCH = SIDE + 1  # pixels of a window, along each side
PIXELS = PATCH * PATCH


class Planes(NamedTuple):
    """How the gradient's windows lie on the images; rows and columns count from where the padding begins."""

    channels: int
    height: int
    width: int
    padding_h: int
    padding_w: int
    out_channels: int
    pooled_h: int
    pooled_w: int
    rows: int
    """How many rows of an image a block has in shared memory, and how many numbers each."""
    pitch: int
    bands: int
    """How many blocks an image takes."""
    band: int
    """How many rows of windows they are apart."""
    windows: int
    """How many windows a block has."""


STEP, TOGETHER = 8, 4  # output channels between barriers, windows of a warp
SUMS = TOGETHER * PIXELS
ROUNDS = 4  # in which windows are added up that have no pixel in common
_KERNELS = WARP * TAPS  # weights of an output channel
_WEIGHTS = STEP * _KERNELS
_MOST_WARPS = 16
_MOST_THREADS = WARP * _MOST_WARPS


@cuda.jit(device=True)
def _fetch_weights(weight, oc, first_channel, lane, planes, values):
    """Load the kernels of an output channel, a warp's share; what there is not is zeros."""
    channels = uint32(planes.channels)
    first = uint32((oc * channels + first_channel) * TAPS)
    count = uint32((channels - first_channel) * TAPS) if oc < uint32(planes.out_channels) else uint32(0)
    for i in range(TAPS):
        at = uint32(lane + WARP * i)
        values[i] = weight[uint32(first + at)] if at < count else float32(0)


@cuda.jit(device=True)
def _stash_weights(values, step, lane, weights):
    """Put them down as they were: 9 apart, the kernels of 32 channels begin in different banks."""
    at = step * uint32(_KERNELS) + lane
    for i in range(TAPS):
        weights[at + uint32(WARP * i)] = values[i]


@cuda.jit(device=True)
def _add_kernel(sums, at, down, right, gradient, kernel):
    """Add a multiple of the kernel to a window's pixels."""
    for kh in range(SIDE):
        for kw in range(SIDE):
            sums[at + PATCH * (kh + down) + kw + right] += gradient * kernel[SIDE * kh + kw]


@cuda.jit(device=True)
def _add_window(sums, at, code, gradient, kernel):
    """Do so at the position that the code names."""
    if code == float32(0):
        _add_kernel(sums, at, 0, 0, gradient, kernel)
    elif code == float32(1):
        _add_kernel(sums, at, 0, 1, gradient, kernel)
    elif code == float32(2):
        _add_kernel(sums, at, 1, 0, gradient, kernel)
    elif code == float32(3):
        _add_kernel(sums, at, 1, 1, gradient, kernel)


@cuda.jit(device=True)
def _add_up(sums, first_window, first_row, top, planes, image):
    """Add the pixels of all windows to the block's rows, in rounds of windows that have none in common."""
    rounds, lines = cuda.local.array(TOGETHER, uint32), cuda.local.array(TOGETHER, uint32)
    columns = cuda.local.array(TOGETHER, uint32)
    across, rows, pitch = uint32(planes.pooled_w), uint32(planes.rows), uint32(planes.pitch)
    first = uint32(cuda.threadIdx.x) % uint32(WARP) * uint32(rows * pitch + 1)
    for j in range(TOGETHER):
        window = uint32(first_window + j)
        row, column = uint32(first_row + window // across), window % across
        is_there = (window < uint32(planes.windows)) & (row < uint32(planes.pooled_h))
        rounds[j] = uint32(row % uint32(2) * uint32(2) + column % uint32(2)) if is_there else uint32(ROUNDS)
        lines[j], columns[j] = uint32(2 * row - top), uint32(first + 2 * column)
    for turn in range(uint32(ROUNDS)):
        for j in range(TOGETHER):
            if rounds[j] == turn:
                for h in range(PATCH):
                    line = uint32(lines[j] + h)
                    at = uint64(uint32(line * pitch + columns[j]))
                    if line < rows:
                        for w in range(PATCH):
                            image[at + uint64(w)] += sums[PIXELS * j + PATCH * h + w]
        cuda.syncthreads()


@cuda.jit
@device.signature("void(float32[::1], uint8[::1], float32[::1], float32[::1], Planes)")
def conv2d_pool_backward_input_sparse_kernel(grad_output, codes, weight, grad_input, planes: Planes):
    """Compute a band of rows for WARP channels a block, TOGETHER windows a warp; grid (bands, channels).

    All indices are 32 bits wide: no array of more than 2**31 elements.
    """
    # The weights of a step, and in the end the block's rows.
    shared = cuda.shared.array(0, float32)
    gradients = cuda.shared.array(_MOST_THREADS, float32, alignment=16)
    window_codes = cuda.shared.array(_MOST_THREADS, float32, alignment=16)  # float32, for `load4`
    sums = cuda.local.array(SUMS, float32)
    kernel = cuda.local.array(TAPS, float32)
    fetched = cuda.local.array(TAPS, float32)
    thread = uint32(cuda.threadIdx.x)
    warp, lane = thread // uint32(WARP), thread % uint32(WARP)
    n, band = cuda.blockIdx.x // uint32(planes.bands), uint32(cuda.blockIdx.x % uint32(planes.bands))
    first_channel = uint32(cuda.blockIdx.y * WARP)
    # The block's rows, and the first row of windows that reach into them: the one above, if there is one.
    top = uint32(2 * band * uint32(planes.band))
    first_row = uint32(max(top // uint32(2), uint32(1)) - 1)

    # Each thread fetches the gradient and the code of one of its warp's windows, for one channel of a step.
    step, window = lane // uint32(TOGETHER), uint32(warp * TOGETHER + lane % uint32(TOGETHER))
    row, column = first_row + window // uint32(planes.pooled_w), window % uint32(planes.pooled_w)
    out_channels, plane = uint32(planes.out_channels), uint32(planes.pooled_h * planes.pooled_w)
    is_there = (window < uint32(planes.windows)) & (row < uint32(planes.pooled_h))
    at = uint32((n * out_channels + step) * plane + row * planes.pooled_w + column)

    for i in range(SUMS):
        sums[i] = float32(0)
    first_out = uint32(0)
    while first_out < uint32(out_channels + STEP):
        # The next step's numbers are on their way while those of the current one are multiplied.
        gradient, code = float32(0), float32(DEAD)
        if is_there & (uint32(first_out + step) < out_channels):
            gradient, code = grad_output[at], float32(codes[at])
        at = uint32(at + STEP * plane)
        if warp < uint32(STEP):
            _fetch_weights(weight, uint32(first_out + warp), first_channel, lane, planes, fetched)
        if (first_out > uint32(0)) & (warp * uint32(TOGETHER) < uint32(planes.windows)):
            for k in range(uint32(STEP)):
                for tap in range(TAPS):
                    kernel[tap] = shared[k * uint32(_KERNELS) + lane * uint32(TAPS) + uint32(tap)]
                mine = warp * uint32(WARP) + k * uint32(TOGETHER)
                a, b, c, d = load4(gradients, mine)
                first, second, third, fourth = load4(window_codes, mine)
                _add_window(sums, 0, first, a, kernel)
                _add_window(sums, PIXELS, second, b, kernel)
                _add_window(sums, 2 * PIXELS, third, c, kernel)
                _add_window(sums, 3 * PIXELS, fourth, d, kernel)
        # To the same place, not before everyone has used what is there.
        cuda.syncthreads()
        if warp < uint32(STEP):
            _stash_weights(fetched, warp, lane, shared)
        gradients[thread], window_codes[thread] = gradient, code
        cuda.syncthreads()
        first_out = uint32(first_out + STEP)

    image = shared
    size = uint32(planes.rows * planes.pitch)
    i = uint32(cuda.threadIdx.x)
    while i < uint32(WARP) * (size + uint32(1)):
        image[i] = float32(0)
        i = uint32(i + cuda.blockDim.x)
    cuda.syncthreads()
    _add_up(sums, uint32(warp * TOGETHER), first_row, top, planes, image)
    _store(image, n, first_channel, top, planes, grad_input)


@cuda.jit(device=True)
def _store(image, n, first_channel, top, planes, grad_input):
    """Write the block's rows, but for the padding and what belongs to the next block."""
    height, width = uint32(planes.height), uint32(planes.width)
    size, channels = uint32(planes.rows * planes.pitch), uint32(planes.channels)
    thread, warps = uint32(cuda.threadIdx.x), uint32(cuda.blockDim.x) // uint32(WARP)
    count, i = min(uint32(WARP), uint32(channels - first_channel)), thread % uint32(WARP)
    while i < uint32(planes.rows) * width:
        line, w = i // width, uint32(i % width)
        h = uint32(top + line - planes.padding_h)
        if h < height:
            place = uint32(line * planes.pitch + w + planes.padding_w)
            c = thread // uint32(WARP)
            while c < count:
                at = uint32(((n * channels + first_channel + c) * height + h) * width + w)
                grad_input[at] = image[uint32(c * (size + 1) + place)]
                c = uint32(c + warps)
        i = uint32(i + WARP)


def planes_of(grad_output, window, grad_input):
    """Return how the kernel divides these images; None if it cannot compute their gradient, or not fast."""
    _, channels, height, width = grad_input.shape
    pooled_h, pooled_w = grad_output.shape[2:]
    rows = max(2 * pooled_h + 2, height + 2 * window.padding_h)
    pitch = max(2 * pooled_w + 2, width + 2 * window.padding_w)
    most_windows, most_rows = _MOST_WARPS * TOGETHER // pooled_w, _SHARED // (4 * WARP * pitch)
    # All of an image if a block has room for it; else a band less than its rows of windows.
    is_whole = pooled_h <= most_windows and rows <= most_rows
    band = device.blocks(rows, 2) if is_whole else min(most_windows - 1, most_rows // 2)
    suits = window[:4] == (SIDE, SIDE, 1, 1) and max(window[4:6]) < SIDE
    if not suits or band < 1 or channels < _FEWEST_CHANNELS:
        return None
    bands, windows = device.blocks(rows, 2 * band), min(band + 1, pooled_h) * pooled_w
    images = channels, height, width, *window[4:6]
    return Planes(*images, *grad_output.shape[1:], 2 * band, pitch, bands, band, windows)


#: What a block may take of shared memory for its rows, and how many channels make it worth a warp's lanes.
_SHARED, _FEWEST_CHANNELS = 32 << 10, 8


def conv2d_pool_backward_input_sparse(grad_output, codes, weight, grad_input, planes):
    """Write the gradient of the images of a pooled stage; all are checked, `planes` is from `planes_of`."""
    threads = WARP * max(STEP, device.blocks(planes.windows, TOGETHER))
    grid = len(grad_input) * planes.bands, device.blocks(planes.channels, WARP)
    flat = [array.reshape(-1) for array in (grad_output, codes, weight, grad_input)]
    shared = 4 * max(_WEIGHTS, WARP * (planes.rows * planes.pitch + 1))
    device.launch(conv2d_pool_backward_input_sparse_kernel, grid, threads, *flat, planes, shared=shared)
