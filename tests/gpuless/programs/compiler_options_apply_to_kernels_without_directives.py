"""Options of the compiler apply to kernels without directives of their own."""

from emulated import check, cu

option, attribute = cu.CUjit_option, cu.CUfunction_attribute
text = b".version 8.1\n.target sm_80\n.address_size 64\n.visible .entry f() BOUNDS { ret; }"
options = [option.CU_JIT_MAX_REGISTERS, option.CU_JIT_MAX_THREADS_PER_BLOCK]
registers = attribute.CU_FUNC_ATTRIBUTE_NUM_REGS
threads = attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK


def bounds(module):
    kernel = check(cu.cuModuleGetFunction(module, b"f"))
    launched = cu.cuLaunchKernel(kernel, 1, 1, 1, 65, 1, 1, 0, 0, 0, 0)
    assert launched[0].name == "CUDA_ERROR_INVALID_VALUE"
    return [check(cu.cuFuncGetAttribute(which, kernel)) for which in (registers, threads)]


text = text.replace(b"BOUNDS", b"")
own = text.replace(b"f()", b"f() .maxnreg 3 .maxntid 32")
assert bounds(check(cu.cuModuleLoadDataEx(text, 2, options, [5, 64]))) == [5, 64]
assert bounds(check(cu.cuModuleLoadDataEx(own, 2, options, [5, 64]))) == [3, 32]
link = check(cu.cuLinkCreate(2, options, [5, 64]))
check(cu.cuLinkAddData(link, cu.CUjitInputType.CU_JIT_INPUT_PTX, text, len(text), b"f", 0, [], []))
assert bounds(check(cu.cuModuleLoadData(check(cu.cuLinkComplete(link))[0]))) == [5, 64]
