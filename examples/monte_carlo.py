"""Pi, and the price of two options, by random numbers drawn on the GPU.

    python monte_carlo.py --paths 1000000

A mean of n random numbers knows its own error: the standard deviation of one of them, divided by the root of
n. The price of a European option is known in closed form (Black and Scholes 1973), so that one can look
whether this error is right. An Asian option pays by the mean price of the year, and has no such formula.
"""

import argparse
import math

import numpy as np
from numba import cuda
from numba.cuda.random import (
    create_xoroshiro128p_states,
    xoroshiro128p_normal_float64,
    xoroshiro128p_uniform_float64,
)

BLOCKS, THREADS = 32, 128
SPOT, STRIKE, RATE, VOLATILITY, YEARS = 100.0, 105.0, 0.03, 0.2, 1.0
DATES = 12  # at which the price is looked at


@cuda.jit
def pi_kernel(states, points, hits):
    """Draw `points` points per thread, and count those that fall into the quarter of a circle."""
    thread = cuda.grid(1)
    inside = 0
    for _ in range(points):
        x = xoroshiro128p_uniform_float64(states, thread)
        y = xoroshiro128p_uniform_float64(states, thread)
        inside += x * x + y * y < 1
    hits[thread] = inside


@cuda.jit
def option_kernel(states, paths, sums):
    """Sum per thread what a European and an Asian option pay on `paths` paths, and the squares of that."""
    thread = cuda.grid(1)
    step = YEARS / DATES
    drift, spread = (RATE - VOLATILITY**2 / 2) * step, VOLATILITY * math.sqrt(step)
    sums[thread, :] = 0
    for _ in range(paths):
        price, mean = SPOT, 0.0
        for _ in range(DATES):
            price *= math.exp(drift + spread * xoroshiro128p_normal_float64(states, thread))
            mean += price / DATES
        european, asian = max(price - STRIKE, 0.0), max(mean - STRIKE, 0.0)
        sums[thread, 0] += european
        sums[thread, 1] += european * european
        sums[thread, 2] += asian
        sums[thread, 3] += asian * asian


def estimate_pi(states, points):
    """Return pi and its standard error, from `points` points per thread."""
    hits = cuda.device_array(BLOCKS * THREADS, np.int64)
    pi_kernel[BLOCKS, THREADS](states, points, hits)
    count = BLOCKS * THREADS * points
    share = hits.copy_to_host().sum() / count
    return 4 * share, 4 * math.sqrt(share * (1 - share) / count)


def price_options(states, paths):
    """Return (price, standard error) of both options, from `paths` paths per thread."""
    sums = cuda.device_array((BLOCKS * THREADS, 4))
    option_kernel[BLOCKS, THREADS](states, paths, sums)
    count = BLOCKS * THREADS * paths
    means = sums.copy_to_host().sum(axis=0) / count
    discount = math.exp(-RATE * YEARS)
    errors = np.sqrt((means[1::2] - means[::2] ** 2) / count)
    return [(discount * mean, discount * error) for mean, error in zip(means[::2], errors, strict=True)]


def black_scholes():
    """Return the price of the European option."""
    spread = VOLATILITY * math.sqrt(YEARS)
    d = (math.log(SPOT / STRIKE) + (RATE + VOLATILITY**2 / 2) * YEARS) / spread
    below = [math.erfc(-x / math.sqrt(2)) / 2 for x in (d, d - spread)]
    return SPOT * below[0] - STRIKE * math.exp(-RATE * YEARS) * below[1]


def main():
    """Print the estimates, and how far from the truth they are."""
    parser = argparse.ArgumentParser(description="Pi and the price of options by random numbers.")
    parser.add_argument("--paths", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()

    states = create_xoroshiro128p_states(BLOCKS * THREADS, seed=options.seed)
    each = -(-options.paths // (BLOCKS * THREADS))
    pi, error = estimate_pi(states, 10 * each)
    print(f"pi               {pi:.5f} +- {error:.5f}, {(pi - math.pi) / error:+.1f} standard errors off")
    (price, error), (asian, asian_error) = price_options(states, each)
    off = (price - black_scholes()) / error
    print(
        f"European option  {price:.4f} +- {error:.4f}, {off:+.1f} standard errors off {black_scholes():.4f}"
    )
    print(f"Asian option     {asian:.4f} +- {asian_error:.4f}")


if __name__ == "__main__":
    main()
