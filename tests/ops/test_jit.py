"""What holds for the kernels of the cpu rooms together: their cache, and vectors of another width."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cnn_numba


@pytest.fixture
def copied(tmp_path):
    """Return a copy of the package's code, and a function that runs a script with it."""
    package = tmp_path / "cnn_numba"
    source = Path(cnn_numba.__file__).parent
    shutil.copytree(source, package, ignore=shutil.ignore_patterns("__pycache__", "course", "*.npz"))

    def run(script):
        script = f"import cnn_numba; print(cnn_numba.__file__)\n{script}"
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        where, *lines = done.stdout.splitlines()
        assert where == str(package / "__init__.py")
        return lines

    return package, run


def replace(path, before, after):
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


def test_a_changed_part_of_the_kernels_is_compiled_anew(copied):
    """Numba's cache notices a change of the file of a function, but not of those it calls in other files."""
    package, run = copied
    script = (
        "import numpy as np; from cnn_numba.ops.dense.cpu import linear_forward;"
        "x = np.ones((1, 2), np.float32); print(linear_forward(x, x)[0, 0])"
    )
    assert run(script) == run(script) == ["2.0"]
    replace(
        package / "ops" / "shared" / "simd.py",
        "builder.fadd(product, args[2]",
        "builder.fsub(product, args[2]",
    )
    assert run(script) == ["0.0"]


TRAIN = """
import numpy as np
from cnn_numba import Adam, CrossEntropyLoss, mnist_cnn, train_step
from cnn_numba.ops.shared.simd import WIDTH

model, loss = mnist_cnn(batch_size=5), CrossEntropyLoss(5, 10)
optimizer = Adam(model, lr=1e-3)
x = np.random.default_rng(0).random((5, 1, 28, 28), np.float32)
losses = [train_step(model, loss, optimizer, x, np.arange(5, dtype=np.int32))[0].mean() for _ in range(3)]
print(WIDTH, *losses)
"""


def test_vectors_of_every_width_train_alike(copied):
    """The vectors are 16 floats wide with AVX-512, else 8: this machine has only one of the two."""
    package, run = copied
    results = []
    simd = (package / "ops" / "shared" / "simd.py").read_text()
    for width in (8, 16):
        start = simd.index("WIDTH = 16 if")
        end = simd.index("\n", start)
        (package / "ops" / "shared" / "simd.py").write_text(f"{simd[:start]}WIDTH = {width}{simd[end:]}")
        got, *losses = run(TRAIN)[0].split()
        assert int(got) == width
        results.append([float(loss) for loss in losses])
    assert results[0] == pytest.approx(results[1], rel=1e-5)
    assert results[0][2] < results[0][0]
