"""The command line: ``cnn-numba train | predict | sample | export | bench | inspect | doctor``.

A thin layer: it turns arguments into calls, and errors into one line. Whatever takes time to import is
imported by the command that needs it.
"""

import contextlib
import errno
import json
import math
import os
import shlex
import shutil
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image

from cnn_numba.arguments import LARGEST, MOST_ELEMENTS, shown
from cnn_numba.data import DATASETS, DataError, classes, image_shape, load, normalisation
from cnn_numba.data.digits import as_text, find_digit, prepare_photo
from cnn_numba.data.text import TEXT, Windows
from cnn_numba.device import UnusableGpu
from cnn_numba.extras import MissingPackage
from cnn_numba.ops.gather.cpu import gather_batch
from gpuless.nvidia import installed


def _choice(name, *values):
    """Return what an option may be."""
    return Enum(name, {value: value for value in values}, type=str)


# Where a network can be trained; `_backend` tells which of them there is.
Device = _choice("Device", "auto", "cpu", "gpu")
DatasetName = _choice("DatasetName", *DATASETS, TEXT)
ModelName = _choice(
    "ModelName",
    *("mnist_cnn", "mnist_cnn_deep", "cifar_convnet", "cifar_convnet_bn", "mnist_rows", "text_transformer"),
)
OptimizerName = _choice("OptimizerName", "adam", "sgd")
ScheduleName = _choice("ScheduleName", "one-cycle", "cosine", "constant")
Precision = _choice("Precision", "float32", "tf32", "float16", "bfloat16")
AugmentName = _choice("AugmentName", "none", "crop", "crop-flip")

# Typer brings its own copy of click, or in older versions click itself; this is the class of either.
_UsageError = typer.BadParameter.__bases__[0]

# The choices that a checkpoint holds.
_CHOICES = {
    "model": ModelName,
    "dataset": DatasetName,
    "optimizer": OptimizerName,
    "schedule": ScheduleName,
    "precision": Precision,
    "augment": AugmentName,
}

_OPTIONS = {"rich_markup_mode": None, "context_settings": {"help_option_names": ["-h", "--help"]}}
app = typer.Typer(help="Train, use, measure and check the course's networks.", **_OPTIONS)
bench = typer.Typer(
    help="Measure operations, an epoch, the accuracy, start-up or the simulator; draw what was measured.",
    short_help="Measure, and draw what was measured.",
    **_OPTIONS,
)
app.add_typer(bench, name="bench")


class CliError(Exception):
    """Why a command ends early, for the user to read, if there is something to say, and the exit code.

    `at_once` ends the process without what Python does at an end: threads may wait for a lost connection.
    """

    def __init__(self, message, status=1, at_once=False):
        super().__init__(message)
        self.status, self.at_once = status, at_once


def main(arguments=None):
    """Run the command line and exit: 0 done, 1 failed, 2 wrong arguments, 130 interrupted.

    Parameters
    ----------
    arguments : list of str, optional
        Without it those of the process.

    Examples
    --------
    >>> main(["train", "--epochs", "0"])
    Traceback (most recent call last):
        ...
    SystemExit: 2
    """
    _open_what_is_closed()
    try:
        status = _run(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in _NOT_WRITTEN:
            raise
        status = _not_written(error)
    try:
        sys.stderr.flush()
    except OSError:
        _silence(sys.stderr)
    sys.exit(status if isinstance(status, int) else 0)


def _run(arguments):
    """Run the command line; return what it returns, or print what is wrong and return the exit code."""
    try:
        return app(arguments or ["--help"], prog_name="cnn-numba", standalone_mode=False)
    except _UsageError as error:
        if not _repeats_another():
            _complain(_wrong_argument(error))
        return 2
    except CliError as error:
        if str(error):
            _complain(error)
        if error.at_once:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            os._exit(error.status)
        return error.status
    except (DataError, MissingPackage, UnusableGpu) as error:
        _complain(error)
        return 1
    except MemoryError as error:
        _complain(f"not enough memory: {error}")
        return 1
    except (typer.Abort, KeyboardInterrupt):
        return 130


# What a full disk answers, or a pipe that nobody reads any more.
_NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)


def _open_what_is_closed():
    """Open closed standard streams on nothing: the next file opened would get what is printed."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))


def _not_written(error):
    """Say what could not be written, unless the reader has gone; return the exit code."""
    if error.filename is not None:
        _complain(error)
        return 1
    if error.errno != errno.EPIPE:
        _complain(f"not all could be printed: {error.strerror}")
    _silence(sys.stdout)
    return 1


def _silence(stream):
    """Let what could not be written go nowhere: Python tries once more at its end, and prints a traceback."""
    with contextlib.suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def _repeats_another():
    """Return whether another process on this machine, started by the same torchrun, says the same."""
    return "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("LOCAL_RANK", "0") != "0"


def _complain(message):
    with contextlib.suppress(OSError):
        print(f"cnn-numba: {' '.join(str(message).split())}", file=sys.stderr)


def _wrong_argument(error):
    """Return what is wrong with an argument, and its value.

    Newer versions of Typer pass on Pydantic's words, in which every value is called "Input".
    """
    message = error.format_message().replace(": Value error, ", ": ", 1)
    for detail in getattr(error.__cause__, "errors", list)():
        message = message.replace(": Input should", f": {shown(detail['input'])} should", 1)
    return message


def _version(wanted):
    if wanted:
        print("cnn-numba", installed("cnn-numba"))
        raise typer.Exit


@app.callback()
def _program(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
):
    pass  # the help is that of `app`


def _positive(value):
    if value is not None and not 0 < value <= LARGEST:
        raise typer.BadParameter(f"{value} is not a positive number{_too_large(value)}.")
    return value


def _not_negative(value):
    if not 0 <= value <= LARGEST:
        raise typer.BadParameter(f"{value} is not a number of at least 0{_too_large(value)}.")
    return value


def _too_large(value):
    return f" and at most {LARGEST:g}" if LARGEST < value < math.inf else ""


def _countable(value):
    if value is not None and value > MOST_ELEMENTS:
        raise typer.BadParameter(f"{value} is more than {MOST_ELEMENTS}.")
    return value


def _backend(device, without_gpu, timed=False):
    """Return the backend to compute in; `without_gpu` says what is wrong with the GPU where there is none."""
    from cnn_numba.device import NoGpu, choose

    try:
        return choose(device.value, timed)
    except NoGpu as error:
        raise typer.BadParameter(f"gpu: {without_gpu.format(error)}.", param_hint="'--device'") from None


def _count(what):
    """Return an option for a number from 1 on."""
    return typer.Option(min=1, metavar="N", help=what)


# --- train -------------------------------------------------------------------------------------------------


@app.command()
def train(
    context: typer.Context,
    model: Annotated[ModelName, typer.Option(help="The network.")] = "mnist_cnn",
    dataset: Annotated[
        DatasetName | None,
        typer.Option(
            help="The data; else cifar10 for colour networks, course-text for text_transformer, and mnist or "
            "what --data-dir is known to hold.",
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Where the original files are (a torchvision root); or a text of your own."
        ),
    ] = None,
    epochs: Annotated[
        int, typer.Option(min=1, metavar="N", callback=_countable, help="Passes over the training set.")
    ] = 3,
    batch_size: Annotated[int, _count("Images per step.")] = 64,
    optimizer: Annotated[OptimizerName, typer.Option(help="Adam, or SGD with momentum 0.9.")] = "adam",
    lr: Annotated[
        float, typer.Option(metavar="RATE", callback=_positive, help="The (highest) learning rate.")
    ] = 3e-3,
    schedule: Annotated[ScheduleName, typer.Option(help="How the learning rate moves.")] = "one-cycle",
    weight_decay: Annotated[
        float, typer.Option(metavar="SHARE", callback=_not_negative, help="How weights are pulled to 0.")
    ] = 0.0,
    augment: Annotated[
        AugmentName,
        typer.Option(help="Change training images by chance: moved by up to an eighth, or mirrored too."),
    ] = "none",
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Same seed, machine and threads: same numbers.")
    ] = 0,
    device: Annotated[Device, typer.Option(help="Where to train; auto takes the best there is.")] = "auto",
    precision: Annotated[
        Precision,
        typer.Option(help="What the operands of products are rounded to; float16 comes with loss scaling."),
    ] = "float32",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            help="For the results; else runs/MODEL, or runs/MODEL-DATASET with other data than the model's "
            "own.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on where the run in --out stopped, with its options; with a constant schedule for more "
            "--epochs.",
        ),
    ] = False,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Write what each worker did when, in three steps, as JSON; on the GPU they take longer so.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            callback=_positive,
            help="Give another worker up that gives no sign of life for so long.",
        ),
    ] = 30.0,
):
    """Train a network; write its checkpoint, history and curves.

    The files of an earlier run in the same folder are kept, in a folder earlier-1, earlier-2, ... there.
    Under torchrun each worker takes its share of every batch.

    \b
    Examples:
      cnn-numba train
      cnn-numba train --model mnist_cnn_deep --epochs 5 --lr 1e-3 --schedule constant
      cnn-numba train --model cifar_convnet --optimizer sgd --lr 0.02 --epochs 10
      cnn-numba train --model cifar_convnet_bn --dataset made-pictures --augment crop-flip --epochs 10
      cnn-numba train --model mnist_rows
      cnn-numba train --dataset fashion-mnist
      cnn-numba train --model text_transformer --epochs 5
      cnn-numba train --lr 1e-3 --out runs/slow
      cnn-numba train --precision float16 --out runs/half
      cnn-numba train --resume
      cnn-numba train --resume --out runs/slow
      torchrun --nproc-per-node 2 -m cnn_numba train
    """
    from cnn_numba.train.parallel import WorkersError, join

    options = {
        "model": model,
        "dataset": dataset,
        "epochs": epochs,
        "batch_size": batch_size,
        "optimizer": optimizer,
        "lr": lr,
        "schedule": schedule,
        "weight_decay": weight_decay,
        "augment": augment,
        "seed": seed,
        "device": device,
        "precision": precision,
    }
    try:
        with join(timeout) as workers:
            # Here, as some of them decide what the workers speak of next. Their devices are compared later.
            workers.insist_equal(
                {"resume": resume} | {name: value for name, value in options.items() if name != "device"}
            )
            if resume:
                if out is None:
                    network = _network(model.value, 1, "cpu", seed)
                    out = _default_folder(network, load(_dataset_for(network, dataset), data_dir))
                given = {name for name in options if context.get_parameter_source(name).name == "COMMANDLINE"}
                # The others need not have the file.
                options = _chosen(
                    workers.from_first(lambda: _held_by(out / "checkpoint.npz", options, given))
                )
            _train(options, data_dir, out, resume, workers, timeline)
    except WorkersError as error:
        raise CliError(error, at_once=True) from None


def _chosen(options):
    """Return options as `train` has them, from their values."""
    choices = {**_CHOICES, "device": Device}
    return {name: choices[name](value) if name in choices else value for name, value in options.items()}


def _train(options, data_dir, out, resume, workers, timeline):
    """Train with the options of `train`, given or held by a checkpoint."""
    in_simulator = "the kernels would run in the simulator, where an epoch takes weeks"
    backend = _backend(options["device"], in_simulator + " ({}); use --device cpu or auto")
    from cnn_numba.device import place_of
    from cnn_numba.train.loop import Interrupted, TrainingDiverged, fit
    from cnn_numba.train.parallel import WorkersError

    log = _line_printer() if workers.first else lambda line: None
    mine = workers.count(options["batch_size"])
    if options["batch_size"] < workers.size:
        raise typer.BadParameter(
            f"{workers.size} workers cannot share {options['batch_size']} "
            f"image{'s' * (options['batch_size'] != 1)} per step.",
            param_hint="'--batch-size'",
        )
    network = _network(*(options["model"].value, mine, backend, options["seed"], options["precision"].value))
    data = load(_dataset_for(network, options["dataset"]), data_dir, log)
    out = out or _default_folder(network, data)
    samples = "windows" if isinstance(data.train_images, Windows) else "images"
    if samples == "windows" and options["augment"].value != "none":
        raise typer.BadParameter("a text has no images to move.", param_hint="'--augment'")
    log(
        f"{network.name}: {network.parameters.size:,} parameters, {len(data.train_images):,} {samples} of "
        f"{data.name}, {place_of(backend)}, {network.precision}"
        + (f", {workers.size} workers" if workers.many else "")
    )
    try:
        history = fit(
            network,
            data,
            _optimizer(network, options["optimizer"].value, options["lr"], options["weight_decay"]),
            epochs=options["epochs"],
            schedule=options["schedule"].value,
            augment=options["augment"].value,
            seed=options["seed"],
            out=out,
            resume=resume,
            # A bar in a log file is a long line of control characters; the line per epoch says enough.
            progress=sys.stderr.isatty(),
            log=log,
            **({"workers": workers} if workers.many or workers.run else {}),
            **({"timeline": timeline} if timeline else {}),
        )
    except WorkersError as error:
        again = (
            f"; go on with: {_command_to_resume(out, data_dir, workers)}"
            if "last checkpoint is" in str(error)
            else ""
        )
        raise WorkersError(f"{error}{again}", error.reason) from None
    except Interrupted as error:
        how = _command_to_resume(out, data_dir, workers)
        # At once, as torch may abort a worker that ends while a thread of its own still waits.
        raise CliError(f"{error}: {how}" if workers.first else "", 130, at_once=workers.many) from None
    except (TrainingDiverged, OSError) as error:
        raise CliError(error if workers.first else "") from None
    except ValueError as error:
        # Without --resume a ValueError is a fault of ours, and its traceback is wanted.
        if not resume:
            raise
        raise CliError(error) from None
    if not workers.first:
        return
    print(f"test accuracy {history[-1]['test_accuracy']:.2%} after epoch {len(history)}")
    print(f"curves: {out / 'curves.png'}; history: {out / 'history.json'}; network: {out / 'checkpoint.npz'}")


def _held_by(path, options, given):
    """Return the options of the training in a checkpoint, refusing those given that contradict them."""
    from cnn_numba.train.checkpoint import load_checkpoint

    try:
        checkpoint = load_checkpoint(path)
    except FileNotFoundError:
        raise CliError(f"nothing to resume from: there is no {path}") from None
    except (OSError, ValueError) as error:
        raise CliError(error) from None
    # What older files do not tell.
    older = {"device": "auto", "precision": "float32", "weight_decay": 0.0, "augment": "none"}
    recipe = {**older, **checkpoint.progress.get("recipe", {}), "model": checkpoint.model}
    missing = [name for name in options if name not in recipe]
    if missing:
        raise CliError(f"{path}: this is a model, but no training to resume: it lacks {', '.join(missing)}")
    held = {name: recipe[name] for name in options}
    held["optimizer"] = str(held["optimizer"]).lower()
    for name, choice in _CHOICES.items():
        if held[name] not in [known.value for known in choice]:
            raise CliError(
                f"{path} was trained with the {name} {shown(recipe[name])}, which is not known here"
            )
        held[name] = choice(held[name])
    # A training on the CPU stays there, to the same numbers. One on the GPU goes on where it can.
    held["device"] = Device("cpu" if held["device"] == "cpu" else "auto")
    free = {"epochs", "device"}
    contradicting = [name for name in options if name in given - free and options[name] != held[name]]
    if contradicting:
        before, now = (
            " ".join(_as_option(name, values[name]) for name in contradicting) for values in (held, options)
        )
        raise CliError(
            f"{path} was trained with {before}, not {now}: leave that out to go on with it, or train anew "
            "without --resume"
        )
    return held | {name: options[name] for name in given & free}


def _as_option(name, value):
    return f"--{name.replace('_', '-')} {value.value if isinstance(value, Enum) else value}"


def _own_name():
    """Return how a shell finds this program: by its name only where an environment is active."""
    name, called = "cnn-numba", Path(sys.argv[0])
    if called.name != name or shutil.which(name):
        return name
    folder = Path.cwd()
    path = called.relative_to(folder) if called.is_relative_to(folder) else called
    return os.path.join(".", path) if path.parent == Path() else str(path)  # a bare name is searched in PATH


def _command_to_resume(out, data_dir, workers):
    """Return the shortest command that goes on with a training: its checkpoint holds nearly all of it."""
    options = []
    if out != Path("runs/mnist_cnn"):
        options += ["--out", str(out)]
    if data_dir is not None:
        options += ["--data-dir", str(data_dir)]
    again = ["train", "--resume", *options]
    here = os.environ.get("LOCAL_WORLD_SIZE")
    if not workers.many:
        return shlex.join([_own_name(), *again])
    if here == str(workers.size):
        return shlex.join(["torchrun", "--nproc-per-node", here, "-m", "cnn_numba", *again])
    # How torchrun was told of the other machines, it does not tell.
    how = "(on each machine, with torchrun's options as before)"
    return f"torchrun ... -m cnn_numba {shlex.join(again)} {how}"


def _network(name, batch_size, backend, seed, precision="float32"):
    """Build a network; a batch beyond the memory, or a precision it does not know, is a wrong argument."""
    from cnn_numba.nn.layers import UnsupportedPrecision
    from cnn_numba.nn.models import MODELS

    try:
        return MODELS[name](batch_size=batch_size, device=backend, seed=seed, precision=precision)
    except UnsupportedPrecision as error:
        raise typer.BadParameter(f"{error}.", param_hint="'--precision'") from None
    except (MemoryError, ValueError):  # NumPy's ValueError: more than any machine has
        raise typer.BadParameter(
            f"the memory does not hold {batch_size} images per step.", param_hint="'--batch-size'"
        ) from None


def _usual_dataset(network):
    shapes = {image_shape(name): name for name in (TEXT, "cifar10", "mnist")}
    return shapes[network.input_shape]


def _default_folder(network, data):
    suffix = "" if data.name == _usual_dataset(network) else f"-{data.name}"
    return Path("runs") / f"{network.name}{suffix}"


def _dataset_for(network, dataset):
    """Return the name of the data set to train on; one that does not fit the network is a wrong argument.

    None leaves it to the files which of the two MNISTs they are.
    """
    name = dataset.value if dataset else _usual_dataset(network)
    if network.input_shape != image_shape(name):
        raise typer.BadParameter(
            f"{network.name} takes samples of shape {network.input_shape}, but those of {name} have "
            f"{image_shape(name)}.",
            param_hint="'--dataset'",
        )
    scores, kinds = network.shapes[-1][-1], len(classes(name))
    if name != TEXT and scores < kinds:
        raise typer.BadParameter(
            f"{network.name} tells {scores} kinds apart, but {name} has {kinds}.", param_hint="'--dataset'"
        )
    return None if dataset is None and name == "mnist" else name


def _optimizer(network, name, lr, weight_decay):
    from cnn_numba.train.optim import OPTIMIZERS

    momentum = {"momentum": 0.9} if name == "sgd" else {}
    return OPTIMIZERS[name](network, lr=lr, weight_decay=weight_decay, **momentum)


def _line_printer():
    """Return a function that prints a line, above the progress bar if there is one; warnings to stderr.

    A line that cannot be written does not stop the training: its files say the same, and `main` reports it.
    """
    from tqdm import tqdm

    def log(line):
        with contextlib.suppress(OSError):
            if line.startswith("warning: "):
                tqdm.write(f"cnn-numba: {line}", file=sys.stderr)
            else:
                tqdm.write(line)

    return log


# --- predict -----------------------------------------------------------------------------------------------

# Of 3,600 photographs as tests/data/photos.py makes them 97.7% are read right. With this limit and the doubts
# of `find_digit` 0.9% of all are wrong and called sure, and 3.3% right and called not sure; with 0.5 these
# are 2.1% and 1.3%, with 0.95 0.5% and 3.8%.
_SURE = 0.9


def _is_meant(context, checkpoint):
    """Return whether a checkpoint was named, or is there; else the course's own network stands in."""
    return context.get_parameter_source("checkpoint").name == "COMMANDLINE" or checkpoint.exists()


def _trained(context, checkpoint):
    """Return the checkpoint to read: where none is named and none was trained, the course's own."""
    if _is_meant(context, checkpoint):
        return checkpoint
    from cnn_numba.pretrained import MNIST_CNN

    _complain(
        f"there is no {checkpoint} here, so the network that comes with the package is taken; "
        "train your own with: cnn-numba train"
    )
    return MNIST_CNN


@app.command(short_help="Say which digit a picture shows.")
def predict(
    context: typer.Context,
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGE", exists=True, dir_okay=False, help="Pictures of one digit each."),
    ],
    checkpoint: Annotated[Path, typer.Option(help="The trained network, as train wrote it.")] = Path(
        "runs/mnist_cnn/checkpoint.npz"
    ),
    show: Annotated[bool, typer.Option("--show", help="Draw what the network gets to see.")] = False,
):
    """Say which digit a picture shows: the three likeliest, with their probabilities.

    Any size (above 25 megapixels JPEG only) and any mode; dark ink on light paper or the other way round, or
    of another colour, in even light or not. The digit must stand alone: a table, a frame or a ruled line may
    be in the picture, but not touch it.
    Where the answer is not to be relied upon, the line ends in why: "not sure: ...".
    Before you have trained a network, the one that comes with the package answers.

    \b
    Examples:
      cnn-numba predict seven.png --show
      cnn-numba predict scans/*.jpg --checkpoint runs/mnist_cnn_deep/checkpoint.npz
    """
    network, dataset, mean, std = _load_network(_trained(context, checkpoint))
    failed = 0
    for path in images:
        try:
            if dataset == "mnist":
                picture, doubts = find_digit(path)
            else:
                picture, doubts = prepare_photo(path, network.input_shape), []
        except (OSError, ValueError, RuntimeError, SyntaxError, Image.DecompressionBombError) as error:
            # All of these come out of Pillow for damaged files; the others may be fine.
            _complain(f"{path}: {error}")
            failed += 1
            continue
        x = gather_batch(picture[np.newaxis], np.zeros(1, np.int64), mean, std)
        probabilities = network.predict(x)[0]
        print(f"{path}: {_likeliest(probabilities, dataset)}{_not_sure(probabilities, doubts)}")
        if show:
            print(as_text(picture, sys.stdout.encoding or "ascii"))
    raise typer.Exit(1 if failed else 0)


def _load_network(checkpoint):
    """Return the trained network, the data set whose pictures it knows, and their mean and std."""
    from cnn_numba.train.checkpoint import load_checkpoint, load_model

    try:
        recipe = load_checkpoint(checkpoint).progress.get("recipe", {})
        dataset = recipe.get("dataset")
        network = load_model(checkpoint, batch_size=1)
    except FileNotFoundError:
        raise CliError(
            f"there is no {checkpoint}; train a network with: cnn-numba train, or name one by --checkpoint"
        ) from None
    except (OSError, ValueError) as error:
        raise CliError(error) from None
    known = dataset if dataset in DATASETS else "mnist"
    mean, std = (
        recipe.get(key, usual) for key, usual in zip(("mean", "std"), normalisation(known), strict=True)
    )
    if dataset in DATASETS and network.input_shape == image_shape(dataset):
        return network, dataset, mean, std
    # Trained through the Python API on something else: pictures of MNIST's shape are taken for digits.
    if network.input_shape != image_shape("mnist"):
        raise CliError(
            f"{checkpoint} was trained on {dataset or 'an unknown data set'}; predict knows the pictures of "
            f"{', '.join(DATASETS)} only"
        )
    return network, "mnist", mean, std


def _likeliest(probabilities, dataset, count=3):
    """Return the likeliest classes of one picture as text."""
    names = classes(dataset)
    best = np.argsort(-probabilities, kind="stable")[:count]
    return ", ".join(f"{names[label]} ({probabilities[label]:.1%})" for label in best)


def _not_sure(probabilities, doubts):
    """Return why the answer is not to be relied upon; nothing if it is."""
    if probabilities.max() < _SURE:
        doubts = [*doubts, f"no answer reaches {_SURE:.0%}"]
    return f"; not sure: {', and '.join(doubts)}" if doubts else ""


# --- sample ------------------------------------------------------------------------------------------------


def _writer_of_the_course(checkpoint):
    """Return the network that comes with the package."""
    from cnn_numba.pretrained import text_transformer

    _complain(
        f"there is no {checkpoint} here, so the network that comes with the package writes; "
        "train your own with: cnn-numba train --model text_transformer"
    )
    return text_transformer()


@app.command(short_help="Let a trained network write text.")
def sample(
    context: typer.Context,
    prompt: Annotated[str, typer.Argument(help="How the text begins.")] = "A kernel",
    checkpoint: Annotated[Path, typer.Option(help="The trained network, as train wrote it.")] = Path(
        "runs/text_transformer/checkpoint.npz"
    ),
    length: Annotated[int, _count("Characters to write.")] = 400,
    temperature: Annotated[
        float, typer.Option(min=0.0, metavar="T", help="Below 1 likelier characters, at 0 the likeliest.")
    ] = 0.7,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Same seed: same text.")] = 0,
):
    """Let a trained text_transformer write on, a character at a time.

    Before you have trained one, the one that comes with the package writes.

    \b
    Examples:
      cnn-numba sample
      cnn-numba sample "The GPU" --length 1000 --temperature 0.5
    """
    from cnn_numba.nn.writing import write
    from cnn_numba.train.checkpoint import load_model

    try:
        if _is_meant(context, checkpoint):
            network = load_model(checkpoint, batch_size=1)
        else:
            network = _writer_of_the_course(checkpoint)
        text = write(network, prompt, length, temperature, seed)
    except FileNotFoundError:
        raise CliError(
            f"there is no {checkpoint}; train a network with: cnn-numba train --model text_transformer"
        ) from None
    except (OSError, ValueError) as error:
        raise CliError(error) from None
    print(text)


# --- export ------------------------------------------------------------------------------------------------


@app.command(short_help="Write a trained network as an ONNX file, for other programs.")
def export(
    context: typer.Context,
    checkpoint: Annotated[Path, typer.Option(help="The trained network, as train wrote it.")] = Path(
        "runs/mnist_cnn/checkpoint.npz"
    ),
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="The file to write; else the checkpoint's name with the ending .onnx, or mnist_cnn.onnx for "
            "the network that comes with the package.",
            show_default=False,
        ),
    ] = None,
    pixels: Annotated[
        bool,
        typer.Option("--pixels", help="Let it take raw pixels, and normalise them as the training did."),
    ] = False,
):
    """Write a trained network as an ONNX file, which ONNX Runtime, TensorRT and others run.

    Its input is x, for any number of samples, its output logits.

    \b
    Examples:
      cnn-numba export
      cnn-numba export --pixels --out digits.onnx
      cnn-numba export --checkpoint runs/cifar_convnet_bn/checkpoint.npz
    """
    from cnn_numba.nn.onnx import to_onnx
    from cnn_numba.train.checkpoint import load_checkpoint, load_model, written_whole

    asked, checkpoint = checkpoint, _trained(context, checkpoint)
    if out is None:
        out = checkpoint.with_suffix(".onnx") if checkpoint == asked else Path("mnist_cnn.onnx")
    if out.resolve() == checkpoint.resolve():
        raise typer.BadParameter(f"{out} is the checkpoint.", param_hint="'--out'")
    if checkpoint.is_dir():
        raise CliError(f"{checkpoint} is a folder; give the checkpoint in it")
    try:
        network = load_model(checkpoint, batch_size=1)
        recipe = load_checkpoint(checkpoint).progress.get("recipe", {})
    except FileNotFoundError:
        raise CliError(f"there is no {checkpoint}; train a network with: cnn-numba train") from None
    except (OSError, ValueError) as error:
        raise CliError(error) from None
    if checkpoint != asked:  # the package's own, of which no training tells
        recipe = dict(zip(("mean", "std"), normalisation("mnist"), strict=True))
    if pixels and not {"mean", "std"} <= recipe.keys():
        raise CliError(f"{checkpoint} does not tell how its pixels were normalised: leave out --pixels")
    try:
        proto = to_onnx(network, (recipe["mean"], recipe["std"]) if pixels else None)
        with written_whole(out) as file:
            file.write(proto.SerializeToString())
    except FileNotFoundError:  # of a folder that takes no files, such as /proc
        raise CliError(f"{out} cannot be written there") from None
    except (OSError, ValueError) as error:
        raise CliError(error) from None
    shape = ", ".join(map(str, ("N", *network.input_shape)))
    dtype = np.dtype(np.uint8 if pixels else network.layers[0].input_dtype or np.float32)
    print(f"{out}: {network.name}, {len(proto.graph.node)} nodes; it takes x, {dtype}, of shape ({shape})")


# --- bench -------------------------------------------------------------------------------------------------

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", dir_okay=False, help="Write the figures here as well."),
]


MeasuredDevice = _choice("MeasuredDevice", "cpu", "gpu")
DeviceOption = Annotated[MeasuredDevice, typer.Option("--device", help="Where to measure.")]


def _record(path, function, **options):
    """Run a benchmark, which prints what it finds; return the figures, and write them as JSON."""
    if path is not None and not path.resolve().parent.is_dir():
        # Before the minutes of measuring, not after them.
        raise typer.BadParameter(f"{path.parent} is not a folder.", param_hint="'--json'")
    figures = function(**options)
    if path is not None:
        from cnn_numba.train.checkpoint import written_whole

        with written_whole(path) as file:
            file.write((json.dumps(figures, indent=2) + "\n").encode())
    return figures


def _measured(device):
    """Return the backend to measure; to ask for the GPU where there is none is a wrong argument."""
    return _backend(device, "there is none to measure ({})", timed=True)


@bench.command("ops", short_help="Time every kernel on the GPU, beside PyTorch and the roofline.")
def bench_ops(
    json_file: JsonFile = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", file_okay=False, help="Draw ladders and roofline into this folder."),
    ] = None,
):
    """Time every kernel of convolution, dense layer and pooling on the GPU, beside PyTorch and the roofline.

    Without a GPU nothing is timed: the command prints what the compiler makes of each kernel instead.

    \b
    Examples:
      cnn-numba bench ops
      cnn-numba bench ops --json ops.json --plot plots
    """
    from benchmarks import ops as benchmarks
    from cnn_numba.device import SELECTION, hardware

    if plot is not None and not hardware():
        raise typer.BadParameter(
            f"without a GPU nothing is timed, so there is nothing to draw ({SELECTION.reason}).",
            param_hint="'--plot'",
        )
    figures = _record(json_file, benchmarks.bench_ops)
    if plot is not None:
        from benchmarks import plots as bench_plots

        _tell(bench_plots.write(figures, plot, "ops" if json_file is None else json_file.stem))


def _tell(paths):
    for path in paths:
        print(path)


@bench.command("plot", short_help="Draw records of ops and epoch.")
def bench_plot(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORD", exists=True, dir_okay=False, help="What --json has written."),
    ],
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER", file_okay=False, help="For the pictures; else here.", show_default=False
        ),
    ] = Path("."),
):
    """Draw records of ops and epoch: ladders, roofline and bars, as PNGs named after the records.

    \b
    Examples:
      cnn-numba bench plot ops.json epoch.json --out plots
    """
    from benchmarks.plots import plot_records

    try:
        _tell(plot_records(records, out))
    except ValueError as error:
        raise CliError(error) from None


@bench.command("epoch", short_help="Time our epoch and PyTorch's.")
def bench_epoch(
    model: Annotated[ModelName, typer.Option(help="The network.")] = "mnist_cnn",
    batch_size: Annotated[
        list[int] | None,
        _count("Images per step; may be given more than once; else 64 and 256, on the GPU 1024 as well."),
    ] = None,
    repeats: Annotated[int, _count("Epochs of each, taken alternately.")] = 3,
    images: Annotated[int | None, _count("On the CPU: images of an epoch; else all.")] = None,
    device: DeviceOption = "cpu",
    json_file: JsonFile = None,
):
    """Time our epoch and PyTorch's, alternately: the medians and their ratios.

    On the GPU ours runs with and without the CUDA graph, and PyTorch as it comes, compiled, and with a graph.

    \b
    Examples:
      cnn-numba bench epoch
      cnn-numba bench epoch --batch-size 64 --repeats 5 --json epoch.json
      cnn-numba bench epoch --model cifar_convnet_bn --batch-size 64 --images 2000
      cnn-numba bench epoch --device gpu
    """
    from benchmarks import epoch, epoch_gpu

    benchmarks = {"cpu": epoch, "gpu": epoch_gpu}[_measured(device)]
    given = {"batch_sizes": tuple(batch_size)} if batch_size else {}
    if images is not None and device.value == "cpu":
        given["images"] = images
    _record(json_file, benchmarks.bench_epoch, model=model.value, repeats=repeats, **given)


@bench.command("accuracy", short_help="Train from several seeds; print each accuracy.")
def bench_accuracy(
    model: Annotated[ModelName, typer.Option(help="The network.")] = "mnist_cnn",
    seeds: Annotated[int, _count("How many trainings, with seeds 0, 1, ...")] = 3,
    plain: Annotated[
        bool, typer.Option("--plain", help="Constant 1e-3 for 5 epochs instead of the default recipe.")
    ] = False,
    pytorch: Annotated[bool, typer.Option("--pytorch", help="Train PyTorch's network as well.")] = False,
    device: DeviceOption = "cpu",
    json_file: JsonFile = None,
):
    """Train from several seeds; print each accuracy, epoch by epoch, and the means.

    \b
    Examples:
      cnn-numba bench accuracy
      cnn-numba bench accuracy --device gpu
      cnn-numba bench accuracy --model mnist_cnn_deep --plain --pytorch --json accuracy.json
    """
    from benchmarks import accuracy as benchmarks

    options = {"seeds": seeds, "plain": plain, "pytorch": pytorch, "device": _measured(device)}
    _record(json_file, benchmarks.bench_accuracy, model=model.value, **options)


@bench.command("startup", short_help="Time the start of training, the very first and later.")
def bench_startup(
    repeats: Annotated[int, _count("Starts with everything cached.")] = 3,
    json_file: JsonFile = None,
):
    """Time from the start of `cnn-numba train` to its first step, the very first time and later.

    \b
    Examples:
      cnn-numba bench startup
      cnn-numba bench startup --repeats 5 --json startup.json
    """
    from benchmarks import startup as benchmarks

    _record(json_file, benchmarks.bench_startup, repeats=repeats)


@bench.command("workers", short_help="Time a step with one worker and with two.")
def bench_workers(
    rounds: Annotated[int, _count("How often each way is started, in turn.")] = 5,
    steps: Annotated[int, typer.Option(min=20, metavar="N", help="Of each start; 10 warm up.")] = 40,
    json_file: JsonFile = None,
):
    """Time a step of mnist_cnn with one worker and with two, alternately, and the all-reduce of two.

    \b
    Examples:
      cnn-numba bench workers
      cnn-numba bench workers --rounds 8 --json workers.json
    """
    from benchmarks import workers as benchmarks

    _record(json_file, benchmarks.bench_workers, rounds=rounds, steps=steps)


@bench.command("simulator", short_help="Time kernels in the simulators.")
def bench_simulator(json_file: JsonFile = None):
    """Time kernels in Numba's simulator and in ours, and under the sanitizer.

    \b
    Examples:
      cnn-numba bench simulator
      cnn-numba bench simulator --json simulator.json
    """
    from benchmarks import simulator as benchmark

    _record(json_file, benchmark.bench_simulator)


@bench.command("emulator", short_help="Time kernels on the emulated GPU.")
def bench_emulator(
    epoch: Annotated[bool, typer.Option(help="Train for an epoch too, which takes a minute or two.")] = True,
    json_file: JsonFile = None,
):
    """Time kernels on the emulated GPU, beside our simulator and Numba's. The times are this CPU's.

    \b
    Examples:
      cnn-numba bench emulator
      cnn-numba bench emulator --no-epoch --json emulator.json
    """
    from benchmarks import emulator as benchmark

    _record(json_file, benchmark.bench_emulator, epoch=epoch)


# --- inspect -----------------------------------------------------------------------------------------------


@app.command(short_help="Tell what a kernel becomes on a GPU, without one.")
def inspect(
    kernel: Annotated[
        str, typer.Argument(metavar="MODULE:KERNEL", help="Where the kernel is; the module may be a file.")
    ],
    signature: Annotated[
        str | None,
        typer.Option(
            metavar="TYPES",
            help="Its argument types; else those in the module's SIGNATURES, or in its decorator.",
        ),
    ] = None,
    cc: Annotated[
        list[str],
        typer.Option(metavar="X.Y", help="Compute capability of the GPU; may be given more than once."),
    ] = ["9.0"],  # noqa: B006 (typer never changes it)
    threads: Annotated[
        int | None, typer.Option(metavar="N", help="Threads per block, for the occupancy; else 256.")
    ] = None,
    dynamic_shared: Annotated[
        int, typer.Option(min=0, metavar="N", help="Bytes of dynamic shared memory of the launch.")
    ] = 0,
    source: Annotated[bool, typer.Option("--source", help="Show each source line's instructions.")] = False,
    assembly: Annotated[bool, typer.Option("--assembly", help="Show the assembly.")] = False,
):
    """Tell what a kernel becomes on a GPU, without one: registers, memory, instructions, what to change.

    \b
    Examples, in a clone; a module is named with dots, as package.module:kernel:
      cnn-numba inspect examples/life.py:step_kernel --signature "void(uint8[:, ::1], uint8[:, ::1])"
      ... --cc 7.5 --cc 9.0 --threads 128 --source
    """
    from gpuless.inspector import InspectionError, find_kernel, inspect_kernels

    sys.path.insert(0, "")  # modules of the current folder
    try:
        found, known = find_kernel(kernel)
        signatures = [signature] if signature else known
        if not signatures:
            raise typer.BadParameter(
                f"the module has none for {kernel}; write one such as 'void(float32[:, ::1], int32)'.",
                param_hint="'--signature'",
            )
        signatures = signatures if isinstance(signatures, list) else [signatures]
        options = {"threads_per_block": threads, "dynamic_shared": dynamic_shared}
        reports = inspect_kernels([(found, each, options) for each in signatures], cc)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    except InspectionError as error:
        raise CliError(error) from None
    for report in reports:
        print(report)
        if source:
            print(report.annotated())
        if assembly:
            print(report.listing())


# --- doctor ------------------------------------------------------------------------------------------------


@app.command(short_help="Look at this machine; say how to repair what is wrong.")
def doctor():
    """Look at Python, packages, what kernels run on, driver, threads and data; say how to mend what is wrong.

    The exit code is 0 if all is well and 1 if not.

    \b
    Example:
      cnn-numba doctor
    """
    from cnn_numba.doctor import examine, report

    healthy = True
    for finding in examine():
        print(report([finding]), flush=True)
        healthy &= finding.healthy
    raise typer.Exit(0 if healthy else 1)


if __name__ == "__main__":
    main()
