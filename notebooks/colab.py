"""Install the course on Google Colab. The first cell of each notebook runs this there, and only there."""

import os
import subprocess
import sys
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1]
# The oldest driver for CUDA 13 (its release notes); with an older one the toolkit has to be 12.
CUDA_13_DRIVER = 580


def extra():
    """Return the extra of the package that fits the machine's driver; any will do for the emulated GPU.

    PyTorch is left as it is on the machine: the notebooks only compare with it, on the CPU.

    Returns
    -------
    {"cu13", "cu12"}
    """
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no GPU: the emulated one asks for a compiler only
        return "cu13"
    version = answer.stdout.split(".")[0].strip()
    return "cu13" if version.isdigit() and int(version) >= CUDA_13_DRIVER else "cu12"


def main():
    """Install both packages with the toolkit that fits, and make this process find it.

    Raises
    ------
    SystemExit
        With one line that says what failed.
    """
    found = extra()
    target = f"{COURSE}[{found},torch]"
    print(f"Installing the course ({found}) ...")
    # Both packages of the repository, so that pip looks for neither elsewhere.
    both = ["--editable", str(COURSE / "gpuless"), "--editable", target]
    command = [sys.executable, "-m", "pip", "install", "--quiet", *both]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        sys.exit(f"The course could not be installed: {reason}")
    # This process looked for packages when it started, before there was this one.
    if str(COURSE) not in sys.path:
        sys.path.insert(0, str(COURSE))
    os.chdir(COURSE / "notebooks")
    print("Done.")


if __name__ == "__main__":
    main()
