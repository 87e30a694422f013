"""A cluster of several blocks is rejected."""

from emulated import check, cu

text = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry f() { ret; }"
kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
cluster, config = cu.CUlaunchAttribute(), cu.CUlaunchConfig()
cluster.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
for side in ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ"):
    setattr(config, side, 2)
for y in (1, 2):
    cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z = 1, y, 1
    config.attrs, config.numAttrs = [cluster], 1
    print(cu.cuLaunchKernelEx(config, kernel, 0, 0)[0].name)
text = text.replace(b"f()", b"f() .reqnctapercluster 2, 1, 1")
kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))
print(cu.cuLaunchKernel(kernel, 2, 1, 1, 2, 1, 1, 0, 0, 0, 0)[0].name)
