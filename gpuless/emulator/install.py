"""Put the emulated GPU's driver in the place of NVIDIA's."""

from gpuless.emulator.run import settings
from gpuless.importing import after_import


def install():
    """Let this process have an emulated GPU, from when it first asks for one."""
    settings.read()
    after_import("cuda.bindings.driver", load_driver)
    after_import("cuda.core._utils.cuda_utils", _explain_errors)


def lack_of_compiler():
    """Load NVIDIA's compiler; return why that cannot be, "" if it can."""
    try:
        from cuda.bindings import nvjitlink, nvvm

        nvvm.version(), nvjitlink.version()
    except Exception as error:  # whatever the loading of a library may raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        return f"NVIDIA's compiler is not installed ({reason}): pip install 'gpuless[cu13]'"
    return ""


def load_driver(module=None):
    """Load the driver before anybody loads NVIDIA's; `after_import` gives the module that will."""
    from gpuless.emulator import driver

    driver.install()


def _explain_errors(module):
    """Let errors say what went wrong here, and not what it means for a GPU."""
    from gpuless.emulator.driver import last_detail

    class Explanations:
        known = module.DRIVER_CU_RESULT_EXPLANATIONS

        def get(self, code, default=None):
            return last_detail(code) or self.known.get(code, default)

    if not hasattr(module.DRIVER_CU_RESULT_EXPLANATIONS, "known"):
        module.DRIVER_CU_RESULT_EXPLANATIONS = Explanations()
