"""Host code with `numba.cuda`, as expressions: prints the result of each, to compare two devices."""

import contextlib
import io

import numpy as np

import gpuless

gpuless.select()

from numba import cuda  # noqa: E402

A = np.arange(12, dtype=np.float32).reshape(3, 4)
D = cuda.to_device(A)
R = cuda.to_device(np.zeros(3, [("x", np.int32), ("y", np.float64)]))


class Wrapper:
    """An array of another library, in device memory."""

    __cuda_array_interface__ = D.__cuda_array_interface__


class HostWrapper:
    """One that is not in device memory."""


@cuda.jit
def fill(x, value):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = value


def filled(array, value=7):
    fill.forall(array.size)(array, value)
    return array


def assigned(array, index, value):
    array[index] = value
    return array.copy_to_host()


def managed(make, *arguments):
    with make(*arguments) as found:
        return found


EXPRESSIONS = """
D.shape, D.strides, D.dtype, D.ndim, D.size, D.nbytes, D.alloc_size, len(D)
D.is_c_contiguous(), D.is_f_contiguous(), D.T.is_c_contiguous()
D.copy_to_host()
D.copy_to_host(np.empty((3, 4), np.float32))
D.copy_to_host(np.empty((4, 3), np.float32))
D.copy_to_host(np.empty((3, 4), np.float64))
D.copy_to_host(np.empty((3, 4), np.float32, "F"))
D[1, 2], type(D[1, 2]).__name__
D[1].copy_to_host()
D[:, 1].copy_to_host()
D[1:, ::2].shape
D[3, 0]
D[-1].copy_to_host()
D[..., 0].copy_to_host()
D[[0, 1]]
D.T.copy_to_host()
D.transpose().shape
D[0].T
D.transpose((1, 0)).shape, D.transpose((0, 1)).shape
D.transpose((0, 2))
D.reshape(4, 3).copy_to_host()
D.reshape((2, 6)).shape
D.reshape(2, -1).shape
D.reshape(5, 3)
D.reshape(12, order="F").shape
D[:, 1].reshape(1, 3).shape
D.ravel().copy_to_host()
D[:, :2].ravel()
D.view(np.int32).copy_to_host()[1]
D.view(np.float64).shape
D.view(np.uint8).shape
[part.copy_to_host() for part in D.ravel().split(5)]
list(D.split(2))
D[:1].squeeze().shape
np.asarray(D)
np.asarray(D, np.int8)
D.mean()
D.no_such_attribute
D + 1
cuda.to_device(D) is D
cuda.to_device([1, 2, 3]).dtype
cuda.to_device(5).shape
cuda.to_device(A[:, ::2])
cuda.to_device(np.asfortranarray(A)).is_f_contiguous()
cuda.to_device(np.broadcast_to(np.float32(3), (2, 2))).copy_to_host()
cuda.to_device(A + 1, to=cuda.device_array((3, 4), np.float32)).copy_to_host()
cuda.device_array((2, 3), np.int8, order="F").strides
cuda.device_array(4).dtype
cuda.device_array((2, 2), np.float32, strides=(8, 4)).shape
cuda.device_array_like(A.T).strides
cuda.device_array_like(D).shape
cuda.device_array(0, np.float32).copy_to_host()
cuda.pinned_array((2, 2), np.int16).shape, cuda.pinned_array_like(A).shape
type(cuda.pinned_array(2)).__name__
cuda.mapped_array(3, np.float32).shape, cuda.managed_array(3, np.float32).dtype
cuda.mapped_array_like(A).shape
filled(cuda.managed_array(3, np.float32)).tolist()
filled(cuda.device_array(3)).copy_to_host()
assigned(cuda.to_device(A.copy()), (0, 0), 5)
assigned(cuda.to_device(A.copy()), 1, 5)
assigned(cuda.to_device(A.copy()), slice(None), A + 2)
assigned(cuda.to_device(A.copy()), (slice(None), 0), np.arange(3, dtype=np.float32))
assigned(cuda.to_device(A.copy()), 0, D[1])
assigned(cuda.to_device(A.copy()), 0, np.zeros(3, np.float32))
R.dtype, R.copy_to_host()["x"]
R[0]["x"] if False else R.shape
cuda.is_cuda_array(D), cuda.is_cuda_array(A), cuda.is_cuda_array(Wrapper())
cuda.as_cuda_array(Wrapper()).copy_to_host()
cuda.as_cuda_array(D[:, 1]).strides
cuda.as_cuda_array(A)
cuda.as_cuda_array(HostWrapper())
cuda.as_cuda_array(filled(cuda.as_cuda_array(Wrapper()).ravel())[:2]).copy_to_host()
sorted(D.__cuda_array_interface__), D.__cuda_array_interface__["typestr"]
D.__cuda_array_interface__["strides"]
D[:, 1].__cuda_array_interface__["strides"], D.__cuda_array_interface__["version"]
D.bind(cuda.stream()).shape
cuda.stream().synchronize()
bool(cuda.default_stream()), type(managed(cuda.stream().auto_synchronize)).__name__ in ("Stream", "NoneType")
managed(cuda.defer_cleanup), managed(cuda.pinned, A.copy())
cuda.event().query()
cuda.event().elapsed_time(cuda.event()) >= 0
cuda.synchronize(), cuda.is_available(), cuda.is_supported_version()
len(cuda.gpus), len(cuda.list_devices()), cuda.get_current_device().id
cuda.gpus[1]
cuda.select_device(0) is not None
cuda.current_context().device.id
cuda.get_current_device().WARP_SIZE, cuda.get_current_device().MAX_THREADS_PER_BLOCK
cuda.reduce(lambda a, b: a + b)(cuda.to_device(np.arange(10.0)))
cuda.reduce(lambda a, b: max(a, b))(np.arange(5, dtype=np.int64), init=7)
cuda.reduce(lambda a, b: a + b)(cuda.to_device(np.arange(10.0)), size=3)
cuda.reduce(lambda a, b: a + b)(D)
cuda.float32(0.1), cuda.int8(3), str(cuda.float32[:, ::1]), str(cuda.float32[::1, :]), str(cuda.int64[:])
cuda.float32 == cuda.types.float32, cuda.f4 == cuda.float32, cuda.intp == cuda.int64
hash(cuda.u1) == hash(cuda.uint8)
cuda.int32.bitwidth, cuda.int32.signed, cuda.uint8.signed, cuda.float64.bitwidth
cuda.types.complex64.underlying_float, cuda.float32[:, :].ndim, cuda.float32[::1].layout, cuda.void
str(cuda.void(cuda.int32, cuda.float32[:])), cuda.void(cuda.int32).args
cuda.float32["x"]
fill[2, 3].no_such
fill[1, 2](D[0], 3) or D.copy_to_host()
fill(D, 1)
fill[1, 2048](D.ravel(), 1)
fill[0, 1](D.ravel(), 1)
fill.py_func.__name__, fill.__name__, fill.targetoptions["device"], fill.signatures[:0]
fill.forall(-1)
cuda.jit(lambda x: None, no_such_option=1)
cuda.jit(lambda x: None, boundscheck=True)
"""


def said(value):
    """Return the comparable form of a value."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.tolist()}"
    if isinstance(value, (tuple, list)):
        return str(list(map(said, value)))
    return value.name if hasattr(value, "name") and hasattr(value, "cast_python_value") else str(value)


def main():
    """Print each expression with its result, or the kinds of error that it raises."""
    for line in filter(None, EXPRESSIONS.splitlines()):
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                found = said(eval(line))
        except Exception as error:
            kinds = (AttributeError, IndexError, NotImplementedError, TypeError, ValueError)
            found = " ".join(kind.__name__ for kind in kinds if isinstance(error, kind)) or "error"
        print(line, "->", found)


if __name__ == "__main__":
    main()
