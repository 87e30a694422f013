"""Judge answers with the unpacked archive and NumPy, the two folders given, and without threads."""

import json
import os
import sys
import threading
import warnings


def no_thread(self):
    raise RuntimeError("can't start new thread")


threading.Thread.start = no_thread
sys.path[:0] = [*sys.argv[1:3], os.path.dirname(__file__)]
os.environ["CNN_NUMBA_WORKBOOK"] = sys.argv[1] + "/notebooks/workbook"
warnings.simplefilter("ignore")

from judging import judge  # noqa: E402

judge(json.load(sys.stdin))
