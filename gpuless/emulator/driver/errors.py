"""The driver's errors: their numbers and texts, and the checks of arguments that raise them."""

from enum import IntEnum


class Result(IntEnum):
    """The result of a driver call, ``CUresult``, with the driver's text for it."""

    def __new__(cls, number, text):
        """Make one from a number and a text."""
        result = int.__new__(cls, number)
        result._value_, result.text = number, text
        return result

    SUCCESS = 0, "no error"
    INVALID_VALUE = 1, "invalid argument"
    OUT_OF_MEMORY = 2, "out of memory"
    NOT_INITIALIZED = 3, "initialization error"
    NO_DEVICE = 100, "no CUDA-capable device is detected"
    INVALID_DEVICE = 101, "invalid device ordinal"
    INVALID_IMAGE = 200, "device kernel image is invalid"
    INVALID_CONTEXT = 201, "invalid device context"
    NO_BINARY_FOR_GPU = 209, "no kernel image is available: the emulated GPU runs PTX"
    UNSUPPORTED_LIMIT = 215, "limit is not supported on this architecture"
    INVALID_PTX = 218, "a PTX instruction is not known to the emulated GPU"
    INVALID_HANDLE = 400, "invalid resource handle"
    ILLEGAL_STATE = 401, "the operation cannot be performed in the present state"
    NOT_FOUND = 500, "named symbol not found"
    NOT_READY = 600, "device not ready"
    ILLEGAL_ADDRESS = 700, "an illegal memory access was encountered"
    LAUNCH_OUT_OF_RESOURCES = 701, "too many resources requested for launch"
    LAUNCH_TIMEOUT = 702, "the launch timed out and was terminated"
    ASSERT = 710, "device-side assert triggered"
    HOST_MEMORY_ALREADY_REGISTERED = 712, "part or all of the requested memory range is already mapped"
    HOST_MEMORY_NOT_REGISTERED = 713, "pointer does not correspond to a registered memory region"
    MISALIGNED_ADDRESS = 716, "misaligned address"
    LAUNCH_FAILED = 719, "unspecified launch failure"
    COOPERATIVE_LAUNCH_TOO_LARGE = 720, "too many blocks in cooperative launch"
    NOT_PERMITTED = 800, "operation not permitted"
    NOT_SUPPORTED = 801, "operation not supported by the emulated GPU"
    STREAM_CAPTURE_UNSUPPORTED = 900, "operation not permitted when stream is capturing"
    STREAM_CAPTURE_INVALIDATED = 901, "operation failed due to a previous error"
    STREAM_CAPTURE_MERGE = 902, "operation would result in a merge of separate capture sequences"
    STREAM_CAPTURE_UNMATCHED = 903, "capture was not initiated in this stream"
    STREAM_CAPTURE_UNJOINED = 904, "capturing stream has unjoined work"
    STREAM_CAPTURE_ISOLATION = 905, "dependency created on uncaptured work in another stream"
    CAPTURED_EVENT = 907, "operation not permitted on an event last recorded in a capturing stream"
    UNKNOWN = 999, "unknown error"

    @classmethod
    def _missing_(cls, number):
        return cls.UNKNOWN

    @property
    def full_name(self):
        """Its name in CUDA."""
        return f"CUDA_{'ERROR_' if self else ''}{self.name}"


class DriverError(Exception):
    """An error, returned to the caller as a `Result`; `last_detail` returns its `detail`."""

    def __init__(self, code, detail=""):
        super().__init__(code.full_name)
        self.code, self.detail = code, detail


def refuse_if(wrong, code=Result.INVALID_VALUE, detail=""):
    """Raise a `DriverError` if `wrong`."""
    if wrong:
        raise DriverError(code, detail)


def check_flags(flags, known=0):
    """Refuse flags with bits that the driver does not know."""
    if flags & ~known:
        raise DriverError(Result.INVALID_VALUE, f"flags {flags:#x}: the driver knows {known:#x}")


def check_choice(value, *choices):
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        detail = f"{value} is not one of {', '.join(map(str, choices))}"
        raise DriverError(Result.INVALID_VALUE, detail)
