"""The command ``train``."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from cnn_numba.beyond.text.data import Windows
from cnn_numba.cli.resume import command_to_resume, held_by
from cnn_numba.cli.shared import (
    OPTIONS,
    AugmentName,
    CliError,
    DatasetName,
    Device,
    ModelName,
    OptimizerName,
    Precision,
    ScheduleName,
    as_options,
    backend_for,
    count,
    countable,
    described,
    flag,
    not_negative,
    option,
    positive,
    share,
    wrong,
)
from cnn_numba.data import classes, image_shape, load
from cnn_numba.data.sources import SOURCES
from cnn_numba.device import place_of
from cnn_numba.nn.models import MODELS
from cnn_numba.train.recipes import DEFAULT, FAST, differing

commands = typer.Typer(**OPTIONS)

_Dataset = Annotated[
    DatasetName | None,
    option(
        "The data; by default cifar10 for colour networks, course-text for text_transformer, and for the "
        "others mnist, or the one of the two MNISTs in --data-dir.",
        show_default=False,
    ),
]
_DataDir = Annotated[
    Path | None,
    option("Where the original files are (a torchvision root); or a text of your own.", metavar="FOLDER"),
]
_Fast = Annotated[
    bool,
    flag("fast", f"Fastest to 99% with mnist_cnn: {as_options(differing(FAST))}, unless given otherwise."),
]
_Lr = Annotated[float, option("The (highest) learning rate.", metavar="RATE", callback=positive)]
_WeightDecay = Annotated[float, share("How strongly weights are pulled towards 0.", callback=not_negative)]
_LabelSmoothing = Annotated[
    float, share("Share of the target that is spread over all classes; the test loss is computed without it.")
]
_Augment = Annotated[
    AugmentName, option("Change training images at random: moved by up to an eighth, or mirrored too.")
]
_Precision = Annotated[
    Precision, option("What the operands of products are rounded to; float16 comes with loss scaling.")
]
_Out = Annotated[
    Path | None,
    option(
        "For the results; else runs/MODEL, or runs/MODEL-DATASET with other data than the model's own.",
        metavar="FOLDER",
        file_okay=False,
    ),
]
_Resume = Annotated[
    bool,
    flag(
        "resume",
        "Continue the run in --out, with its options; --epochs may be larger if its schedule is constant.",
    ),
]
_Timeline = Annotated[
    Path | None,
    option(
        "Write as JSON what each worker does when, for three steps; on a GPU this makes them slower.",
        metavar="FILE",
        dir_okay=False,
    ),
]
_Timeout = Annotated[
    float,
    option("Stop when a worker has not answered for this long.", metavar="SECONDS", callback=positive),
]

#: The options that are saved in a checkpoint.
_HELD = ("model", "dataset", *DEFAULT, "seed", "device", "precision")


class _Files(NamedTuple):
    """The options about files that a training run reads and writes."""

    data_dir: Path | None
    out: Path | None
    resume: bool
    timeline: Path | None


@commands.command()
def train(  # noqa: PLR0913 (these are the options of training)
    context: typer.Context,
    model: Annotated[ModelName, option("The network.")] = "mnist_cnn",
    dataset: _Dataset = None,
    data_dir: _DataDir = None,
    fast: _Fast = False,
    epochs: Annotated[int, count("Passes over the training set.", callback=countable)] = DEFAULT["epochs"],
    batch_size: Annotated[int, count("Images per step.")] = DEFAULT["batch_size"],
    optimizer: Annotated[OptimizerName, option("Adam, or SGD with momentum 0.9.")] = DEFAULT["optimizer"],
    lr: _Lr = DEFAULT["lr"],
    beta1: Annotated[float, share("Adam's decay rate of the mean gradient.")] = DEFAULT["beta1"],
    beta2: Annotated[float, share("Adam's decay rate of the mean square.")] = DEFAULT["beta2"],
    schedule: Annotated[ScheduleName, option("How the learning rate moves.")] = DEFAULT["schedule"],
    weight_decay: _WeightDecay = DEFAULT["weight_decay"],
    label_smoothing: _LabelSmoothing = DEFAULT["label_smoothing"],
    augment: _Augment = DEFAULT["augment"],
    seed: Annotated[int, count("Same seed, machine and threads: same numbers.", min=0)] = 0,
    device: Annotated[Device, option("Where to train; auto: a real GPU, else the CPU.")] = "auto",
    precision: _Precision = "float32",
    out: _Out = None,
    resume: _Resume = False,
    timeline: _Timeline = None,
    timeout: _Timeout = 30.0,
):
    """Train a network; write its checkpoint, history and curves.

    The files of an earlier run in the same folder are kept, in a folder earlier-1, earlier-2, ... there.
    Under torchrun each worker takes its share of every batch.

    \b
    Examples:
      cnn-numba train
      cnn-numba train --fast
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
    values = locals()  # each option under its name
    options = {name: getattr(values[name], "value", values[name]) for name in _HELD}
    given = {name for name in _HELD if context.get_parameter_source(name).name == "COMMANDLINE"}
    _check_of_adam(options, given, fast)
    if fast:
        options |= {name: value for name, value in differing(FAST).items() if name not in given}
        given |= differing(FAST).keys()  # a resumed checkpoint must have this recipe too
    _train_together(options, given, _Files(data_dir, out, resume, timeline), timeout)


def _check_of_adam(options, given, fast):
    """Refuse the options that only Adam has for another optimiser."""
    if options["optimizer"] != "adam":
        for name in [*["fast"] * fast, *sorted(given & {"beta1", "beta2"})]:
            other = f"the optimizer is {options['optimizer']}"
            raise wrong(name, f"it is for adam, and {other}: leave one of the two out.")


def _train_together(options, given, files, timeout):
    """Train with all workers; `given` are the names of the options on the command line."""
    from cnn_numba.beyond.workers.joining import join
    from cnn_numba.beyond.workers.process_group import WorkersError

    try:
        with join(timeout) as workers:
            # Compared here because the next exchanges depend on some of them. Devices are compared later.
            alike = {name: value for name, value in options.items() if name != "device"}
            workers.insist_equal({"resume": files.resume, **alike})
            if files.resume:
                if files.out is None:
                    network = _network(options["model"], 1, "cpu", options["seed"])
                    data = load(_dataset_for(network, options["dataset"]), files.data_dir)
                    files = files._replace(out=_default_folder(network, data))
                path = files.out / "checkpoint.npz"
                options = workers.from_first(lambda: held_by(path, options, given))  # only it needs the file
            _train(options, files, workers)
    except WorkersError as error:
        raise CliError(error, at_once=True) from None


def _train(options, files, workers):
    """Train with the options of `train`, from the command line or a checkpoint."""
    in_simulator = "the kernels would run in the simulator, where an epoch takes weeks"
    backend = backend_for(options["device"], in_simulator + " ({}); use --device cpu or auto")
    from cnn_numba.train.loop import fit
    from cnn_numba.train.optim import OPTIMIZERS

    log = _line_printer() if workers.first else lambda line: None
    if (batch_size := options["batch_size"]) < workers.size:
        images = f"{batch_size} image{'s' * (batch_size != 1)}"
        raise wrong("batch-size", f"{workers.size} workers cannot share {images} per step.")
    share = workers.count(batch_size)
    network = _network(options["model"], share, backend, options["seed"], options["precision"])
    data = load(_dataset_for(network, options["dataset"]), files.data_dir, log)
    out = files.out or _default_folder(network, data)
    if isinstance(data.train_images, Windows) and options["augment"] != "none":
        raise wrong("augment", f"{options['augment']} moves images, and {data.name} is a text.")
    special = {"sgd": {"momentum": 0.9}, "adam": {"betas": (options["beta1"], options["beta2"])}}
    how = {"lr": options["lr"], "weight_decay": options["weight_decay"], **special[options["optimizer"]]}
    optimizer = OPTIMIZERS[options["optimizer"]](network, **how)
    log(_what_is_trained(network, data, backend, workers, files.data_dir))
    recipe = {name: options[name] for name in DEFAULT}
    logged = {"epochs", "batch_size", "optimizer", "lr", "schedule", *differing(recipe)}
    log(f"recipe: {as_options({name: value for name, value in recipe.items() if name in logged})}")
    with _errors_in_a_line(out, files, workers):
        history = fit(
            network,
            data,
            optimizer,
            **{name: options[name] for name in ("epochs", "schedule", "augment", "label_smoothing", "seed")},
            out=out,
            resume=files.resume,
            # In a log file a bar is a long line of control characters; the line per epoch is enough.
            progress=sys.stderr.isatty(),
            log=log,
            workers=workers,
            timeline=files.timeline,
        )
    if workers.first:
        print(f"test accuracy {history[-1]['test_accuracy']:.2%} after epoch {len(history)}")
        where = ("curves", "curves.png"), ("history", "history.json"), ("network", "checkpoint.npz")
        print("; ".join(f"{what}: {out / file}" for what, file in where))


def _what_is_trained(network, data, backend, workers, data_dir):
    """Return the first line of a training run."""
    is_text = isinstance(data.train_images, Windows)
    samples, name = ("windows", data_dir or data.name) if is_text else ("images", data.name)
    return (
        f"{network.name}: {network.parameters.size:,} parameters, {len(data.train_images):,} {samples} of "
        f"{name}, {place_of(backend)}, {network.precision}"
        + (f", {workers.size} workers" if workers.many else "")
    )


@contextlib.contextmanager
def _errors_in_a_line(out, files, workers):
    """Turn an error that ends a training run into one line, with the command to resume it if possible."""
    from cnn_numba.beyond.workers.process_group import WorkersError
    from cnn_numba.train.lock import FolderInUse
    from cnn_numba.train.loop import Interrupted, TrainingDiverged

    how = command_to_resume(out, files.data_dir, workers)
    checkpoint = out / "checkpoint.npz"
    before = checkpoint.exists() and checkpoint.stat().st_mtime_ns
    try:
        yield
    except WorkersError as error:
        again = f"; go on with: {how}" if error.saved else ""
        raise WorkersError(f"{error}{again}", error.reason) from None
    except Interrupted as error:
        # At once, because torch may abort a worker that ends while one of its threads still waits.
        raise CliError(f"{error}: {how}" if workers.first else "", 130, at_once=workers.many) from None
    except (TrainingDiverged, OSError) as error:
        text = described(error)
        saved = not isinstance(error, (TrainingDiverged, FolderInUse)) and checkpoint.exists()
        if saved and checkpoint.stat().st_mtime_ns != before:  # such as on a full disk
            text += f"; earlier epochs are saved, go on with: {how}"
        raise CliError(text if workers.first else "") from None
    except ValueError as error:
        # Without --resume a ValueError is a bug: show its traceback.
        if not files.resume:
            raise
        raise CliError(error) from None


def _network(name, batch_size, backend, seed, precision="float32"):
    """Build a network; BadParameter if the batch exceeds the memory or the network lacks the precision."""
    from cnn_numba.nn.layer import UnsupportedPrecision

    try:
        return MODELS[name](batch_size=batch_size, device=backend, seed=seed, precision=precision)
    except UnsupportedPrecision as error:
        raise wrong("precision", f"{error}.") from None
    except (MemoryError, ValueError):  # NumPy's ValueError: more memory than any machine has
        raise wrong("batch-size", f"not enough memory for {batch_size} images per step.") from None


def _usual_dataset(network):
    """Return the first data set of a network's input shape, or None."""
    return next((name for name in SOURCES if image_shape(name) == network.input_shape), None)


def _default_folder(network, data):
    suffix = "" if data.name == _usual_dataset(network) else f"-{data.name}"
    return Path("runs") / f"{network.name}{suffix}"


def _dataset_for(network, dataset):
    """Return the name of the data set to train on; BadParameter if it does not fit the network.

    None lets the files decide which of the two MNISTs they are.
    """
    name = dataset or _usual_dataset(network)
    takes = f"{network.name} takes samples of shape {network.input_shape}"
    if name is None:
        raise wrong("model", f"{takes}, and no data set has such.")
    if network.input_shape != image_shape(name):
        raise wrong("dataset", f"{takes}, but those of {name} have {image_shape(name)}.")
    scores, kinds = network.shapes[-1][-1], len(classes(name))
    if scores < kinds:
        raise wrong("dataset", f"{network.name} has {scores} outputs, but {name} has {kinds} classes.")
    return None if dataset is None and name == "mnist" else name


def _line_printer():
    """Return a function that prints a line, above any progress bar; warnings go to stderr.

    A line that cannot be printed does not stop training: the files say the same, and `main` reports it.
    """
    from tqdm import tqdm

    from cnn_numba.train.callbacks.log import Warned

    def log(line):
        with contextlib.suppress(OSError):
            if isinstance(line, Warned):
                tqdm.write(f"cnn-numba: {line}", file=sys.stderr)
            else:
                tqdm.write(line)

    return log
