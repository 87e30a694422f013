"""The road of tiles: kernels of cuTile Python, run in NumPy, and compiled if NVIDIA's compiler is there.

cuTile has no interpreter, so `language` provides one: the names of `cuda.tile` that the notebook uses, as its
documentation defines them. `compiled` shows what the compiler makes of a kernel.
"""

import base64
import json
import subprocess
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, version
from inspect import getsource
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from cnn_course.chapters.other_roads.roads.complaints import last_line
from cnn_course.chapters.other_roads.roads.machine_code import instructions_in

#: What compiles for a GPU: cuTile, its assembler and two compilers that it calls, of one version.
PACKAGES = ("cuda-tile", "nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")


#: The instructions that show how a product is computed: multiply-adds, Tensor Cores of three generations,
#: copies from global to shared memory, barriers.
TELLING = ("FFMA", "HMMA", "HGMMA", "UTCHMMA", "LDGSTS", "BAR")

#: What `compiled` gave for the notebook's kernel in tiles of 64 x 64 x 32, by tf32 and compute capability, on
#: 26 November 2026; nvcc and nvvm had the assembler's version.
RECORDED_WITH = "recorded with cuda-tile 1.7.0 and tileiras 13.5.37"
RECORDED = {
    (False, 80): {"FFMA": 1024, "LDGSTS": 32, "BAR": 3},
    (False, 90): {"FFMA": 1024, "LDGSTS": 48, "BAR": 2},
    (False, 100): {"FFMA": 1024, "LDGSTS": 48, "BAR": 2},
    (True, 80): {"HMMA": 128, "LDGSTS": 128, "BAR": 10},
    (True, 90): {"HGMMA": 16, "LDGSTS": 128, "BAR": 12},
    (True, 100): {"UTCHMMA": 4, "LDGSTS": 160, "BAR": 10},
}


# --- the interpreter ---------------------------------------------------------------------------------------


class _Constant:
    """`ct.Constant[int]` marks a parameter that is known when the kernel is compiled."""

    def __class_getitem__(cls, kind):
        return kind


_PADDING = SimpleNamespace(ZERO=np.float32(0), UNDETERMINED=np.float32(np.nan))
_TF32 = "tfloat32"
_block = [0, 0, 0]


def language() -> SimpleNamespace:
    """Return what stands in for `import cuda.tile as ct`: kernels run in NumPy, one block after the other.

    Padding that cuTile leaves undetermined is NaN here, and a tile outside its array is an error.

    Examples
    --------
    >>> ct = language()
    >>> ct.load(np.arange(6.0).reshape(2, 3), (0, 1), (2, 2), padding_mode=ct.PaddingMode.ZERO)
    array([[2., 0.],
           [5., 0.]], dtype=float32)
    """
    functions = (_kernel, _launch, _bid, _num_tiles, _full, _load, _store, _astype, _mma)
    names = {function.__name__.removeprefix("_"): function for function in functions}
    return SimpleNamespace(
        **names, Constant=_Constant, PaddingMode=_PADDING, float32=np.float32, tfloat32=_TF32
    )


def _kernel(function):
    return function


def _launch(stream, grid, kernel, arguments):
    for place in product(*map(range, grid)):
        _block[:] = (*place, 0, 0)[:3]
        kernel(*arguments)


def _bid(axis):
    return _block[axis]


def _num_tiles(array, axis, shape):
    return -(-array.shape[axis] // shape[axis])


def _full(shape, value, dtype):
    return np.full(_powers_of_two(shape), value, dtype)


def _load(array, index, shape, *, padding_mode=_PADDING.UNDETERMINED):
    tile = np.full(_powers_of_two(shape), padding_mode, np.float32)
    there = array[_part(array, index, shape)]
    tile[tuple(map(slice, there.shape))] = there
    return tile


def _store(array, index, tile):
    there = array[_part(array, index, tile.shape)]
    there[...] = tile[tuple(map(slice, there.shape))]


def _astype(tile, dtype):
    if dtype != _TF32:
        return tile.astype(dtype)
    return ((tile.view(np.int32) + 0x1000) & ~0x1FFF).view(np.float32)  # keeps 10 bits after the point


def _mma(left, right, total):
    return left @ right + total


def _powers_of_two(shape):
    for size in shape:
        if size < 1 or size & (size - 1):
            raise ValueError(f"a tile is a power of two along each axis, got {tuple(shape)}")
    return shape


def _part(array, index, shape):
    if len(index) != array.ndim or len(shape) != array.ndim:
        raise ValueError(f"the array has {array.ndim} axes: got tile {tuple(index)} of shape {tuple(shape)}")
    for axis, place in enumerate(index):
        if not 0 <= place < _num_tiles(array, axis, shape):
            raise IndexError(f"tile {tuple(index)} of shape {tuple(shape)} is outside {array.shape}")
    return tuple(slice(i * size, (i + 1) * size) for i, size in zip(index, shape, strict=True))


# --- the compiler ------------------------------------------------------------------------------------------

# Runs in a new process, as `cuda.tile` reads a kernel's source from a file.
_COMPILE = """
import base64, importlib.util, io, json, sys

import cuda.tile as ct
from cuda.tile.compilation import (
    ArrayConstraint, CallingConvention, ConstantConstraint, KernelSignature, export_kernel
)

asked = json.load(sys.stdin)
spec = importlib.util.spec_from_file_location("kernels", asked["file"])
sys.modules["kernels"] = kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)
matrix = ArrayConstraint(
    ct.float32, 2, index_dtype=ct.int32, stride_lower_bound_incl=0, stride_constant=(None, 1),
    alias_groups=(), may_alias_internally=False,
)
convention = CallingConvention.cutile_python_v1()
parameters = [matrix] * 3 + [ConstantConstraint(value) for value in asked["constants"]]
signature = KernelSignature(parameters, convention, asked["name"])
out, cc = io.BytesIO(), asked["cc"]
where = {"gpu_code": f"sm_{cc}", "output_format": "cubin"} if cc else {
    "gpu_code": None, "output_format": "tileir_bytecode", "bytecode_version": "13.3"
}
export_kernel(getattr(kernels, asked["name"]), [signature], out, **where)
print(base64.b64encode(out.getvalue()).decode())
"""


def assembler() -> str:
    """Return the version of the assembler for tiles, "" unless all of `PACKAGES` are installed."""
    try:
        return {package: version(package) for package in PACKAGES}["nvidia-cuda-tileiras"]
    except PackageNotFoundError:
        return ""


def exported(source: str, name: str, constants: tuple, cc: int = 0) -> bytes:
    """Compile a kernel of three C-contiguous matrices of float32.

    Parameters
    ----------
    source : str
        The kernel's text.
    name : str
    constants : tuple
        The values of its other parameters.
    cc : int, optional
        Compute capability, 80 for 8.0; 0 returns Tile IR, which any GPU's assembler takes.

    Raises
    ------
    RuntimeError
        If cuTile cannot compile it; the message is cuTile's.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "kernels.py")
        file.write_text(f"import cuda.tile as ct\n\n\n{source}", encoding="utf-8")
        asked = {"file": str(file), "name": name, "constants": constants, "cc": cc}
        command = [sys.executable, "-c", _COMPILE]
        done = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"cuTile does not compile `{name}`:\n{done.stderr.strip()}")
    return base64.b64decode(done.stdout)


def compiled(kernel, constants: tuple, cc: int) -> dict:
    """Compile a kernel of tiles for a GPU, which need not be present.

    Parameters
    ----------
    kernel : function
        Of three C-contiguous matrices of float32, and constants.
    constants : tuple
    cc : int
        Compute capability, 80 for 8.0.

    Returns
    -------
    dict
        How often each instruction of `TELLING` occurs in the machine code, without zeros.
    """
    found = instructions_in(exported(getsource(kernel), kernel.__name__, constants, cc))
    return {name: found[name] for name in TELLING if found[name]}


def report(kernel) -> str:
    """Return the instructions of a product in tiles of 64 x 64 x 32, recorded ones without an assembler."""
    here = assembler()
    lines = [f"compiled by tileiras {here}" if here else RECORDED_WITH]
    for (tf32, cc), recorded in RECORDED.items():
        try:
            found = compiled(kernel, (64, 64, 32, tf32), cc) if here else recorded
        except RuntimeError as error:  # such as an assembler that does not know this GPU
            found = {last_line(error): "refused:"}
        counted = " ".join(f"{number} {name}" for name, number in found.items())
        lines.append(f"{cc / 10} {'tf32' if tf32 else 'float32'}: {counted}")
    return "\n".join(lines)
