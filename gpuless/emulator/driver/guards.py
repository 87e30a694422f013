"""Wrappers of callbacks that protect pending exceptions, and delay those that interrupt a callback.

An interrupt, such as Ctrl-C, ends the driver's call, and is raised when that has returned.
"""

import _thread
import ctypes
import time

from gpuless.emulator.driver.errors import Result
from gpuless.emulator.run import machine

_INTERRUPTED = -1
_GUARDS = """
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_Restore(ptr, ptr, ptr)
declare i32 @Py_AddPendingCall(ptr, ptr)
declare ptr @PyObject_Type(ptr)
declare void @PyErr_SetObject(ptr, ptr)
declare void @Py_DecRef(ptr)

define internal i32 @raise(ptr %error) {{
  %type = call ptr @PyObject_Type(ptr %error)
  call void @PyErr_SetObject(ptr %type, ptr %error)
  call void @Py_DecRef(ptr %type)
  call void @Py_DecRef(ptr %error)
  ret i32 -1
}}

define internal i32 @guarded(ptr %function, {parameters}) noinline {{
  %error = alloca [3 x ptr]
  %e1 = getelementptr ptr, ptr %error, i64 1
  %e2 = getelementptr ptr, ptr %error, i64 2
  %state = call i32 @PyGILState_Ensure()
  call void @PyErr_Fetch(ptr %error, ptr %e1, ptr %e2)
  %code = call i32 %function({parameters})
  %v0 = load ptr, ptr %error
  %v1 = load ptr, ptr %e1
  %v2 = load ptr, ptr %e2
  call void @PyErr_Restore(ptr %v0, ptr %v1, ptr %v2)
  call void @PyGILState_Release(i32 %state)
  %interrupted = icmp eq i32 %code, {interrupted}
  br i1 %interrupted, label %interrupt, label %end
interrupt:
  %passed = load ptr, ptr inttoptr (i64 {passed_on} to ptr)
  %unused = call i32 @Py_AddPendingCall(ptr @raise, ptr %passed)
  ret i32 0
end:
  ret i32 %code
}}
"""
_GUARD = """
define internal i32 @guard{i}({parameters}) {{
  %code = call i32 @guarded(ptr inttoptr (i64 {function} to ptr), {parameters})
  ret i32 %code
}}
"""
_passed_on, _raise = ctypes.c_uint64(), []
_guards = []


def pass_on(error, guarded):
    """Arrange for an exception to be raised after the call that it ended; return the call's result."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(error))
    if guarded:
        _passed_on.value = id(error)
        return _INTERRUPTED
    _thread.start_new_thread(_raise_soon, (id(error),))
    return Result.LAUNCH_TIMEOUT


def _raise_soon(error):
    time.sleep(0.01)
    ctypes.pythonapi.Py_AddPendingCall(ctypes.c_void_p(_raise[0]), ctypes.c_void_p(error))


def guarded(functions):
    """Return callbacks that save and restore a pending exception, and raise interrupts when they return."""
    parameters = ", ".join(f"i64 %a{i}" for i in range(11))
    passed_on = ctypes.addressof(_passed_on)
    text = _GUARDS.format(parameters=parameters, interrupted=_INTERRUPTED, passed_on=passed_on)
    for i, function in enumerate(functions):
        address = ctypes.cast(function, ctypes.c_void_p).value
        text += _GUARD.format(i=i, parameters=parameters, function=address)
    text += "define i32 @run(ptr %found, ptr %unused) {\n"
    for i, name in enumerate([*(f"guard{i}" for i in range(len(functions))), "raise"]):
        text += f"  %p{i} = getelementptr ptr, ptr %found, i64 {i}\n  store ptr @{name}, ptr %p{i}\n"
    code = machine.Code(machine.compile_object(text + "  ret i32 0\n}\n"))
    found = (ctypes.c_uint64 * (len(functions) + 1))()
    code.run(ctypes.addressof(found), None)
    _guards.append((code, functions))  # for as long as they may be called
    *addresses, raises = found
    _raise.append(raises)
    return [ctypes.CFUNCTYPE(ctypes.c_int)(address) for address in addresses]
