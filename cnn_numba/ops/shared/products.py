"""What the matrix products share: how a tile gets into shared memory, and from there into registers."""

from numba import cuda, uint32


def register_tile(block_rows, block_columns, thread_rows, thread_columns, row_pitch, column_pitch, steps):
    """Make a device function that adds `steps` products to each of a thread's sums.

    Every number that comes from shared memory is used thread_columns (or thread_rows) times, so that
    multiplying takes longer than loading. A thread's rows and columns come in fours: 128 bits in one load.
    The fours of neighbouring threads lie side by side, which keeps the loads of a warp in different banks.

    Parameters
    ----------
    block_rows, block_columns : int
        Size of the block's tile.
    thread_rows, thread_columns : int
        Size of the thread's part of it; multiples of 4.
    row_pitch, column_pitch : int
        Distance from one step to the next in the two tiles; multiples of 4.
    steps : int
        A power of 2. So many are written out one after the other: loops cost instructions, and the compiler
        does not unroll one this long.

    Returns
    -------
    device function
        ``(row_tile, row_at, column_tile, column_at, rows, columns, sums)``: the tiles and where the thread's
        part of the first step begins in them; three local arrays, of which the last is added to.
    """
    if steps > 1:
        half = register_tile(
            block_rows, block_columns, thread_rows, thread_columns, row_pitch, column_pitch, steps // 2
        )
        row_jump, column_jump = steps // 2 * row_pitch, steps // 2 * column_pitch

        @cuda.jit(device=True)
        def multiply(row_tile, row_at, column_tile, column_at, rows, columns, sums):
            half(row_tile, row_at, column_tile, column_at, rows, columns, sums)
            row_at, column_at = row_at + uint32(row_jump), column_at + uint32(column_jump)
            half(row_tile, row_at, column_tile, column_at, rows, columns, sums)

        return multiply

    row_fours, column_fours = 4 * block_rows // thread_rows, 4 * block_columns // thread_columns

    @cuda.jit(device=True)
    def multiply_once(row_tile, row_at, column_tile, column_at, rows, columns, sums):
        for i in range(thread_rows):
            rows[i] = row_tile[row_at + uint32(i // 4 * row_fours + i % 4)]
        for j in range(thread_columns):
            columns[j] = column_tile[column_at + uint32(j // 4 * column_fours + j % 4)]
        for i in range(thread_rows):
            for j in range(thread_columns):
                sums[i * thread_columns + j] += rows[i] * columns[j]

    return multiply_once


def transposed_load(depth_step, threads):
    """Make a device function that tells a thread which step and which row of a tile to load.

    Neighbouring lanes load neighbouring steps, which lie side by side in global memory, and store them a
    pitch apart in shared memory. With a pitch of 4 more than a multiple of 32, 8 steps of 4 rows lie in 32
    different banks: so a warp takes 8 steps, or more if there are too few warps for that.

    Parameters
    ----------
    depth_step : int
        How many steps a tile has.
    threads : int
        How many threads load it, ``threads // depth_step`` rows at a time.

    Returns
    -------
    device function
        From the thread to its step and its first row.
    """
    lanes = max(8, 32 * depth_step // threads)
    groups, warp_rows = depth_step // lanes, 32 // lanes

    @cuda.jit(device=True)
    def place(thread):
        warp, lane = thread // uint32(32), thread % uint32(32)
        step = lane % uint32(lanes) + warp % uint32(groups) * uint32(lanes)
        row = lane // uint32(lanes) + warp // uint32(groups) * uint32(warp_rows)
        return uint32(step), uint32(row)

    return place
