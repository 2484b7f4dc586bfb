"""`python -m models.train`: train a model family and export it to ONNX."""

import sys
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import click

from models import families, options
from models.training import session
from models.training.folder import RunFolder
from models.training.learner import DEVICES
from models.training.loop import Epoch
from models.training.product import AGREEMENT
from models.training.tensorboard import Board
from tracer import cli
from tracer.cli import _options
from tracer.cli._messages import progress
from tracer.graph import loading

HEADER = "epoch      loss  accuracy  val. loss  val. accuracy  seconds  load ms  learn ms"


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"Families: {', '.join(families.names())}.",
)
@click.argument("family")
@click.option("--framework", type=click.Choice(families.FRAMEWORKS), help="[default: torch]")
@click.option(
    "--data",
    help="digits, cifar10, mnist, kjv, an .npz with x and y, or text:FILE  "
    "[default: the family's recipe]",
)
@options.data_dir
@click.option("--epochs", type=click.IntRange(1), help="[default: the family's recipe]")
@click.option("--batch", type=click.IntRange(1), help="[default: the family's recipe]")
@click.option("--lr", type=click.FloatRange(0, min_open=True), help="Learning rate of Adam.")
@click.option(
    "--seed", type=click.IntRange(0), help="Seed of weights, order and dropout  [default: 0]"
)
@click.option("--device", type=click.Choice(DEVICES), help="Device of the network  [default: cpu]")
@click.option(
    "--size",
    type=click.IntRange(1),
    help="Height and width of the images, or bytes of a window of text.",
)
@_options.ARGUMENTS
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder of the run.")
@click.option("--resume", is_flag=True, help="Continue the run in --out after its last epoch.")
@click.option(
    "--tensorboard",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for an event file with the curves and the model's graph.",
)
@click.option("--debug", is_flag=True, help="Show Python tracebacks instead of one-line errors.")
def command(
    family: str,
    framework: str | None,
    data: str | None,
    data_dir: Path,
    epochs: int | None,
    batch: int | None,
    lr: float | None,
    seed: int | None,
    device: str | None,
    size: int | None,
    args: tuple[tuple[str, Any], ...],
    out: Path | None,
    resume: bool,
    tensorboard: Path | None,
    debug: bool,
) -> None:
    """Train FAMILY with Adam and softmax cross-entropy, then export it to ONNX.

    The run's folder gets settings.json, log.jsonl, a snapshot after every epoch, and at the end the
    weights and model.onnx. --resume continues an interrupted run, or adds --epochs, with the same
    results as a run without interruption.

    The columns load ms and learn ms are the times of a batch: to get its images, and of its step.

    Examples:

    \b
      python -m models.train lenet --out runs/lenet
      python -m models.train resnet_cifar --framework chainer --data cifar10
      python -m models.train lenet --out runs/lenet --resume --epochs 60
    """
    recipe = families.recipe(family)
    shape = (*recipe.input_shape[:-2], *[size] * len(recipe.input_shape[-2:])) if size else None
    overrides = {
        "framework": framework,
        "data": data,
        "input_shape": shape,
        "epochs": epochs,
        "batch": batch,
        "lr": lr,
        "seed": seed,
        "device": device,
        "arguments": dict(args) or None,
    }
    request = {"family": family} | {name: v for name, v in overrides.items() if v is not None}
    folder = RunFolder(out or Path("runs") / f"{family}_{framework or 'torch'}")
    begin = session.resume if resume else session.start
    with closing(Board(tensorboard)) if tensorboard else nullcontext() as board:
        train(begin(request, folder, data_dir), board)


def train(run: session.Session, board: Board | None) -> None:
    """Trains, prints a row for each epoch, then the paths of the results."""
    _epochs(run, board)
    weights, exported = run.finish()
    if board is not None:
        board.add_graph(loading.load(exported.path))
    click.echo(f"wrote {weights}", err=True)
    click.echo(
        f"wrote {exported.path}: {exported.nodes} nodes, opset {exported.opset}, "
        f"within {AGREEMENT:.2%} of the range of {exported.framework}'s outputs",
        err=True,
    )


def _epochs(run: session.Session, board: Board | None) -> None:
    click.echo(HEADER)
    for row in run.rows:
        click.echo(_line(row))
        if board is not None and board.is_new:
            board.add_epoch(row)
    try:
        with progress() as report:
            for row in run.epochs(report):
                click.echo(_line(row))
                if board is not None:
                    board.add_epoch(row)
    except KeyboardInterrupt:
        click.echo(
            f"stopped in epoch {run.done + 1}; {run.done} are safe: "
            f"continue with --resume --out {run.folder.path}",
            err=True,
        )
        raise


def _line(row: Epoch) -> str:
    batch = "".join(
        f"{'' if ms is None else f'{ms:.2f}':>{width}}"
        for ms, width in ((row.loading_ms, 9), (row.learning_ms, 10))
    )
    return (
        f"{row.epoch:5d}  {row.loss:8.4f}  {row.accuracy:8.2%}  {row.validation_loss:9.4f}"
        f"  {row.validation_accuracy:13.2%}  {row.seconds:7.1f}{batch}"
    )


if __name__ == "__main__":
    sys.exit(cli.run(command, "python -m models.train"))
