"""The commands that use a trained network: ``predict``, ``sample`` and ``export``."""

import contextlib
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from cnn_numba.cli.shared import OPTIONS, CliError, complain, count, countable, flag, not_negative, option
from cnn_numba.data import DATASETS, classes, image_shape
from cnn_numba.data.digits import as_text, find_digit, prepare_photo
from cnn_numba.data.sources import SOURCES
from cnn_numba.ops.gather.cpu import gather_batch
from cnn_numba.pretrained import MNIST_CNN, TEXT_TRANSFORMER
from cnn_numba.train.checkpoint import load_checkpoint, load_model
from cnn_numba.whole_files import written_whole

commands = typer.Typer(**OPTIONS)

Checkpoint = Annotated[Path, option("The trained network, as train wrote it.")]

# Of 3,600 photographs made by tests/data/photos.py, 98.9% are read correctly. With this limit and the doubts
# of `find_digit`, 0.3% are wrong but called sure, and 2.8% correct but called not sure; with 0.5 it would be
# 0.8% and 1.6%, with 0.95 0.2% and 3.6%.
_SURE = 0.9
# Label smoothing makes a network less sure: after `train --fast` it is 0.2% and 4.3% with this limit; with
# 0.9 as much as 41% would be correct but called not sure.
_SURE_SMOOTHED = 0.6


@contextlib.contextmanager
def _reading(checkpoint, how):
    """Turn an error about a checkpoint into one line, with the command `how` if it is missing."""
    try:
        yield
    except FileNotFoundError:
        raise CliError(f"there is no {checkpoint}; train a network with: {how}") from None
    except (OSError, ValueError) as error:
        if checkpoint.is_dir():
            raise CliError(f"{checkpoint} is a folder; give the checkpoint in it") from None
        raise CliError(error) from None


def _trained(context, checkpoint, ours, does="is used", how="cnn-numba train"):
    """Return the checkpoint to read: the package's, `ours`, if none was named and none exists."""
    if context.get_parameter_source("checkpoint").name == "COMMANDLINE" or checkpoint.exists():
        return checkpoint
    who = f"the network that comes with the package {does}"
    complain(f"there is no {checkpoint} here, so {who}; train your own with: {how}")
    return ours


@commands.command(short_help="Say which digit a picture shows.")
def predict(
    context: typer.Context,
    images: Annotated[
        list[Path],
        typer.Argument(metavar="IMAGE", exists=True, dir_okay=False, help="Pictures of one digit each."),
    ],
    checkpoint: Checkpoint = Path("runs/mnist_cnn/checkpoint.npz"),
    show: Annotated[bool, flag("show", "Draw what the network gets to see.")] = False,
):
    """Say which digit a picture shows: the three likeliest, with their probabilities.

    Pictures can have any size (above 25 megapixels only JPEG), mode, colours and light; the ink may be darker
    or lighter than the paper. The digit must stand alone: a table, a frame or a ruled line may be in the
    picture, but not touch the digit.
    If the answer is unreliable, the line ends with the reason: "not sure: ...".
    Until you have trained a network, the one that comes with the package answers.

    \b
    Examples:
      cnn-numba predict seven.png --show
      cnn-numba predict scans/*.jpg --checkpoint runs/mnist_cnn_deep/checkpoint.npz
    """
    used = _trained(context, checkpoint, MNIST_CNN)
    network, dataset, mean, std, sure = _load_network(used)
    if used == checkpoint:
        complain(f"the network in {checkpoint} answers")
    failed = 0
    for path in images:
        try:
            if dataset == "mnist":
                picture, doubts = find_digit(path)
            else:
                picture, doubts = prepare_photo(path, network.input_shape), []
        except (OSError, ValueError) as error:
            complain(error)
            failed += 1
            continue
        x = gather_batch(picture[np.newaxis], np.zeros(1, np.int64), mean, std)
        probabilities = network.predict(x)[0]
        if probabilities.max() < sure:
            doubts.append(f"no answer reaches {sure:.0%}")
        unsure = f"; not sure: {', and '.join(doubts)}" if doubts else ""
        best, names = np.argsort(-probabilities, kind="stable")[:3], classes(dataset)
        likeliest = ", ".join(f"{names[label]} ({probabilities[label]:.1%})" for label in best)
        print(f"{path}: {likeliest}{unsure}")
        if show:
            print(as_text(picture, sys.stdout.encoding or "ascii"))
    raise typer.Exit(1 if failed else 0)


def _load_network(checkpoint):
    """Return the trained network, its data set, their mean and std, and the probability of a sure answer."""
    with _reading(checkpoint, "cnn-numba train, or name one by --checkpoint"):
        recipe = load_checkpoint(checkpoint).progress.get("recipe", {})
        dataset = recipe.get("dataset")
        network = load_model(checkpoint, batch_size=1)
    usual = SOURCES[dataset if dataset in DATASETS else "mnist"]
    sure = _SURE_SMOOTHED if recipe.get("label_smoothing") else _SURE
    numbers = recipe.get("mean", usual.mean), recipe.get("std", usual.std), sure
    if dataset in DATASETS and network.input_shape == image_shape(dataset):
        return network, dataset, *numbers
    # Trained on another data set through the Python API: pictures of MNIST's shape are taken for digits.
    if network.input_shape != image_shape("mnist"):
        raise CliError(
            f"{checkpoint} was trained on {dataset or 'an unknown data set'}; predict knows the pictures of "
            f"{', '.join(DATASETS)} only"
        )
    return network, "mnist", *numbers


@commands.command(short_help="Let a trained network write text.")
def sample(
    context: typer.Context,
    prompt: Annotated[str, typer.Argument(help="How the text begins.")] = "A kernel",
    checkpoint: Checkpoint = Path("runs/text_transformer/checkpoint.npz"),
    length: Annotated[int, count("Characters to write.", callback=countable)] = 400,
    temperature: Annotated[
        float, option("Below 1 likelier characters, at 0 the likeliest.", metavar="T", callback=not_negative)
    ] = 0.7,
    seed: Annotated[int, count("Same seed: same text.", min=0)] = 0,
):
    """Let a trained text_transformer continue a text, one character at a time.

    Until you have trained one, the one that comes with the package writes.

    \b
    Examples:
      cnn-numba sample
      cnn-numba sample "The GPU" --length 1000 --temperature 0.5
    """
    from cnn_numba.beyond.text.generation import generate

    how = "cnn-numba train --model text_transformer"
    with _reading(checkpoint, how):
        network = load_model(_trained(context, checkpoint, TEXT_TRANSFORMER, "writes", how), batch_size=1)
        text = generate(network, prompt, length, temperature, seed)
    print(text)


@commands.command(short_help="Write a trained network as an ONNX file, for other programs.")
def export(
    context: typer.Context,
    checkpoint: Checkpoint = Path("runs/mnist_cnn/checkpoint.npz"),
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
        bool, flag("pixels", "Make its input raw pixels, normalised in the file as they were in training.")
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
    from cnn_numba.beyond.onnx import to_onnx

    asked, checkpoint = checkpoint, _trained(context, checkpoint, MNIST_CNN)
    if out is None:
        out = checkpoint.with_suffix(".onnx") if checkpoint == asked else Path("mnist_cnn.onnx")
    if out.resolve() == checkpoint.resolve():
        raise typer.BadParameter(f"{out} is the checkpoint.", param_hint="'--out'")
    with _reading(checkpoint, "cnn-numba train"):
        network = load_model(checkpoint, batch_size=1)
        recipe = load_checkpoint(checkpoint).progress.get("recipe", {})
    if pixels and not {"mean", "std"} <= recipe.keys():
        raise CliError(f"{checkpoint} does not say how its pixels were normalised: leave out --pixels")
    try:
        proto = to_onnx(network, (recipe["mean"], recipe["std"]) if pixels else None)
        with written_whole(out) as file:
            file.write(proto.SerializeToString())
    except (OSError, ValueError) as error:
        raise CliError(error) from None
    shape = ", ".join(map(str, ("N", *network.input_shape)))
    dtype = np.dtype(np.uint8 if pixels else network.layers[0].input_dtype or np.float32)
    print(f"{out}: {network.name}, {len(proto.graph.node)} nodes; it takes x, {dtype}, of shape ({shape})")
