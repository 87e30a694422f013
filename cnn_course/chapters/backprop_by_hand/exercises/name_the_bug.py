"""Six patients, and the names of their bugs."""

from cnn_course.chapters.backprop_by_hand.gradient_bugs import BUGS, PATIENTS
from cnn_course.engine.checks.exercise import Exercise, Wrong, avoids

_SIGNS = {
    "flipped filter": "A flipped filter would spoil the gradient of the images, all over, and with every "
    "stride and padding. All that comes before it on the way back would be right.",
    "padding row skipped": "A skipped padding row would spoil the uppermost rows of the images' gradient and "
    "no others, and nothing at all with padding 0.",
    "stride ignored": "With the stride ignored the gradient of the images would be pushed together in a "
    "corner, and be right with stride 1.",
    "sum over the batch": "A sum in place of the mean would make every gradient too large, by the same "
    "factor, from the logits on; with one image it would do no harm.",
    "last image only": "Were only the last image counted, the gradient of the filters would be wrong and "
    "that of the images right; with one image nothing would be wrong.",
    "tie sent twice": "Ties sent twice would show from the convolution's output on, where an image is flat: "
    "several pixels of one window get the whole gradient.",
    "pooled as an average": "Pooled as an average, every window would spread its gradient evenly over its "
    "pixels, in flat places and in others.",
    "gate left open": "With ReLU's gate open, the convolution's output would have gradients where the right "
    "ones are 0, because ReLU had cut the pixel off.",
}


def _named(attempt, patient):
    """Call the attempt on one patient; return the number of the name, or say what speaks against it."""
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
        raise Wrong(f"no {answer}", message, "Move the sliders and see whether that is so.", *known)
    return list(BUGS).index(answer)


name_the_bug = Exercise(
    "name_the_bug",
    reference=lambda patient: list(BUGS).index(PATIENTS[patient]),
    cases=lambda rng: [(patient,) for patient in PATIENTS],
    run=_named,
    properties=(avoids("PATIENTS", "gradient_bugs"),),
)
