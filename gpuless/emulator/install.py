"""Replace NVIDIA's driver by the emulated GPU's."""

from gpuless.emulator.run import settings
from gpuless.importing import after_import


def install():
    """Give this process an emulated GPU; it starts at the first use of the driver."""
    settings.read()
    after_import("cuda.bindings.driver", load_driver)
    after_import("cuda.core._utils.cuda_utils", _explain_errors)


def lack_of_compiler():
    """Load NVIDIA's compiler; return why that fails, "" if it succeeds."""
    try:
        from cuda.bindings import nvjitlink, nvvm

        nvvm.version(), nvjitlink.version()
    except Exception as error:  # loading a library may raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return f"NVIDIA's compiler is not installed ({reason}): pip install 'gpuless[cu13]'"
    return ""


def load_driver(module=None):
    """Load the emulated driver before anyone loads NVIDIA's; `after_import` passes the imported module."""
    from gpuless.emulator import driver

    driver.install()


def _explain_errors(module):
    """Make errors say what went wrong in the emulated GPU, instead of CUDA's general explanations."""
    from gpuless.emulator.driver import last_detail

    class Explanations:
        known = module.DRIVER_CU_RESULT_EXPLANATIONS

        def get(self, code, default=None):
            return last_detail(code) or self.known.get(code, default)

    if not hasattr(module.DRIVER_CU_RESULT_EXPLANATIONS, "known"):
        module.DRIVER_CU_RESULT_EXPLANATIONS = Explanations()
