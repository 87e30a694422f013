"""Numba's warnings and errors for programs that catch them by name, if Numba isn't installed."""


class NumbaWarning(Warning):
    """A warning of Numba."""


class NumbaError(Exception):
    """An error of Numba; the simulator never raises it."""


_WARNINGS = (
    "Debug Deprecation ExperimentalFeature IRAssumption InvalidConfig ParallelSafety Pedantic "
    "PendingDeprecation Performance System TypeSafety"
).split()
_ERRORS = (
    "CompilerError IRError LoweringError NotDefinedError NumbaAssertionError NumbaAttributeError "
    "NumbaIndexError NumbaKeyError NumbaNotImplementedError NumbaRuntimeError NumbaTypeError NumbaValueError "
    "RedefinedError RequireLiteralValue TypingError UnsupportedBytecodeError UnsupportedError "
    "VerificationError"
).split()
for _name in _WARNINGS:
    _name = f"Numba{_name}{'Info' if _name == 'Debug' else ''}Warning"
    globals()[_name] = type(_name, (NumbaWarning,), {"__doc__": NumbaWarning.__doc__, "__module__": __name__})
for _name in _ERRORS:
    globals()[_name] = type(_name, (NumbaError,), {"__doc__": NumbaError.__doc__, "__module__": __name__})
