"""The types of operators' results, for a CPU and for a GPU."""

import operator

from numba import types as t
from numba.core.registry import cpu_target
from numba.cuda.descriptor import cuda_target

names = "add sub mul floordiv mod truediv and_ or_ xor lshift rshift lt eq".split()
numbers = [t.int8, t.uint8, t.int32, t.uint32, t.int64, t.uint64, t.float32, t.float64]


def table(context):
    context.refresh()

    def result(operation, *pair):
        try:
            return str(context.resolve_function_type(operation, pair, {}).return_type)
        except Exception:
            return "none"

    operations = [getattr(operator, name) for name in names] + [max, min]
    return [result(f, a, b) for f in operations for a in numbers for b in numbers]


cpu, gpu = table(cpu_target.typing_context), table(cuda_target.typing_context)
print(cpu == gpu, len(set(cpu)))
