"""The programs in examples/, which do not use gpuless, against NumPy."""

import importlib.util
import math
import sys
from pathlib import Path

import gpuless

# isort: split
import numpy as np
import pytest
from numba import cuda
from test_running import PYTEST, call_warm, emulated

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    """Import an example."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(module, capsys, monkeypatch, *arguments):
    """Return what a program prints."""
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    module.main()
    return capsys.readouterr().out


def test_examples_do_not_import_gpuless():
    # These are ordinary programs; the others show how to test a kernel.
    programs = [program for program in sorted(EXAMPLES.glob("*.py")) if not program.stem.startswith("test_")]
    assert [program.stem for program in programs] == ["life", "monte_carlo", "nbody"]
    for program in programs:
        assert "gpuless" not in program.read_text(encoding="utf-8")


def compile_beforehand(module):
    """Cache the machine code of kernels on disk, so that their tests' process starts no compiler."""
    x = cuda.to_device(np.zeros((32, 32), np.float32))
    for kernel, gpus in (
        (module.transpose_naive, ["T4"]),
        (module.transpose_tiled, ["T4", "A100", "RTX 4090"]),
    ):
        gpuless.profile(kernel[(1, 1), module.BLOCK], gpus)(x, x)


@emulated
def test_the_tests_to_copy():
    pytest.importorskip("scipy", reason="solves linear programs")
    tests = [str(path) for path in sorted(EXAMPLES.glob("test_*.py"))]
    compile_beforehand(load("test_transpose_time"))
    status, output, _ = call_warm(*PYTEST, "-p", "without_torch", "-q", *tests)
    assert status == 0, output


# --- Life --------------------------------------------------------------------------------------------------


def numpy_life(world, steps):
    """Return the world after a number of steps, and how many cells lived after each."""
    counts = []
    for _ in range(steps):
        shifted = [np.roll(world, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j]
        neighbours = sum(shifted)
        world = (neighbours == 3) | ((neighbours == 2) & world)
        counts.append(world.sum())
    return world, counts


@emulated
def test_life(capsys, monkeypatch):
    options = ["--steps", "70", "--height", "37", "--width", "50"]
    output = printed(load("life"), capsys, monkeypatch, *options)
    *picture, summary = output.splitlines()
    world = np.zeros((37, 50), bool)
    world[[18, 18, 19, 19, 20], [26, 27, 25, 26, 26]] = True  # the R-pentomino
    world, counts = numpy_life(world, 70)
    drawn = np.zeros((38, 50), bool)
    for row, line in enumerate(picture):
        for column, character in enumerate(line):
            drawn[2 * row : 2 * row + 2, column] = [character in "▀█", character in "▄█"]
    np.testing.assert_array_equal(drawn[:37], world)
    assert f"become {counts[-1]} in 70 steps; at most {max(counts)} lived" in summary


# --- Monte Carlo -------------------------------------------------------------------------------------------


class Generator:
    """Blackman and Vigna's xoroshiro128+ with the constants 55, 14 and 36, for many states at once."""

    def __init__(self, states):
        self.low, self.high = states["s0"].copy(), states["s1"].copy()

    def uniform(self):
        value = (self.low + self.high >> np.uint64(11)) * 2.0**-53
        mixed = self.high ^ self.low
        self.low = self._rotate(self.low, 55) ^ mixed ^ (mixed << np.uint64(14))
        self.high = self._rotate(mixed, 36)
        return value

    def _rotate(self, value, bits):
        return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))

    def normal(self):
        """Return Box and Muller's first number; numba-cuda makes it of uniform ones of single precision."""
        first, second = (self.uniform().astype(np.float32).astype(np.float64) for _ in range(2))
        return np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)


@pytest.fixture(scope="module")
def monte_carlo():
    return load("monte_carlo")


def states_of(monte_carlo):
    return monte_carlo.create_xoroshiro128p_states(monte_carlo.BLOCKS * monte_carlo.THREADS, seed=7)


def test_monte_carlo_of_pi(monte_carlo):
    states = states_of(monte_carlo)
    generator = Generator(states.copy_to_host())
    pi, error = monte_carlo.estimate_pi(states, 5)
    inside = np.stack([generator.uniform() ** 2 + generator.uniform() ** 2 < 1 for _ in range(5)])
    assert pi == 4 * inside.mean()
    assert error == pytest.approx(4 * inside.std() / math.sqrt(inside.size))


def test_monte_carlo_of_options(monte_carlo):
    states = states_of(monte_carlo)
    generator = Generator(states.copy_to_host())
    found = monte_carlo.price_options(states, 3)
    pays = [], []
    for _ in range(3):
        steps = np.stack([generator.normal() for _ in range(12)])
        prices = 100 * np.exp(np.cumsum((0.03 - 0.02) / 12 + 0.2 / math.sqrt(12) * steps, axis=0))
        for pay, price in zip(pays, (prices[-1], prices.mean(axis=0)), strict=True):
            pay.append(math.exp(-0.03) * np.maximum(price - 105, 0))
    for (price, error), pay in zip(found, pays, strict=True):
        assert price == pytest.approx(np.mean(pay), rel=1e-5)
        assert error == pytest.approx(np.std(pay) / math.sqrt(np.size(pay)), rel=1e-5)


def test_monte_carlo_knows_its_error(monte_carlo, capsys, monkeypatch):
    output = printed(monte_carlo, capsys, monkeypatch, "--paths", "20000")
    pi, european, asian = output.splitlines()
    assert abs(float(pi.split()[1]) - math.pi) < 4 * float(pi.split()[3].rstrip(","))
    # Black and Scholes: 100 N(-0.0064) - 105 exp(-0.03) N(-0.2064) by hand.
    assert european.endswith("standard errors off 7.1281")
    assert abs(float(european.split()[2]) - 7.1281) < 4 * float(european.split()[4].rstrip(","))
    assert float(asian.split()[2]) < float(european.split()[2])


# --- Bodies ------------------------------------------------------------------------------------------------


def numpy_leapfrog(bodies, velocities, steps, time):
    x, mass, v = bodies[:, :3].astype(float), bodies[:, 3].astype(float), velocities.astype(float)

    def acceleration():
        apart = x - x[:, np.newaxis]
        return np.einsum("j,ijk->ik", mass, apart / ((apart**2).sum(-1, keepdims=True) + 0.05**2) ** 1.5)

    for _ in range(steps):
        v = v + time / 2 * acceleration()
        x = x + time * v
        v = v + time / 2 * acceleration()
    return x, v


def test_bodies(capsys, monkeypatch):
    nbody = load("nbody")
    start = nbody.two_clusters(300, seed=3)  # the last block is not full
    bodies, velocities = nbody.simulate(*start, 5, 0.02)
    x, v = numpy_leapfrog(*start, 5, 0.02)
    np.testing.assert_allclose(bodies[:, :3], x, rtol=0, atol=2e-6)
    np.testing.assert_allclose(velocities, v, rtol=0, atol=1e-5)
    output = printed(nbody, capsys, monkeypatch, "--bodies", "200", "--steps", "20")
    assert output.count("--- 200 bodies at time") == 2
    before, after = (float(word) for word in output.splitlines()[-1].split() if word.startswith("-0."))
    assert after == pytest.approx(before, rel=0.01)
