"""The course: what only its notebooks import.

`engine` serves all chapters, and `chapters` has a folder for each.
"""

import os

# Where the simulator runs kernels, a race is to lose what it loses on a GPU.
os.environ.setdefault("GPULESS_ORDER", "in step")


def progress():
    """Return what the reader's workbook has, as a picture and as text.

    It shows the network, the course, and the modelled times of the reader's training step, as far as there
    are any. Nothing in the workbook is run for it.
    """
    # Only here: a check needs neither the picture nor the network.
    from cnn_course.chapters.mnist_cnn.own_backend import PARTS
    from cnn_course.engine import history, workbook
    from cnn_course.engine.outline import NOTEBOOKS
    from cnn_course.engine.progress import Chapter, Progress

    chapters = [
        Chapter(
            notebook.number,
            notebook.title,
            {name: workbook.is_solved(notebook, name) for name in notebook.exercises},
        )
        for notebook in NOTEBOOKS
    ]
    own = {part.name for part in PARTS if workbook.has_source(part.topic, part.name)}
    return Progress(chapters, own, len(PARTS), history.entries())
