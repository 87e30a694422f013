"""More arrays than the operating system can map."""

from emulated import check, cu, cuda

from gpuless.emulator.run import memory


@cuda.jit
def fill(x):
    x[cuda.grid(1)] = cuda.grid(1)


held = [check(cu.cuMemAlloc(1)) for _ in range(36_000)]
x = cuda.device_array(64)
fill[2, 32](x)
assert x.copy_to_host().tolist() == list(range(64))
for one in held:
    check(cu.cuMemFree(one))
# With few arrays the inaccessible gaps between them are back.
one, other = sorted(int(check(cu.cuMemAlloc(memory.PAGE))) for _ in range(2))
assert other - one >= 2 * memory.PAGE
try:
    fill[1024, 1024](x)
except Exception as error:
    print(str(error).partition(":")[0])
# If it gives no more at all, nothing is left half done.
used, memory._libc.mprotect = check(cu.cuMemGetInfo()), lambda *given: -1
print(cu.cuMemAlloc(1)[0].name, check(cu.cuMemGetInfo()) == used)
