"""What only the notebooks import: exercise checks, the workbook, pictures and the benchmark ledger."""

from pathlib import Path

# A network that ``cnn-numba train`` trained with its default recipe, without the optimiser's state;
# `cnn_numba.train.checkpoint.load_model` reads it.
TRAINED_MNIST_CNN = Path(__file__).with_name("mnist_cnn.npz")


def progress():
    """Return what the reader's workbook has: the network and the course as a picture, and as text.

    Nothing in the workbook is run for it.
    """
    # Only here: they import every exercise, and every exercise imports this package.
    from cnn_numba.course import contents, own_backend, workbook
    from cnn_numba.course.pictures.progress import Chapter, Progress

    chapters = [
        Chapter(
            notebook.number,
            notebook.title,
            {name: workbook.is_solved(notebook, name) for name in notebook.exercises()},
        )
        for notebook in contents.NOTEBOOKS
    ]
    own = {part.name for part in own_backend.PARTS if workbook.has_source(part.topic, part.name)}
    return Progress(chapters, own, len(own_backend.PARTS))
