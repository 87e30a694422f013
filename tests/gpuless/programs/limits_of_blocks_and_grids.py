"""The limits of blocks and grids."""

from emulated import check, cu

text = b".version 8.1\n.target sm_80\n.address_size 64\n.visible .entry f() BOUNDS { ret; }"


def launch(grid, block, bounds=b""):
    module = check(cu.cuModuleLoadData(text.replace(b"BOUNDS", bounds)))
    kernel = check(cu.cuModuleGetFunction(module, b"f"))
    return cu.cuLaunchKernel(kernel, *grid, *block, 0, 0, 0, 0)[0].name.removeprefix("CUDA_")


one = 1, 1, 1
for block in ((1024, 1, 1), (1, 1024, 1), (1, 1, 64), (2, 8, 64)):
    assert launch(one, block) == "SUCCESS"
for block in ((1025, 1, 1), (1, 1025, 1), (1, 1, 65), (2, 9, 64), (0, 1, 1), (1, 0, 1), (1, 1, 0)):
    assert launch(one, block) == "ERROR_INVALID_VALUE", block
for grid in ((65536, 1, 1), (1, 65535, 1), (1, 1, 65535)):
    assert launch(grid, one) == "SUCCESS"
for grid in ((1 << 31, 1, 1), (1, 65536, 1), (1, 1, 65536), (0, 1, 1), (1, 0, 1), (1, 1, 0)):
    assert launch(grid, one) == "ERROR_INVALID_VALUE", grid
assert launch(one, (8, 8, 1), b".maxntid 64, 1, 1") == "SUCCESS"
assert launch(one, (65, 1, 1), b".maxntid 64, 1, 1") == "ERROR_INVALID_VALUE"
assert launch(one, (8, 8, 1), b".reqntid 8, 8") == "SUCCESS"
for block in ((64, 1, 1), (8, 4, 1)):
    assert launch(one, block, b".reqntid 8, 8, 1") == "ERROR_INVALID_VALUE"
