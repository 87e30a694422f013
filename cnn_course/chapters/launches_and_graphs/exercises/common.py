"""What several exercises of notebook 15 share."""

import dis

from cnn_course.engine.checks.uninitialised import code_of


def loads(function):
    """Return all names and numbers that a function uses, in order; None of what has no code."""
    code = code_of(function)
    if code is None:
        return None
    return [step.argval for step in dis.get_instructions(code) if step.opname.startswith(("LOAD_", "STORE_"))]
