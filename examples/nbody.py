"""Two clusters of stars fall into each other: every body attracts every other one.

    python nbody.py --bodies 2048 --steps 200

Each thread follows one body. A block reads the others tile by tile into shared memory, as GPU Gems 3, chapter
31, describes, so that a position is fetched once for a whole block. The steps are a leapfrog's, which keeps
the energy.
"""

import argparse

import numpy as np
from numba import cuda, float32

TILE = 128
SOFTENING = float32(0.05)  # keeps near encounters finite


@cuda.jit(device=True)
def attraction(x, y, z, bodies):
    """Return the acceleration that all bodies give to a point; all threads of the block have to come."""
    tile = cuda.shared.array((TILE, 4), float32)
    ax = ay = az = float32(0)
    for start in range(0, len(bodies), TILE):
        cuda.syncthreads()  # the tile before has been used by all
        if start + cuda.threadIdx.x < len(bodies):
            for k in range(4):
                tile[cuda.threadIdx.x, k] = bodies[start + cuda.threadIdx.x, k]
        cuda.syncthreads()
        for j in range(min(TILE, len(bodies) - start)):
            dx, dy, dz = tile[j, 0] - x, tile[j, 1] - y, tile[j, 2] - z
            distance2 = dx * dx + dy * dy + dz * dz + SOFTENING * SOFTENING
            pull = tile[j, 3] / (distance2 * distance2 ** float32(0.5))
            ax, ay, az = ax + pull * dx, ay + pull * dy, az + pull * dz
    return ax, ay, az


@cuda.jit
def kick_kernel(bodies, velocities, time):
    """Let the forces act for a while."""
    i = cuda.grid(1)
    k = min(i, len(bodies) - 1)  # threads beyond the last body load tiles all the same
    ax, ay, az = attraction(bodies[k, 0], bodies[k, 1], bodies[k, 2], bodies)
    if i < len(bodies):
        velocities[i, 0] += time * ax
        velocities[i, 1] += time * ay
        velocities[i, 2] += time * az


@cuda.jit
def drift_kernel(bodies, velocities, time):
    """Let the bodies fly for a while."""
    i, k = cuda.grid(2)
    if i < len(bodies) and k < 3:
        bodies[i, k] += time * velocities[i, k]


def simulate(bodies, velocities, steps, time):
    """Return bodies and velocities after `steps` steps of a leapfrog.

    Parameters
    ----------
    bodies : (n, 4) array of float32
        Position and mass.
    velocities : (n, 3) array of float32
    steps : int
    time : float
        Of a step.
    """
    bodies, velocities = cuda.to_device(bodies), cuda.to_device(velocities)
    half, whole = float32(time / 2), float32(time)
    one_each, three_each = -(-len(bodies) // TILE), -(-len(bodies) // 32)
    kick_kernel[one_each, TILE](bodies, velocities, half)
    for step in range(steps):
        drift_kernel[(three_each, 1), (32, 3)](bodies, velocities, whole)
        kick_kernel[one_each, TILE](bodies, velocities, whole if step + 1 < steps else half)
    return bodies.copy_to_host(), velocities.copy_to_host()


def two_clusters(count, seed=0):
    """Return bodies and velocities of two clusters that pass each other closely."""
    rng = np.random.default_rng(seed)
    side = np.where(np.arange(count) % 2, 1, -1)[:, np.newaxis]
    positions = rng.normal(0, 0.5, (count, 3)) + side * [1.5, 0.4, 0]
    velocities = rng.normal(0, 0.3, (count, 3)) - side * [0.3, 0, 0]
    masses = np.full((count, 1), 1 / count)
    return np.hstack([positions, masses]).astype(np.float32), velocities.astype(np.float32)


def energy(bodies, velocities):
    """Return the kinetic energy, and that of every pair."""
    x, mass = bodies[:, :3].astype(float), bodies[:, 3].astype(float)
    kinetic = (mass * (velocities.astype(float) ** 2).sum(axis=1)).sum() / 2
    first, second = np.triu_indices(len(x), 1)
    distance = np.sqrt(((x[first] - x[second]) ** 2).sum(axis=1) + float(SOFTENING) ** 2)
    return kinetic - (mass[first] * mass[second] / distance).sum()


def picture(bodies, rows=20, columns=72, span=(5.4, 3.0)):
    """Return a text that is the darker the more bodies are seen from above."""
    (width, height), (x, y) = span, bodies[:, :2].T
    counts, _, _ = np.histogram2d(y, x, (rows, columns), [(-height / 2, height / 2), (-width / 2, width / 2)])
    shades = np.array(list(" .:-=+*#%@"))
    return "\n".join("".join(row).rstrip() for row in shades[np.minimum(counts, 9).astype(int)][::-1])


def main():
    """Draw the clusters before and after they have met, and tell how well the energy was kept."""
    parser = argparse.ArgumentParser(description="Two clusters of stars fall into each other.")
    parser.add_argument("--bodies", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--time", type=float, default=0.02, help="of a step")
    options = parser.parse_args()

    start = two_clusters(options.bodies)
    end = simulate(*start, options.steps, options.time)
    for bodies, time in ((start[0], 0), (end[0], options.steps * options.time)):
        print(f"--- {len(bodies)} bodies at time {time:g}\n{picture(bodies)}")
    before, after = energy(*start), energy(*end)
    print(f"--- energy {before:.5f} at first, {after:.5f} at last: {abs(after / before - 1):.2%} off")


if __name__ == "__main__":
    main()
