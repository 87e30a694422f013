"""Conway's game of life on a torus: what becomes of five cells in a few hundred steps.

    python life.py --steps 600 --height 64 --width 128

Each block steps a tile of the world. It reads the tile once, with a rim of one cell around it, into shared
memory, where each thread finds its eight neighbours.
"""

import argparse

import numpy as np
from numba import cuda, uint8

TILE = 16
SIDE = TILE + 2  # with the rim
R_PENTOMINO = [(0, 1), (0, 2), (1, 0), (1, 1), (2, 1)]


@cuda.jit
def step_kernel(world, out):
    """Take one step: a cell lives with three neighbours, or with two if it was alive."""
    tile = cuda.shared.array((SIDE, SIDE), uint8)
    height, width = world.shape
    top, left = cuda.blockIdx.y * TILE - 1, cuda.blockIdx.x * TILE - 1
    thread = cuda.threadIdx.y * TILE + cuda.threadIdx.x
    for k in range(thread, SIDE * SIDE, TILE * TILE):
        i, j = k // SIDE, k % SIDE
        tile[i, j] = world[(top + i) % height, (left + j) % width]
    cuda.syncthreads()

    column, row = cuda.grid(2)
    if row < height and column < width:
        i, j = cuda.threadIdx.y + 1, cuda.threadIdx.x + 1
        neighbours = 0
        for di in range(-1, 2):
            for dj in range(-1, 2):
                neighbours += tile[i + di, j + dj]
        neighbours -= tile[i, j]
        out[row, column] = neighbours == 3 or (neighbours == 2 and tile[i, j] == 1)


@cuda.jit
def count_kernel(world, counts, step):
    """Add the cells that live to a step's count: first by warps, then one atomic addition for each."""
    column, row = cuda.grid(2)
    alive = row < world.shape[0] and column < world.shape[1] and world[row, column] == 1
    living = cuda.popc(cuda.ballot_sync(0xFFFFFFFF, alive))
    if (cuda.threadIdx.y * TILE + cuda.threadIdx.x) % 32 == 0:
        cuda.atomic.add(counts, step, living)


def evolve(world, steps):
    """Return the world after `steps` steps, and how many cells lived after each.

    Parameters
    ----------
    world : (height, width) array of uint8
    steps : int

    Returns
    -------
    (height, width) array of uint8
    (steps,) array of int32
    """
    height, width = world.shape
    grid, block = (-(-width // TILE), -(-height // TILE)), (TILE, TILE)
    now, later = cuda.to_device(world), cuda.device_array_like(world)
    counts = cuda.to_device(np.zeros(steps, np.int32))
    for step in range(steps):
        step_kernel[grid, block](now, later)
        now, later = later, now
        count_kernel[grid, block](now, counts, step)
    return now.copy_to_host(), counts.copy_to_host()


def picture(world):
    """Return a text with two cells, one above the other, in a character."""
    padded = np.pad(world, ((0, len(world) % 2), (0, 0)))
    characters = np.array(list(" ▀▄█"))[padded[::2] + 2 * padded[1::2]]
    return "\n".join("".join(row).rstrip() for row in characters)


def main():
    """Let an R-pentomino grow, and draw what has become of it."""
    parser = argparse.ArgumentParser(description="Conway's game of life on a torus.")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--height", type=int, default=60)
    parser.add_argument("--width", type=int, default=100)
    options = parser.parse_args()

    world = np.zeros((options.height, options.width), np.uint8)
    for i, j in R_PENTOMINO:
        world[options.height // 2 + i, options.width // 2 + j] = 1
    world, counts = evolve(world, options.steps)
    print(picture(world))
    print(f"{len(R_PENTOMINO)} cells have become {counts[-1]} in {options.steps} steps; ", end="")
    print(f"at most {counts.max()} lived, after step {counts.argmax() + 1}.")


if __name__ == "__main__":
    main()
