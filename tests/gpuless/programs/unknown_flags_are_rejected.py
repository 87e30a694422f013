"""Unknown flags are rejected."""

import ctypes
import json
import os

import numpy as np
from emulated import check, cu

stream, other = check(cu.cuStreamCreate(0)), check(cu.cuStreamCreate(1))
event = check(cu.cuEventCreate(0))
managed, pinned = check(cu.cuMemAllocManaged(100, 1)), check(cu.cuMemHostAlloc(100, 0))
array, graph, location = np.zeros(100), check(cu.cuGraphCreate(0)), cu.CUmemLocation()
own_pool = check(cu.cuDeviceGetDefaultMemPool(0))
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: None)
callback = cu.CUhostFn(ctypes.cast(function, ctypes.c_void_p).value)
object = check(cu.cuUserObjectCreate(0, callback, 9, 1))
text = b".version 8.1\n.target sm_80\n.address_size 64\n.visible .entry f() { ret; }"
kernel = check(cu.cuModuleGetFunction(check(cu.cuModuleLoadData(text)), b"f"))


class number(int):
    value = property(int)


attribute = cu.CUmemPool_attribute


def captured(answer):
    answer[0] or check(cu.cuStreamEndCapture(other))
    return answer


def registered(answer):
    answer[0] or check(cu.cuMemHostUnregister(array.ctypes.data))
    return answer


def pool(allocType=1, handleTypes=0, place=1):
    properties = cu.CUmemPoolProps()
    address = properties.getPtr()
    for i, value in enumerate((allocType, handleTypes, place)):
        ctypes.c_int.from_address(address + 4 * i).value = value
    return properties


def with_parameters(flags):
    parameters = cu.CUDA_GRAPH_INSTANTIATE_PARAMS()
    parameters.flags = flags
    answer = cu.cuGraphInstantiateWithParams(graph, parameters)
    if not answer[0]:
        assert int(check(cu.cuGraphExecGetFlags(answer[1]))) == flags
    return answer


def set_pointer(attribute):
    given = ctypes.byref(ctypes.c_int(1)), attribute, ctypes.c_uint64(int(managed))
    return [cu.CUresult(ctypes.CDLL(None).cuPointerSetAttribute(*given))]


def load(option, value):
    return cu.cuModuleLoadDataEx(text, 1, [option], [value])


def link(level):
    return cu.cuLinkCreate(1, [cu.CUjit_option.CU_JIT_OPTIMIZATION_LEVEL], [level])


for call, groups in json.loads(os.environ["FLAGS"]).items():
    for wanted, flags in zip(("SUCCESS", "ERROR_INVALID_VALUE", "ERROR_NOT_SUPPORTED"), groups, strict=True):
        for each in flags:
            code = eval(call.format(each))[0].name
            assert code == "CUDA_" + wanted, (call.format(each), code)
