"""Products and sums that NVIDIA's assembler fuses into one instruction, and those it leaves separate."""

import numpy as np
import pytest

import gpuless

if not gpuless.select().emulated:
    pytest.skip("about what the emulated GPU makes of PTX", allow_module_level=True)

from numba import cuda

from gpuless.inspector import NoCompiler, inspect_kernels

SIZE = 4096
SIGNATURE = "void(float32[::1], float32[::1], float32[::1], float32[::1], float32[::1], float32[::1])"


def difference(a, b, c, d, out, other):
    i = cuda.grid(1)
    out[i] = a[i] * b[i] - c[i]


def taken_away(a, b, c, d, out, other):
    i = cuda.grid(1)
    out[i] = c[i] - a[i] * b[i]


def of_two_products_the_first(a, b, c, d, out, other):
    i = cuda.grid(1)
    out[i] = a[i] * b[i] - c[i] * d[i]


def into_two_sums(a, b, c, d, out, other):
    i = cuda.grid(1)
    product = a[i] * b[i]
    out[i] = product - c[i]
    other[i] = product - d[i]


def one_after_another(a, b, c, d, out, other):
    i = cuda.grid(1)
    out[i] = (c[i] * d[i] - d[i]) - a[i] * b[i]


def separate_product(a, b, c, d, out, other):
    i = cuda.grid(1)
    product = a[i] * b[i]
    out[i] = product - c[i]
    other[i] = product * c[i]


def a_product_that_is_kept(a, b, c, d, out, other):
    i = cuda.grid(1)
    product = a[i] * b[i]
    out[i] = product - c[i]
    other[i] = product


def in_another_block(a, b, c, d, out, other):
    i = cuda.grid(1)
    product = a[i] * b[i]
    out[i] = product - c[i] if d[i] > 0 else d[i] - product


def without_itself(a, b, c, d, out, other):
    i = cuda.grid(1)
    product = a[i] * b[i]
    out[i] = product - product


def fused(a, b, c):
    """Return a * b + c, rounded once: the product is exact, and the sum has 64 bits."""
    return (a.astype(np.longdouble) * b + c).astype(np.float32)


#: The expressions of both outputs, None for nothing; the number of multiply-adds of the assembler.
CASES = {
    difference: (lambda a, b, c, d: (fused(a, b, -c), None), 1),
    taken_away: (lambda a, b, c, d: (fused(-a, b, c), None), 1),
    of_two_products_the_first: (lambda a, b, c, d: (fused(a, b, -(c * d)), None), 1),
    into_two_sums: (lambda a, b, c, d: (fused(a, b, -c), fused(a, b, -d)), 2),
    one_after_another: (lambda a, b, c, d: (fused(-a, b, fused(c, d, -d)), None), 2),
    separate_product: (lambda a, b, c, d: (a * b - c, a * b * c), 0),
    a_product_that_is_kept: (lambda a, b, c, d: (a * b - c, a * b), 0),
    without_itself: (lambda a, b, c, d: (0 * a, None), 0),
    in_another_block: (lambda a, b, c, d: (np.where(d > 0, a * b - c, d - a * b), None), 0),
}


def inputs():
    """Return numbers whose products nearly cancel what is added to them: the last bits show."""
    a, b, d, near = np.random.default_rng(0).standard_normal((4, SIZE)).astype(np.float32)
    return a, b, a * b * (1 + near / 64), d


@pytest.mark.parametrize("function", CASES, ids=lambda function: function.__name__)
def test_sums_have_the_bits_of_a_gpu(function):
    arrays = inputs()
    out, other = cuda.device_array((2, SIZE), np.float32)
    cuda.jit(SIGNATURE)(function)[SIZE // 256, 256](*map(cuda.to_device, arrays), out, other)
    expected = CASES[function][0](*arrays)
    for received, wanted in zip((out, other), expected, strict=True):
        if wanted is not None:
            np.testing.assert_array_equal(received.copy_to_host(), wanted)
    plain = arrays[0] * arrays[1] - arrays[2]
    assert (fused(arrays[0], arrays[1], -arrays[2]) != plain).mean() > 0.5  # there is a difference to see


def test_the_assembler_fuses_those_and_no_others():
    kernels = [(cuda.jit(function), SIGNATURE) for function in CASES]
    try:
        reports = inspect_kernels(kernels, ["7.5", "9.0"])
    except NoCompiler as error:
        pytest.skip(str(error))
    for report, (_, count) in zip(reports, [case for case in CASES.values() for _ in range(2)], strict=True):
        if report.language != "SASS":
            pytest.skip("there is no disassembler")
        assert sum("FFMA" in each.opcode for each in report.instructions) == count, report.listing()
