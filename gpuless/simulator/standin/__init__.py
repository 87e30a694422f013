"""Files that Python loads under the names of Numba and its compilers; see `gpuless.simulator.install`."""
