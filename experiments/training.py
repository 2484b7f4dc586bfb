"""Experiment 4: train ResNet-20 in Chainer, interrupt and resume the run, and predict.

python -m experiments.training [--data cifar10 --epochs 10 --lr 0.001]
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from experiments import _page
from experiments._learning import learning, learning_curves
from experiments._page import Page
from models.classification import Guess, classify
from models.data import load
from models.training import session
from models.training.folder import RunFolder
from models.training.session import Session
from tracer.containment.activity import silent
from tracer.graph import loading
from tracer.inputs.datasets import DEFAULT_FOLDER

FAMILY = "resnet_cifar"
IMAGES = 3
"""Number of test images with predictions."""


def main(argv: Sequence[str] | None = None) -> None:
    """Trains and writes the page."""
    parser = _page.parser(__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--data", default="digits", help="data set, such as digits or cifar10")
    parser.add_argument(
        "--images", type=int, default=None, help="number of images to use  [default: all]"
    )
    args = parser.parse_args(argv)
    page = make(args.epochs, args.batch, args.lr, args.data, args.images, args.threads)
    page.write(args.out)


def make(epochs: int, batch: int, lr: float, data: str, images: int | None, threads: int) -> Page:
    """Returns the page, from a run of `epochs` and a run that is interrupted half way."""
    with threadpool_limits(threads), tempfile.TemporaryDirectory() as folder:
        name = data
        if images is not None:
            data = first(data, images, Path(folder) / f"{data}_{images}.npz")
        whole = trained(Path(folder) / "whole", epochs, batch, lr, data)
        trained(Path(folder) / "parts", max(1, epochs // 2), batch, lr, data)
        resumed = trained(Path(folder) / "parts", epochs, batch, lr, data)
        same = identical(Path(folder) / "whole", Path(folder) / "parts")
        guesses = predicted(Path(folder) / "parts" / "model.onnx", data)
        settings = whole.settings
        counts = f"{len(whole.dataset.train):,} training and {len(whole.dataset.test):,} test"
    parts = [
        f"ResNet-20 in Chainer, Adam at {settings.lr:g}, batch {batch}, {epochs} epochs, softmax "
        f"cross-entropy, on {name}: {counts} images. The original trained 10 epochs on CIFAR-10, "
        "which `--data cifar10 --epochs 10` repeats.",
        "## Commands",
        _commands(epochs, batch, lr, name, images),
        "## Epochs",
        learning(whole.rows),
        _page.picture("4-training.png", "loss and accuracy by epoch"),
        "## Interrupted and resumed",
        _resumed(whole, resumed, same, max(1, epochs // 2)),
        "## Predictions",
        predictions(guesses),
        "## Beyond the original",
        _page.bullets(*_learned()),
    ]
    return Page("4-training", "Experiment 4: training in Chainer, and predictions", parts,
                {"4-training.png": learning_curves(whole.rows)})  # fmt: skip


def first(data: str, images: int, path: Path) -> str:
    """Writes the first `images` and test images of a data set to `path`, and returns it."""
    whole = load(data)
    train, test = ((part.x[:images], part.y[:images]) for part in (whole.train, whole.test))
    np.savez(path, x=train[0], y=train[1], x_test=test[0], y_test=test[1])
    return str(path)


def trained(path: Path, epochs: int, batch: int, lr: float, data: str) -> Session:
    """Starts or resumes a run in `path` and finishes it."""
    request = {"family": FAMILY, "framework": "chainer", "data": data, "epochs": epochs,
             "batch": batch, "lr": lr}  # fmt: skip
    begin = session.resume if path.exists() else session.start
    run = begin(request, RunFolder(path), DEFAULT_FOLDER)
    for row in run.epochs(silent):
        print(f"{path.name}: epoch {row.epoch}, accuracy {row.validation_accuracy:.2%}", flush=True)
    run.finish()
    return run


def identical(first: Path, second: Path) -> tuple[int, int]:
    """Returns the number of bit-identical arrays of the final weights, and of all arrays."""
    with np.load(first / "weights.npz") as a, np.load(second / "weights.npz") as b:
        assert a.files == b.files
        equal = [a[name].tobytes() == b[name].tobytes() for name in a.files]
    return sum(equal), len(equal)


def predicted(model: Path, data: str) -> list[tuple[str, list[Guess]]]:
    """Returns the label of a few test images, and the model's guesses."""
    classifier, images = loading.load(model), load(data)
    samples = ((images.test.y[index], images.test.x[index : index + 1]) for index in range(IMAGES))
    return [(images.labels[y], classify(classifier, x)) for y, x in samples]


def predictions(guesses: Sequence[tuple[str, Sequence[Guess]]]) -> str:
    """Returns a row for each image: its label, top-1 and top-5."""
    rows = []
    for index, (label, best) in enumerate(guesses):
        five = ", ".join(f"{guess.label} {guess.probability:.2%}" for guess in best)
        rows.append((index, label, f"{best[0].label} ({best[0].probability:.2%})", five))
    return _page.table(("image", "label", "top-1", "top-5 "), rows)


def _commands(epochs: int, batch: int, lr: float, data: str, images: int | None) -> str:
    some = f" --images {images}" if images else ""
    train = f"python -m models.train {FAMILY} --framework chainer --data {data}"
    return _page.code(
        f"{train} --batch {batch} --lr {lr:g} --epochs {max(1, epochs // 2)} --out runs/resnet20",
        f"python -m models.train {FAMILY} --framework chainer --epochs {epochs} "
        "--out runs/resnet20 --resume",
        f"python -m models.predict runs/resnet20/model.onnx --data {data} --index 0",
        f"python -m experiments.training --data {data} --epochs {epochs} --batch {batch} "
        f"--lr {lr:g}{some}  # this page",
    )


def _resumed(whole: Session, resumed: Session, same: tuple[int, int], stopped: int) -> str:
    losses = [[row.loss for row in run.rows] for run in (whole, resumed)]
    return (
        f"A second run was stopped after epoch {stopped} and resumed from its snapshot. "
        f"{same[0]} of {same[1]} arrays of its final weights are bit-identical to the first "
        f"run; the losses of its epochs are {'equal' if losses[0] == losses[1] else 'different'}."
    )


def _learned() -> list[str]:
    return [
        "A snapshot has weights, optimiser and random state. The order of images follows from seed "
        "and epoch. A resumed run is bit-identical on the same machine.",
        "Chainer is unmaintained and does not import under NumPy 2; tracer repairs it while Python "
        "loads it. The exported ONNX model runs without Chainer. The predictions above are from "
        "onnxruntime.",
        "The same network exists in PyTorch, weights convert both ways, and trained files ship "
        "with the models.",
        "`--tensorboard` writes curves and graph for TensorBoard. Progress goes to stderr; the row "
        "of each epoch goes to stdout and `log.jsonl`.",
    ]


if __name__ == "__main__":
    _page.run(main)
