"""Chainer weights: the npz of `chainer.serializers.save_npz`."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporters.weights import check_exists, check_fit
from tracer.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def load_weights(model: Any, path: Path, *, trust: bool) -> None:
    """Fill a Chainer link from `path`; arrays of objects, which are pickles, need `trust`.

    A parameter without a size yet takes that of the file. Raises InputError where the file is no
    npz or does not fit.
    """
    from exporters.chainer import compat

    check_exists(path)
    chainer = compat.load()
    arrays = _read(path, trust=trust)
    wanted = _recorded(chainer, model)
    check_fit(
        path,
        {name: array.shape for name, array in arrays.items()},
        {
            name: arrays[name].shape if array is None and name in arrays else shape_of(array)
            for name, array in wanted.items()
        },
    )
    chainer.serializers.NpzDeserializer(arrays).load(model)


def shape_of(array: NDArray[Any] | None) -> tuple[int, ...]:
    """Shape of a recorded value; () for a parameter that has none yet."""
    import numpy as np

    return () if array is None else np.shape(array)


def _recorded(chainer: Any, model: Any) -> dict[str, Any]:
    """What `save_npz` would write of `model`: persistent values (BN's averages) as well."""
    serializer = chainer.serializers.DictionarySerializer()
    serializer.save(model)
    return dict(serializer.target)


def _read(path: Path, *, trust: bool) -> dict[str, NDArray[Any]]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=trust) as archive:
            if not hasattr(archive, "files"):
                raise InputError(f"{path}: one array, not an .npz file of a model's weights")
            return {name: archive[name] for name in archive.files}
    except zipfile.BadZipFile as error:
        raise InputError(f"{path}: not an .npz file ({error})") from error
    except ValueError as error:
        if trust:
            raise InputError(f"{path}: not an .npz file ({error})") from error
        raise InputError(
            f"{path}: holds pickled objects, or is not an .npz file",
            "Unpickling runs code: give --trust if you know who wrote it, or save_npz again.",
        ) from error
