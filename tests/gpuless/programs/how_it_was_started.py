"""A program that shows how it was started, and ends as its arguments say."""

import atexit
import pickle
import sys
import threading  # noqa: F401


class Thing:
    pass


def inner():
    raise KeyError("why")


print(sys.argv, sys.path[0], __name__, globals().get("__file__"))
print(sys.modules["__main__"].__dict__ is globals())
atexit.register(lambda: print(len(pickle.dumps(Thing()))))
if "exit" in sys.argv:
    sys.exit(7)
if "interrupt" in sys.argv:
    raise KeyboardInterrupt
if "raise" in sys.argv:
    inner()
