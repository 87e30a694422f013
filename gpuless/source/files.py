"""Source files, as Python and compilers call them."""

import os
import posixpath


def source_file(path: str) -> str:
    """Return a source file as Python knows it.

    Names that are no file, such as "<stdin>", lose the folder that a compiler gave them.

    >>> source_file("/home/me/<stdin>"), source_file("/home/me/it.py")
    ('<stdin>', '/home/me/it.py')
    """
    name = posixpath.basename(path)
    return name if name.startswith("<") else os.path.normpath(path)
