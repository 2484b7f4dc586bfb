"""The learner of Chainer."""

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from models import families
from models.training.learner import Classes, Inputs, no_snapshot
from tracer.errors import UsageError
from tracer.exporters.chainer import compat

chainer: Any = compat.load()

_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError),
    *(LookupError, ValueError, TypeError, AttributeError),
)
_MODEL, _ADAM, _RANDOM = "model/", "adam/", "random/"


class ChainerLearner:
    """A Chain with Adam."""

    snapshot_suffix = ".npz"
    weights_suffix = ".npz"

    def __init__(self, model: Any, lr: float) -> None:
        self._model = model
        self._adam = chainer.optimizers.Adam(alpha=lr).setup(model)

    @property
    def model(self) -> object:
        """The chain."""
        return self._model

    def step(self, x: Inputs, y: Classes) -> tuple[float, float]:
        """One update; see `Learner.step`."""
        output = self._model(chainer.Variable(x))
        loss = chainer.functions.softmax_cross_entropy(output, _labels(y))
        self._model.cleargrads()
        loss.backward()
        self._adam.update()
        return _scored(loss, output, y)

    def score(self, x: Inputs, y: Classes) -> tuple[float, float]:
        """No update; see `Learner.score`."""
        with chainer.using_config("train", False), chainer.no_backprop_mode():
            output = self._model(chainer.Variable(x))
            loss = chainer.functions.softmax_cross_entropy(output, _labels(y))
        return _scored(loss, output, y)

    def snapshot(self, epoch: int) -> bytes:
        """Returns all state that the next epoch depends on, as arrays."""
        serializer = chainer.serializers.DictionarySerializer()
        serializer[_MODEL].save(self._model)
        serializer[_ADAM].save(self._adam)
        _algorithm, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
        random = {"keys": keys, "position": position, "has_gauss": has_gauss, "gauss": gauss}
        arrays = {f"{_RANDOM}{key}": np.asarray(value) for key, value in random.items()}
        arrays |= serializer.target
        arrays["epoch"] = np.asarray(epoch)
        file = io.BytesIO()
        np.savez(file, **arrays)
        return file.getvalue()

    def restore(self, path: Path) -> int:
        """Loads a `snapshot` and returns its epoch; pickled objects are refused."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                deserializer = chainer.serializers.NpzDeserializer(archive)
                deserializer[_MODEL].load(self._model)
                deserializer[_ADAM].load(self._adam)
                names = ("keys", "position", "has_gauss", "gauss")
                keys, *rest = (archive[_RANDOM + name] for name in names)
                np.random.set_state(("MT19937", keys, *(value.item() for value in rest)))
                return int(archive["epoch"])
        except _BROKEN as error:
            raise no_snapshot(path) from error

    def weights(self) -> bytes:
        """Returns the weights in the format of `chainer.serializers.load_npz`."""
        file = io.BytesIO()
        chainer.serializers.save_npz(file, self._model)
        return file.getvalue()


def new(
    family: str, arguments: Mapping[str, object], lr: float, seed: int, device: str
) -> ChainerLearner:
    """Returns an untrained learner, seeded in `np.random`, from which Chainer draws.

    Raises UsageError for a device other than the CPU.
    """
    if device != "cpu":
        raise UsageError(
            f"Chainer cannot use {device} here",
            "It needs a CuPy as old as itself, which this Python cannot install. Leave --device "
            "out, or train with --framework torch.",
        )
    np.random.seed(seed)
    return ChainerLearner(families.build(family, "chainer", arguments), lr)


def _labels(y: Classes) -> np.ndarray[Any, Any]:
    return y.astype(np.int32)


def _scored(loss: Any, output: Any, y: Classes) -> tuple[float, float]:
    return float(loss.array) * len(y), int((output.array.argmax(1) == y).sum())
