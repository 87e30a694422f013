"""Memory is limited, and what was freed is used again."""

from emulated import check, cu

free, total = check(cu.cuMemGetInfo())
held = [check(cu.cuMemAlloc(1 << 20)) for _ in range(15)]
print(cu.cuMemAlloc(1 << 21)[0].name, free - check(cu.cuMemGetInfo())[0] == 15 << 20, total >> 20)
for one in held:
    check(cu.cuMemFree(one))
print(check(cu.cuMemGetInfo())[0] == free)
# What was given back serves again, in other sizes as well.
check(cu.cuMemFree(check(cu.cuMemAlloc(1 << 24))))
