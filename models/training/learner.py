"""The protocol of a learner: a model with its optimizer, in one framework."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.support.imports import require

_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "torch": ("torch", "safetensors", "onnxscript"),
    "chainer": (),  # its learner imports Chainer through tracer.exporters.chainer.compat
}

DEVICES = ("cpu", "cuda", "mps")

Inputs = NDArray[np.float32] | NDArray[np.int64]
Classes = NDArray[np.int64]


class Learner(Protocol):
    """A model and its optimizer.

    A batch is float32 [N, C, H, W] and the classes [N], or tokens and the tokens after them, int64
    [N, S]. `step` and `score` return the sum of the losses of its images, in nats, and the number
    of correctly classified images; of a window of text the mean over its tokens counts.
    """

    snapshot_suffix: str
    weights_suffix: str

    @property
    def model(self) -> object:
        """The torch Module or Chainer Chain, on the CPU."""

    def step(self, x: Inputs, y: Classes) -> tuple[float, float]:
        """Updates the weights by a batch; returns the score before the update, with dropout."""

    def score(self, x: Inputs, y: Classes) -> tuple[float, float]:
        """Scores a batch in inference mode, without an update."""

    def snapshot(self, epoch: int) -> bytes:
        """Returns a file of weights, optimizer and random state after `epoch`, without pickles."""

    def restore(self, path: Path) -> int:
        """Loads a snapshot and returns its epoch. Raises InputError if it does not fit."""

    def weights(self) -> bytes:
        """Returns a file of the weights alone."""


def no_snapshot(path: Path) -> InputError:
    """Returns the error for a file that is broken or of another model.

    It replaces the framework's own error, which may advise to unpickle the file.
    """
    return InputError(
        f"{path}: not a snapshot of this model", "It is broken or of another run: start a new run."
    )


def new_learner(
    family: str, framework: str, arguments: Mapping[str, object], lr: float, seed: int,
    device: str = "cpu",
) -> Learner:  # fmt: skip
    """Returns an untrained learner of `family` on a device of `DEVICES`.

    Raises UsageError as `families.build` does, or if a package or the device is missing. Packages
    of the export are checked as well, before hours of training.
    """
    require(f"training in {framework}", *_PACKAGES[framework])
    module = importlib.import_module(f"models.training.{framework}_learner")
    learner: Learner = module.new(family, arguments, lr, seed, device)
    return learner
