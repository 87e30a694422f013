"""Programs that use the Tensor Cores: CUDA C++ through `cuda.core`, and PTX within a Numba kernel."""

import pytest
from driver_programs import pytestmark, run  # noqa: F401


@pytest.mark.slow
def test_products_in_cuda_c_and_in_numba():
    """The allowed error is that of sums in float32."""
    assert run("tensor_cores_in_cuda_c.py") == ["double_buffered True", "specialised True"] * 2
    assert run("tensor_cores_in_numba.py") == ["True"]
