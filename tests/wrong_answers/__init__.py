"""Plausible wrong answers to the course's exercises, written as learners write them.

A module for each notebook. `wrong` marks a function as an answer to an exercise, and says which
mistake the check must name.
"""


def wrong(exercise, mistake):
    """Mark a function as a wrong answer.

    Parameters
    ----------
    exercise : str
        Name of the exercise.
    mistake : str
        The `Verdict.mistake` that the check must come to.
    """

    def mark(function):
        function.exercise, function.mistake = exercise, mistake
        return function

    return mark


def answers_in(module):
    """Return the module's wrong answers, in the order they are written."""
    return [function for function in vars(module).values() if hasattr(function, "mistake")]
