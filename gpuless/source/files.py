"""The names of source files in Python and in compilers."""

import os
import posixpath


def source_file(path: str) -> str:
    """Return Python's name of a source file.

    Names that aren't files, such as "<stdin>", lose the folder that a compiler put before them.

    >>> source_file("/home/me/<stdin>"), source_file("/home/me/it.py")
    ('<stdin>', '/home/me/it.py')
    """
    name = posixpath.basename(path)
    return name if name.startswith("<") else os.path.normpath(path)
