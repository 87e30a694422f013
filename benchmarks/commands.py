"""The commands ``cnn-numba bench ...``: they run the benchmarks, and write and draw their records."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from cnn_numba.cli.shared import OPTIONS, CliError, ModelName, backend_for, choice, count, flag, option

commands = typer.Typer(**OPTIONS)

JsonFile = Annotated[
    Path | None,
    option("Write the figures here as well.", "--json", metavar="FILE", dir_okay=False),
]
MeasuredDevice = choice("MeasuredDevice", "cpu", "gpu")
DeviceOption = Annotated[MeasuredDevice, option("Where to measure.", "--device")]
_GPU_HELP = "Time nothing, but model this GPU, such as T4 or H100; may be given more than once."
NamedGpus = Annotated[list[str] | None, option(_GPU_HELP, "--gpu", metavar="NAME")]


def _record(path, function, **options):
    """Run a benchmark, which prints its results; return the figures, and write them as JSON."""
    if path is not None and not path.resolve().parent.is_dir():
        # Checked before minutes of measuring.
        raise typer.BadParameter(f"{path.parent} is not a folder.", param_hint="'--json'")
    figures = function(**options)
    if path is not None:
        from cnn_numba.whole_files import written_whole

        with written_whole(path) as file:
            file.write((json.dumps(figures, indent=2) + "\n").encode())
    return figures


def _measured(device):
    """Return the backend to measure; raise the error of a wrong argument if there is no GPU."""
    return backend_for(device.value, "there is none to measure ({})", timed=True)


def _modelled(path, function, **options):
    """Do as `_record` for modelled times; an unknown GPU is an error, and so is a missing emulator."""
    try:
        return _record(path, function, **options)
    except (ValueError, RuntimeError) as error:
        raise CliError(str(error), 2) from None


@commands.command("ops", short_help="Time every kernel on the GPU, beside PyTorch and the roofline.")
def bench_ops(
    json_file: JsonFile = None,
    plot: Annotated[
        Path | None,
        option("Draw ladders and roofline into this folder.", metavar="FOLDER", file_okay=False),
    ] = None,
    gpu: NamedGpus = None,
):
    """Time every kernel of convolution, dense layer and pooling on the GPU, beside PyTorch and the roofline.

    Without a GPU nothing is timed: the command prints what the compiler makes of each kernel instead. With
    --gpu it prints modelled times, which are not drawn.

    \b
    Examples:
      cnn-numba bench ops
      cnn-numba bench ops --json ops.json --plot plots
      cnn-numba bench ops --gpu H100
    """
    if gpu:
        from benchmarks import ops_modelled

        _modelled(json_file, ops_modelled.bench_ops, gpus=gpu)
        return
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

        _list(bench_plots.write(figures, plot, "ops" if json_file is None else json_file.stem))


def _list(paths):
    for path in paths:
        print(path)


@commands.command("plot", short_help="Draw records of ops and epoch.")
def bench_plot(
    records: Annotated[
        list[Path],
        typer.Argument(metavar="RECORD", exists=True, dir_okay=False, help="What --json has written."),
    ],
    out: Annotated[
        Path,
        option("For the pictures; else runs/plots.", metavar="FOLDER", file_okay=False, show_default=False),
    ] = Path("runs/plots"),
):
    """Draw records of ops and epoch: ladders, roofline and bars, as PNGs named after the records.

    \b
    Examples:
      cnn-numba bench plot ops.json epoch.json --out plots
    """
    from benchmarks.plots import plot_records

    try:
        _list(plot_records(records, out))
    except ValueError as error:
        raise CliError(error) from None


@commands.command("epoch", short_help="Time our epoch and PyTorch's.")
def bench_epoch(
    model: Annotated[ModelName, option("The network.")] = "mnist_cnn",
    batch_size: Annotated[
        list[int] | None,
        count("Images per step; may be given more than once; else 64 and 256, on the GPU 1024 as well."),
    ] = None,
    repeats: Annotated[int, count("Epochs of each, taken alternately.")] = 3,
    images: Annotated[int | None, count("On the CPU: images of an epoch; else all.")] = None,
    device: DeviceOption = "cpu",
    json_file: JsonFile = None,
    gpu: NamedGpus = None,
):
    """Time our epoch and PyTorch's, alternately: the medians and their ratios.

    On the GPU ours runs with and without the CUDA graph, and PyTorch as it comes, compiled, and with a graph.
    With --gpu a step is modelled, kernel by kernel.

    \b
    Examples:
      cnn-numba bench epoch
      cnn-numba bench epoch --batch-size 64 --repeats 5 --json epoch.json
      cnn-numba bench epoch --model cifar_convnet_bn --batch-size 64 --images 2000
      cnn-numba bench epoch --device gpu
      cnn-numba bench epoch --gpu T4 --gpu A100
    """
    given = {"batch_sizes": tuple(batch_size)} if batch_size else {}
    if gpu:
        from benchmarks import epoch_modelled

        _modelled(json_file, epoch_modelled.bench_epoch, gpus=gpu, model=model.value, **given)
        return
    from benchmarks import epoch, epoch_gpu

    benchmarks = {"cpu": epoch, "gpu": epoch_gpu}[_measured(device)]
    if images is not None and device.value == "cpu":
        given["images"] = images
    _record(json_file, benchmarks.bench_epoch, model=model.value, repeats=repeats, **given)


@commands.command("accuracy", short_help="Train from several seeds; print each accuracy.")
def bench_accuracy(
    model: Annotated[ModelName, option("The network.")] = "mnist_cnn",
    seeds: Annotated[
        int | None, count("How many training runs, with seeds 0, 1, ...; else 3, with --fast 10.")
    ] = None,
    plain: Annotated[
        bool, flag("plain", "Constant 1e-3 for 5 epochs instead of the default recipe.")
    ] = False,
    fast: Annotated[bool, flag("fast", "The recipe of cnn-numba train --fast.")] = False,
    pytorch: Annotated[bool, flag("pytorch", "Train PyTorch's network as well.")] = False,
    device: DeviceOption = "cpu",
    json_file: JsonFile = None,
):
    """Train from several seeds; print each accuracy, epoch by epoch, and the means.

    \b
    Examples:
      cnn-numba bench accuracy
      cnn-numba bench accuracy --device gpu
      cnn-numba bench accuracy --fast --pytorch
      cnn-numba bench accuracy --model mnist_cnn_deep --plain --pytorch --json accuracy.json
    """
    from benchmarks import accuracy as benchmarks

    if plain and fast:
        raise typer.BadParameter(
            "--plain is another recipe: leave one of the two out.", param_hint="'--fast'"
        )
    recipe = "plain" if plain else "fast" if fast else "default"
    options = {"seeds": seeds or (10 if fast else 3), "recipe": recipe, "pytorch": pytorch}
    _record(json_file, benchmarks.bench_accuracy, model=model.value, device=_measured(device), **options)


@commands.command("layers", short_help="Time each layer on one core of the CPU.")
def bench_layers(
    model: Annotated[ModelName, option("The network.")] = "mnist_cnn",
    batch_size: Annotated[int, count("Images per step.")] = 64,
    repeats: Annotated[int, count("Training steps that are timed.")] = 100,
    ladder: Annotated[bool, flag("ladder", "Also climb from plain loops to the fast convolution.")] = False,
    json_file: JsonFile = None,
):
    """Time each layer on one core of the CPU: its useful operations, and its share of the core's peak.

    \b
    Examples:
      cnn-numba bench layers
      cnn-numba bench layers --model cifar_convnet --batch-size 256
      cnn-numba bench layers --ladder --json layers.json
    """
    from benchmarks import layers as benchmarks

    options = {"batch_size": batch_size, "repeats": repeats, "ladder": ladder}
    _record(json_file, benchmarks.bench_layers, model=model.value, **options)


@commands.command("startup", short_help="Time the start of training, the very first and later.")
def bench_startup(
    repeats: Annotated[int, count("Starts with everything cached.")] = 3,
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


@commands.command("workers", short_help="Time a step with one worker and with two.")
def bench_workers(
    rounds: Annotated[int, count("How often each way is started, in turn.")] = 5,
    steps: Annotated[int, count("Of each start; 10 warm up.", min=20)] = 40,
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


@commands.command("simulator", short_help="Time kernels in the simulators.")
def bench_simulator(json_file: JsonFile = None):
    """Time kernels in Numba's simulator and in ours, and under the sanitizer.

    \b
    Examples:
      cnn-numba bench simulator
      cnn-numba bench simulator --json simulator.json
    """
    from benchmarks import simulator as benchmark

    _record(json_file, benchmark.bench_simulator)


@commands.command("emulator", short_help="Time kernels on the emulated GPU.")
def bench_emulator(
    epoch: Annotated[bool, option("Train for an epoch too, which takes a minute or two.")] = True,
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


@commands.command("modelled", short_help="Compare modelled times of kernels with published ones.")
def bench_modelled(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD]...", help="Only rows whose GPU, family and name have all of these."),
    ] = None,
    hardware: Annotated[
        bool, typer.Option("--hardware", help="Measure the rows' kernels on this machine's GPU as well.")
    ] = False,
    json_file: JsonFile = None,
):
    """Model the times of published kernels; for all rows, write the record and docs/modelled-times.md.

    With --hardware the GPU of this machine runs the same kernels. What it takes is written beside what is
    modelled for it, into benchmarks/modelled or the file given.

    \b
    Examples:
      cnn-numba bench modelled
      cnn-numba bench modelled T4 transpose
      cnn-numba bench modelled --hardware
    """
    if hardware:
        _measure_modelled(words or [], json_file)
        return
    if json_file is not None:
        raise typer.BadParameter("only with --hardware: record.json has its place.", param_hint="'--json'")
    import subprocess

    from benchmarks.processes import environment

    # The emulated GPU is selected before numba.cuda is imported, also where there is a real one.
    command = [sys.executable, "-m", "benchmarks.modelled", *(words or ["--record"])]
    done = subprocess.run(command, env=environment(GPULESS="emulator"), check=False)
    raise typer.Exit(done.returncode)


def _measure_modelled(words, json_file):
    from benchmarks.modelled import hardware as benchmark

    record = _modelled(json_file, benchmark.bench_hardware, words=words)
    if json_file is None:
        print(benchmark.write(record))
