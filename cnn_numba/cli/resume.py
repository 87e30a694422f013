"""The options that ``train --resume`` takes from a checkpoint, and the command that resumes training."""

import os
import shlex
import shutil
import sys
from pathlib import Path

from cnn_numba.arguments import shown
from cnn_numba.cli.shared import CHOICES, CliError, as_options
from cnn_numba.train.recipes import DEFAULT


def held_by(path, options, given):
    """Return the options of the training run in a checkpoint; CliError if given ones contradict them."""
    from cnn_numba.train.checkpoint import load_checkpoint

    try:
        checkpoint = load_checkpoint(path)
    except FileNotFoundError:
        raise CliError(f"nothing to resume from: there is no {path}") from None
    except (OSError, ValueError) as error:
        raise CliError(error) from None
    # Fields that files of older versions, or of a training run without Adam, lack.
    lacking = ("weight_decay", "label_smoothing", "augment", "beta1", "beta2")
    older = {"device": "auto", "precision": "float32", **{name: DEFAULT[name] for name in lacking}}
    recipe = {**older, **checkpoint.progress.get("recipe", {}), "model": checkpoint.model}
    missing = [name for name in options if name not in recipe]
    if missing:
        raise CliError(f"{path} has a model, but no training run to resume: it lacks {', '.join(missing)}")
    held = {name: recipe[name] for name in options}
    held["optimizer"] = str(held["optimizer"]).lower()
    for name, choice in CHOICES.items():
        if held[name] not in [known.value for known in choice]:
            raise CliError(
                f"{path} was trained with the {name} {shown(recipe[name])}, which is not known here"
            )
    # A run on the CPU stays there, for the same numbers. One on the GPU may go on elsewhere.
    held["device"] = "cpu" if held["device"] == "cpu" else "auto"
    free = {"epochs", "device"}
    contradicting = [name for name in options if name in given - free and options[name] != held[name]]
    if contradicting:
        before, now = (
            as_options({name: values[name] for name in contradicting}) for values in (held, options)
        )
        raise CliError(
            f"{path} was trained with {before}, not {now}: leave that out to go on with it, or train anew "
            "without --resume"
        )
    return held | {name: options[name] for name in given & free}


def own_name():
    """Return the name or path by which a shell finds this program: the name if its environment is active."""
    name, called = "cnn-numba", Path(sys.argv[0])
    if called.name != name or shutil.which(name):
        return name
    folder = Path.cwd()
    path = called.relative_to(folder) if called.is_relative_to(folder) else called
    return os.path.join(".", path) if path.parent == Path() else str(path)  # a bare name is searched in PATH


def command_to_resume(out, data_dir, workers):
    """Return the shortest command that resumes a training run: its checkpoint holds most options."""
    again = ["train", "--resume"]
    if out != Path("runs/mnist_cnn"):
        again += ["--out", str(out)]
    if data_dir is not None:
        again += ["--data-dir", str(data_dir)]
    here = os.environ.get("LOCAL_WORLD_SIZE")
    if not workers.many:
        return shlex.join([own_name(), *again])
    if here == str(workers.size):
        return shlex.join(["torchrun", "--nproc-per-node", here, "-m", "cnn_numba", *again])
    # torchrun does not say how it was started on the other machines.
    how = "(on each machine, with torchrun's options as before)"
    return f"torchrun ... -m cnn_numba {shlex.join(again)} {how}"
