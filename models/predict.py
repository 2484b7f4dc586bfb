"""`python -m models.predict`: classify one image with a trained model."""

import sys
from pathlib import Path

import click
import numpy as np
from numpy.typing import NDArray

from models import families, options
from models.classification import classify
from models.data import load
from tracer import cli
from tracer.errors import InputError, UsageError
from tracer.graph import loading
from tracer.inputs.datasets import images


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("model")
@click.option("--image", type=click.Path(path_type=Path), help="A PNG or JPEG file.")
@click.option("--data", help="Data set of the test image: digits, cifar10, mnist, or an .npz file.")
@click.option("--index", type=click.IntRange(0), help="Test image of --data  [default: 0]")
@options.data_dir
@click.option(
    "--framework",
    type=click.Choice(families.FRAMEWORKS),
    default="torch",
    show_default=True,
    help="Framework of a family's shipped model.",
)
@click.option("--debug", is_flag=True, help="Show Python tracebacks instead of one-line errors.")
def command(
    model: str,
    image: Path | None,
    data: str | None,
    index: int | None,
    data_dir: Path,
    framework: str,
    debug: bool,
) -> None:
    """Classify one image with MODEL: an .onnx file, or the name of a family with a shipped one.

    Examples:

    \b
      python -m models.predict lenet --data digits --index 7
      python -m models.predict runs/resnet/model.onnx --image cat.png
    """
    is_family = model in families.names()
    loaded = loading.load(families.shipped(model, framework) if is_family else model)
    pixels, label = _image(image, data, index, data_dir)
    guesses = classify(loaded, pixels)
    if label is not None:
        click.echo(f"label  {label}")
    click.echo(f"top-1  {guesses[0].label}  {guesses[0].probability:.2%}")
    click.echo(f"top-{len(guesses)}")
    width = max(len(guess.label) for guess in guesses)
    for rank, guess in enumerate(guesses, 1):
        click.echo(f"  {rank}  {guess.label:{width}}  {guess.probability:7.2%}")


def _image(
    image: Path | None, data: str | None, index: int | None, folder: Path
) -> tuple[NDArray[np.generic], str | None]:
    """Returns the image, and its label if known."""
    if image is not None and data is not None:
        raise UsageError("--image and --data are two images", "Give one of them.")
    if image is not None and index is not None:
        raise UsageError("--index is for --data; --image is one image already", "Leave it out.")
    if image is not None:
        return images.read(image), None
    if data is not None:
        return _test_image(data, folder, index or 0)
    raise UsageError("no image is named", "Give --image FILE, or --data NAME --index N.")


def _test_image(data: str, folder: Path, index: int) -> tuple[NDArray[np.generic], str]:
    dataset = load(data, folder)
    if index >= len(dataset.test):
        raise InputError(
            f"{data} has no test image {index}", f"Give --index from 0 to {len(dataset.test) - 1}."
        )
    return dataset.test.x[index : index + 1], dataset.labels[dataset.test.y[index]]


if __name__ == "__main__":
    sys.exit(cli.run(command, "python -m models.predict"))
