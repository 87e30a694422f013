// What OpenCL C calls by other names than CUDA C++, so that a kernel for the one compiles as the other.

#define __kernel extern "C" __global__
#define __global
#define __local __shared__
#define CLK_LOCAL_MEM_FENCE 0
#define barrier(fence) __syncthreads()
#define along(axis, words) ((axis) == 0 ? words.x : (axis) == 1 ? words.y : words.z)
#define get_local_id(axis) along(axis, threadIdx)
#define get_local_size(axis) along(axis, blockDim)
#define get_group_id(axis) along(axis, blockIdx)
#define get_num_groups(axis) along(axis, gridDim)
#define get_global_id(axis) (get_group_id(axis) * get_local_size(axis) + get_local_id(axis))
#define get_global_size(axis) (get_num_groups(axis) * get_local_size(axis))
