"""Record the modelled times of the course's launchers: ``python -m cnn_course.chapters.capstone.record``.

Run it when the model or a kernel of `first_kernels` or `faster_kernels` changes.
"""

import cnn_numba  # noqa: F401  (before numba.cuda: this selects what kernels run on)

if __name__ == "__main__":
    from cnn_course.chapters.capstone import modelling
    from cnn_course.chapters.capstone.faster_kernels import SWAPS
    from cnn_course.chapters.capstone.first_launchers import first_launchers

    modelling.record([*first_launchers({}).items(), *SWAPS])
