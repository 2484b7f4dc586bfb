"""What a framework must do to be trained by `models.training`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tracer.errors import InputError
from tracer.support.optional import require

_PACKAGES: Mapping[str, tuple[str, ...]] = {
    "torch": ("torch", "safetensors", "onnxscript"),
    "chainer": (),  # its learner looks for Chainer itself, which needs help to be imported
}

Floats = NDArray[np.float32]
Classes = NDArray[np.int64]


class Learner(Protocol):
    """A model and its optimizer.

    A batch is float32 [N, C, H, W] and the classes [N]; what comes back is the sum of the losses
    of its images, in nats, and the number of images that were classified correctly.
    """

    snapshot_suffix: str
    weights_suffix: str

    @property
    def model(self) -> object:
        """The torch Module or Chainer Chain."""

    def step(self, x: Floats, y: Classes) -> tuple[float, int]:
        """Learns from a batch, as training sees it: before the update, with dropout."""

    def score(self, x: Floats, y: Classes) -> tuple[float, int]:
        """Judge a batch, as inference sees it; nothing is learned."""

    def snapshot(self, epoch: int) -> bytes:
        """A file of weights, optimizer and random state after `epoch`, and nothing to unpickle."""

    def restore(self, path: Path) -> int:
        """Go back to a snapshot and return its epoch. Raises InputError where it is no fit."""

    def weights(self) -> bytes:
        """Returns a file of the weights alone."""


def no_snapshot(path: Path) -> InputError:
    """Returns the error for a file that is broken or of another model.

    What a framework says of such a file is about its own format and may advise to unpickle it.
    """
    return InputError(
        f"{path}: not a snapshot of this model", "It is broken or of another run: start a new run."
    )


def new_learner(
    family: str, framework: str, arguments: Mapping[str, object], lr: float, seed: int
) -> Learner:
    """Returns a beginner of `family`.

    Raises UsageError as `families.build` does, or where a package is missing, be it one that only
    the export needs: nobody should train for hours to be told then.
    """
    require(f"training in {framework}", *_PACKAGES[framework])
    module = importlib.import_module(f"models.training.{framework}_learner")
    learner: Learner = module.new(family, arguments, lr, seed)
    return learner
