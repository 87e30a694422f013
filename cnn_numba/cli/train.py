"""The command ``train``."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import typer

from cnn_numba.beyond.text.data import Windows
from cnn_numba.cli.resume import chosen, command_to_resume, held_by
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
    backend_for,
    count,
    countable,
    not_negative,
    positive,
)
from cnn_numba.data import classes, image_shape, load
from cnn_numba.data.datasets import OTHER_SOURCES
from cnn_numba.device import place_of
from cnn_numba.nn.models import MODELS

commands = typer.Typer(**OPTIONS)


@commands.command()
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
        int, typer.Option(min=1, metavar="N", callback=countable, help="Passes over the training set.")
    ] = 3,
    batch_size: Annotated[int, count("Images per step.")] = 64,
    optimizer: Annotated[OptimizerName, typer.Option(help="Adam, or SGD with momentum 0.9.")] = "adam",
    lr: Annotated[
        float, typer.Option(metavar="RATE", callback=positive, help="The (highest) learning rate.")
    ] = 3e-3,
    schedule: Annotated[ScheduleName, typer.Option(help="How the learning rate moves.")] = "one-cycle",
    weight_decay: Annotated[
        float, typer.Option(metavar="SHARE", callback=not_negative, help="How weights are pulled to 0.")
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
            callback=positive,
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
    from cnn_numba.beyond.workers.joining import join
    from cnn_numba.beyond.workers.process_group import WorkersError

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
                options = chosen(workers.from_first(lambda: held_by(out / "checkpoint.npz", options, given)))
            _train(options, data_dir, out, resume, workers, timeline)
    except WorkersError as error:
        raise CliError(error, at_once=True) from None


def _train(options, data_dir, out, resume, workers, timeline):
    """Train with the options of `train`, given or held by a checkpoint."""
    in_simulator = "the kernels would run in the simulator, where an epoch takes weeks"
    backend = backend_for(options["device"], in_simulator + " ({}); use --device cpu or auto")
    from cnn_numba.train.loop import fit

    log = _line_printer() if workers.first else lambda line: None
    network = _network(
        options["model"].value,
        _share_of(workers, options["batch_size"]),
        backend,
        options["seed"],
        options["precision"].value,
    )
    data = load(_dataset_for(network, options["dataset"]), data_dir, log)
    out = out or _default_folder(network, data)
    if isinstance(data.train_images, Windows) and options["augment"].value != "none":
        raise typer.BadParameter("a text has no images to move.", param_hint="'--augment'")
    log(_what_is_trained(network, data, backend, workers))
    with _errors_in_a_line(out, data_dir, resume, workers):
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
    if not workers.first:
        return
    print(f"test accuracy {history[-1]['test_accuracy']:.2%} after epoch {len(history)}")
    print(f"curves: {out / 'curves.png'}; history: {out / 'history.json'}; network: {out / 'checkpoint.npz'}")


def _share_of(workers, batch_size):
    """Return how many images of a batch are this worker's."""
    mine = workers.count(batch_size)
    if batch_size < workers.size:
        raise typer.BadParameter(
            f"{workers.size} workers cannot share {batch_size} image{'s' * (batch_size != 1)} per step.",
            param_hint="'--batch-size'",
        )
    return mine


def _what_is_trained(network, data, backend, workers):
    """Return the line that a training begins with."""
    samples = "windows" if isinstance(data.train_images, Windows) else "images"
    return (
        f"{network.name}: {network.parameters.size:,} parameters, {len(data.train_images):,} {samples} of "
        f"{data.name}, {place_of(backend)}, {network.precision}"
        + (f", {workers.size} workers" if workers.many else "")
    )


@contextlib.contextmanager
def _errors_in_a_line(out, data_dir, resume, workers):
    """Say in a line why a training ends early and, if it can go on, with which command."""
    from cnn_numba.beyond.workers.process_group import WorkersError
    from cnn_numba.train.loop import Interrupted, TrainingDiverged

    try:
        yield
    except WorkersError as error:
        again = (
            f"; go on with: {command_to_resume(out, data_dir, workers)}"
            if "last checkpoint is" in str(error)
            else ""
        )
        raise WorkersError(f"{error}{again}", error.reason) from None
    except Interrupted as error:
        how = command_to_resume(out, data_dir, workers)
        # At once, as torch may abort a worker that ends while a thread of its own still waits.
        raise CliError(f"{error}: {how}" if workers.first else "", 130, at_once=workers.many) from None
    except (TrainingDiverged, OSError) as error:
        raise CliError(error if workers.first else "") from None
    except ValueError as error:
        # Without --resume a ValueError is a fault of ours, and its traceback is wanted.
        if not resume:
            raise
        raise CliError(error) from None


def _network(name, batch_size, backend, seed, precision="float32"):
    """Build a network; a batch beyond the memory, or a precision it does not know, is a wrong argument."""
    from cnn_numba.nn.layers import UnsupportedPrecision

    try:
        return MODELS[name](batch_size=batch_size, device=backend, seed=seed, precision=precision)
    except UnsupportedPrecision as error:
        raise typer.BadParameter(f"{error}.", param_hint="'--precision'") from None
    except (MemoryError, ValueError):  # NumPy's ValueError: more than any machine has
        raise typer.BadParameter(
            f"the memory does not hold {batch_size} images per step.", param_hint="'--batch-size'"
        ) from None


def _usual_dataset(network):
    shapes = {image_shape(name): name for name in (*OTHER_SOURCES, "cifar10", "mnist")}
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
    if scores < kinds:
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
