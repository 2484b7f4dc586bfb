"""Load Chainer weights from the npz of `chainer.serializers.save_npz`."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exporters.chainer import compat
from exporters.weights import check_exists, check_fit
from tracer.errors import InputError

_SAVE = "Write one: chainer.serializers.save_npz(file, model)."


def load_weights(model: Any, path: Path, *, trust: bool) -> None:
    """Fills a Chainer link from `path`; arrays of objects, which are pickles, need `trust`.

    A parameter without a shape takes the shape in the file. Raises InputError if the file is no npz
    or does not fit.
    """
    check_exists(path)
    chainer = compat.load()
    arrays = _read(path, trust=trust)
    stored = {name: array.shape for name, array in arrays.items()}
    expected = {
        # a parameter without a shape takes the file's; () if the file has none
        name: stored.get(name, ()) if shape is None else shape
        for name, shape in _shapes(chainer, model).items()
    }
    check_fit(path, stored, expected)
    chainer.serializers.NpzDeserializer(arrays).load(model)


def _shapes(chainer: Any, model: Any) -> dict[str, tuple[int, ...] | None]:
    """Returns the shapes that `save_npz` writes, including batch statistics; None is open."""
    serializer = chainer.serializers.DictionarySerializer()
    serializer.save(model)
    return {
        name: None if array.dtype == object else array.shape  # an array of None
        for name, array in serializer.target.items()
    }


def _read(path: Path, *, trust: bool) -> dict[str, NDArray[Any]]:
    try:
        archive = np.load(path, allow_pickle=trust)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise InputError(f"{path}: one array, not an .npz file of a model's weights", _SAVE)
        with archive:
            arrays = {name: archive[name] for name in archive.files}
    except (zipfile.BadZipFile, EOFError, pickle.UnpicklingError) as error:
        raise InputError(f"{path}: not an .npz file ({error})") from error
    except ValueError as error:
        if trust:
            raise InputError(f"{path}: not an .npz file ({error})") from error
        raise InputError(
            f"{path}: holds pickled objects, or is not an .npz file",
            "Unpickling runs code: give --trust if you know who wrote it, or save_npz again.",
        ) from error
    foreign = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if foreign:
        raise InputError(f"{path}: not an .npz file: it has '{foreign[0]}', no array", _SAVE)
    return arrays
