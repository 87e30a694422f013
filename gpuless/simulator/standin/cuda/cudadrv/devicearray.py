"""`numba.cuda.cudadrv.devicearray` where kernels run in the simulator."""

from gpuless.simulator.devicearrays import (
    DeviceArray,
    MappedArray,
    device_array,
    device_array_like,
    is_cuda_array as is_cuda_ndarray,
    to_device,
)

DeviceNDArray = DeviceNDArrayBase = DeviceRecord = DeviceArray
MappedNDArray = ManagedNDArray = MappedArray
