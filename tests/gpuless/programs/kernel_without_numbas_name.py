"""A kernel that does not name Numba, with each of gpuless's functions."""

from gpuless import access_map, cuda, record, sanitize, simulate


@cuda.jit("void(float32[:])")
def k(x):
    x[cuda.grid(1)] += cuda.float32(0.5) + cuda.types.uint8(300)


x = cuda.device_array(4, "float32")
print(*(finding.kind for finding in sanitize(k)[1, 5](x).findings))
x[0:4] = 0
simulate(k, "reversed")[1, 4](x)
print(x.copy_to_host().tolist())
print(access_map(k)[1, 4](x).total("x", "read").sectors, len(record(k)[1, 4](x)) > 0)
