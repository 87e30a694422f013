"""`numba.cuda.random` where kernels run in the simulator: xoroshiro128+, seeded by SplitMix64.

The generators are those of Blackman and Vigna (https://prng.di.unimi.it), with the same numbers as Numba's.
A state is a record of two integers; each generator begins 2**64 steps after the one before.
"""

import math

import numpy as np

from gpuless.simulator.devicearrays import device_array
from gpuless.simulator.jit import jit
from gpuless.simulator.types import float32, float64, from_dtype, uint32, uint64

xoroshiro128p_dtype = np.dtype([("s0", np.uint64), ("s1", np.uint64)], align=True)
xoroshiro128p_type = from_dtype(xoroshiro128p_dtype)
_MASK = 2**64 - 1
_JUMP = 0xD86B048B86AA9922BEAC0467EBA5FACB


def _rotated(x, k):
    return (x << k | x >> 64 - k) & _MASK


def _seeded(seed):
    """Return the state for a seed: SplitMix64's first number, twice."""
    z = int(seed) + 0x9E3779B97F4A7C15 & _MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    z ^= z >> 31
    return z, z


def _stepped(s0, s1):
    s1 ^= s0
    return _rotated(s0, 55) ^ s1 ^ (s1 << 14 & _MASK), _rotated(s1, 36)


def _jumped(s0, s1):
    """Return the state after 2**64 steps."""
    sum0 = sum1 = 0
    for bit in range(128):
        if _JUMP >> bit & 1:
            sum0, sum1 = sum0 ^ s0, sum1 ^ s1
        s0, s1 = _stepped(s0, s1)
    return sum0, sum1


def init_xoroshiro128p_states(states, seed, subsequence_start=0, stream=0):
    """Set generators on the device to a seed's subsequences, from `subsequence_start` on."""
    state, found = _seeded(seed), np.empty(states.shape, xoroshiro128p_dtype)
    for _ in range(subsequence_start):
        state = _jumped(*state)
    for i in range(len(found)):
        found[i] = state
        state = _jumped(*state)
    states.copy_to_device(found, stream)


def create_xoroshiro128p_states(n, seed, subsequence_start=0, stream=0):
    """Return generators on the device: `n` subsequences of a seed, from `subsequence_start` on."""
    states = device_array(n, xoroshiro128p_dtype, stream=stream)
    init_xoroshiro128p_states(states, seed, subsequence_start, stream)
    return states


# In kernels


@jit(device=True)
def rotl(x, k):
    """Return 64 bits rotated to the left."""
    return (uint64(x) << uint32(k)) | (uint64(x) >> uint32(64 - k))


@jit(device=True)
def xoroshiro128p_next(states, index):
    """Return the next 64 bits of a generator."""
    s0, s1 = states[index]["s0"], states[index]["s1"]
    result = s0 + s1
    s1 ^= s0
    states[index]["s0"] = rotl(s0, 55) ^ s1 ^ (s1 << uint32(14))
    states[index]["s1"] = rotl(s1, 36)
    return result


@jit(device=True)
def xoroshiro128p_uniform_float64(states, index):
    """Return a number from 0 to below 1."""
    return float64(xoroshiro128p_next(states, index) >> uint32(11)) * float64(2.0**-53)


@jit(device=True)
def xoroshiro128p_uniform_float32(states, index):
    """Return a number from 0 to 1."""
    return float32(xoroshiro128p_uniform_float64(states, index))


@jit(device=True)
def xoroshiro128p_normal_float32(states, index):
    """Return a number of mean 0 and standard deviation 1, by Box and Muller; it takes two steps."""
    u1 = xoroshiro128p_uniform_float32(states, index)
    u2 = xoroshiro128p_uniform_float32(states, index)
    return math.sqrt(float32(-2.0) * math.log(u1)) * math.cos(float32(2 * math.pi) * u2)


@jit(device=True)
def xoroshiro128p_normal_float64(states, index):
    """Return a number of mean 0 and standard deviation 1, by Box and Muller; it takes two steps."""
    u1 = xoroshiro128p_uniform_float32(states, index)  # as Numba's does
    u2 = xoroshiro128p_uniform_float32(states, index)
    return math.sqrt(float64(-2.0) * math.log(u1)) * math.cos(float64(2 * math.pi) * u2)
