"""Six patients, and the names of their bugs."""

from cnn_course.chapters.backprop_by_hand.gradient_bugs import BUGS, PATIENTS
from cnn_course.engine.checks.exercise import Exercise, Wrong, avoids

_SIGNS = {
    "flipped filter": "A flipped filter would make the whole gradient of the images wrong, with every stride "
    "and padding. All gradients computed before it would be right.",
    "padding row skipped": "A skipped padding row would make only the top rows of the images' gradient "
    "wrong. With padding 0 everything would be right.",
    "stride ignored": "If the stride were ignored, the gradient of the images would be squeezed into a "
    "corner. With stride 1 it would be right.",
    "sum over the batch": "A sum instead of the mean would make every gradient too large by the same factor, "
    "from the logits on. With one image everything would be right.",
    "last image only": "If only the last image counted, the gradient of the filters would be wrong and that "
    "of the images right. With one image both would be right.",
    "tie sent twice": "If ties were sent twice, errors would appear from the convolution's output on, where "
    "an image is flat: several pixels of one window would get the whole gradient.",
    "pooled as an average": "With average pooling, every window would spread its gradient evenly over its "
    "pixels, in flat places and in others.",
    "gate left open": "With ReLU's gate left open, the convolution's output would have gradients where the "
    "right ones are 0, because ReLU had set the pixel to 0.",
}


def _named(attempt, patient):
    """Call the attempt on one patient; return the number of the name, or raise `Wrong`."""
    answer = attempt(patient)
    if answer is ...:
        return answer
    if not isinstance(answer, str):
        given = f"a value of type `{type(answer).__name__}`"
        raise Wrong("not a name", f"Give a name, a string, for patient {patient}; yours is {given}.")
    if answer not in BUGS:
        names = ", ".join(f"`{name}`" for name in BUGS)
        raise Wrong("unknown name", f"`{answer}` is not in the list. The names are: {names}.")
    if answer != PATIENTS[patient]:
        message = f"Patient {patient} has something else. {_SIGNS[answer]}"
        found = [letter for letter, bug in PATIENTS.items() if attempt(letter) == bug]
        known = [f"Right already: {', '.join(found)}."] if found else []
        raise Wrong(f"no {answer}", message, "Move the sliders to check that.", *known)
    return list(BUGS).index(answer)


name_the_bug = Exercise(
    "name_the_bug",
    reference=lambda patient: list(BUGS).index(PATIENTS[patient]),
    cases=lambda rng: [(patient,) for patient in PATIENTS],
    run=_named,
    properties=(avoids("PATIENTS", "gradient_bugs"),),
)
