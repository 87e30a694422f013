"""Programs that use the Tensor Cores: CUDA C++ through `cuda.core`, and PTX within a Numba kernel."""

from pathlib import Path

import pytest
from test_emulator_driver import pytestmark, run  # noqa: F401

SOURCE = Path(__file__).with_name("tensor_cores.cu")
CUDA_CORE = """
from pathlib import Path
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
device = Device()
device.set_current()
stream = device.create_stream()
codes = [
    Program(Path(SOURCE).read_text(), "c++", ProgramOptions(arch=f"sm_{cc}", std="c++17")).compile("ptx")
    for cc in (80, 90)
]
rng = np.random.default_rng(0)
m, n, depth = 128, 192, 160
a, b = (rng.standard_normal(size).astype(np.float16) for size in ((m, depth), (depth, n)))
exact = a.astype(np.float64) @ b.astype(np.float64)
given = [cuda.to_device(x.view(np.uint16)) for x in (a, b)]
for code in codes:
    for name, threads in (("double_buffered", 128), ("specialised", 160)):
        out = cuda.to_device(np.full((m, n), np.nan, np.float32))
        pointers = [x.device_ctypes_pointer.value for x in (*given, out)]
        config = LaunchConfig(grid=(n // 64, m // 64), block=threads)
        launch(stream, config, code.get_kernel(name), *pointers, np.int32(n), np.int32(depth))
        stream.sync()
        print(name, np.abs(out.copy_to_host() - exact).max() < 2**-22 * depth * 4)
"""


@pytest.mark.slow
def test_products_in_cuda_c_and_in_numba():
    """The allowed error is that of sums in float32."""
    numba = Path(__file__).with_name("tensor_cores_in_numba.py").read_text()
    found = run(f"SOURCE = {str(SOURCE)!r}\n{CUDA_CORE}\n{numba}")
    assert found == ["double_buffered True", "specialised True"] * 2 + ["True"]
