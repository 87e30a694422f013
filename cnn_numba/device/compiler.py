"""The names that kernels take from their compiler: `cuda`, the types of numbers, and two numbers.

Each compiler knows only its own ``float32``, so all kernels of the package, and the functions that launch
them, import these names from here. `selection.COMPILER` names the compiler.
"""

from cnn_numba.device.selection import COMPILER, simulated

if COMPILER == "mlir":
    from numba_cuda_mlir import cuda, types
    from numba_cuda_mlir.extending import intrinsic
else:
    from numba import cuda, types  # type: ignore[no-redef]

    if simulated():
        intrinsic = None  # the simulator does not compile
    else:
        from numba.cuda.extending import intrinsic

boolean, float32 = types.boolean, types.float32
int32, int64 = types.int32, types.int64
uint8, uint32, uint64 = types.uint8, types.uint32, types.uint64
# A plain 0 or 1 beside a float32 would be an int64, and their sum a float64.
ZERO, ONE = float32(0), float32(1)

__all__ = ["ONE", "ZERO", "boolean", "cuda", "float32", "int32", "int64", "intrinsic", "types"]
__all__ += ["uint8", "uint32", "uint64"]
